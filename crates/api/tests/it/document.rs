//! The OpenAPI document in `api/openapi.yaml` is the one of the handlers.

use std::path::Path;

#[test]
fn the_kept_document_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../api/openapi.yaml");
    let generated = gpuvitals_api::document::yaml().unwrap();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &generated).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == generated, "{} is out of date; refresh it with `make generate`", path.display());
}
