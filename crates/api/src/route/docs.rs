//! `/docs`: Swagger UI from files in the program, and the document it shows.

use std::sync::LazyLock;

use axum::http::header::{CONTENT_SECURITY_POLICY, HeaderMap};
use axum::http::{HeaderValue, Uri};
use axum::response::Response;

use super::answered::Answered;
use super::document;
use crate::assets::{Asset, Keep};
use crate::error::ApiError;
use crate::parameter::Named;

/// Swagger UI sets styles and draws images of its own; scripts come only from here.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; \
    img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
    frame-ancestors 'none'";
const INDEX: &str = r#"<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>gpuvitals API</title>
    <link rel="icon" href="data:,">
    <link rel="stylesheet" href="/docs/swagger-ui.css">
  </head>
  <body>
    <div id="swagger-ui"></div>
    <noscript>This page needs JavaScript. The document itself is at /openapi.yaml.</noscript>
    <script src="/docs/swagger-ui-bundle.js"></script>
    <script src="/docs/start.js"></script>
  </body>
</html>
"#;
const START: &str = r##"SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  tryItOutEnabled: true,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
});
"##;

static INDEX_PAGE: LazyLock<Asset> = LazyLock::new(|| Asset::plain("index.html", INDEX.as_bytes()));
static FILES: LazyLock<[(&str, Asset); 3]> = LazyLock::new(|| {
    let css: &[u8] = include_bytes!("../../vendor/swagger-ui/swagger-ui.css.gz");
    let bundle: &[u8] = include_bytes!("../../vendor/swagger-ui/swagger-ui-bundle.js.gz");
    [
        ("swagger-ui.css", Asset::gzipped("swagger-ui.css", css)),
        ("swagger-ui-bundle.js", Asset::gzipped("swagger-ui-bundle.js", bundle)),
        ("start.js", Asset::plain("start.js", START.as_bytes())),
    ]
});
static JSON: LazyLock<Asset> =
    LazyLock::new(|| Asset::plain("openapi.json", document::json().unwrap_or_default().as_bytes()));
static YAML: LazyLock<Asset> =
    LazyLock::new(|| Asset::plain("openapi.yaml", document::yaml().unwrap_or_default().as_bytes()));

pub(crate) async fn index(headers: HeaderMap) -> Answered {
    let mut response = INDEX_PAGE.respond(&headers, Keep::Revalidate)?;
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    Ok(response)
}

pub(crate) async fn file(Named(name): Named, uri: Uri, headers: HeaderMap) -> Answered {
    let found = FILES.iter().find(|(known, _)| *known == name);
    let (_, asset) = found.ok_or_else(|| ApiError::not_found(uri.path()))?;
    asset.respond(&headers, Keep::Revalidate)
}

pub(crate) async fn json(headers: HeaderMap) -> Result<Response, ApiError> {
    JSON.respond(&headers, Keep::Revalidate)
}

pub(crate) async fn yaml(headers: HeaderMap) -> Result<Response, ApiError> {
    YAML.respond(&headers, Keep::Revalidate)
}
