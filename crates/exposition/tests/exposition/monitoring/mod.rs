//! What watches the figures: alert rules, recording rules and dashboards, made from the catalogue and the table of conditions.
//! `UPDATE=1` writes them.

mod alerts;
mod checks;
mod day;
mod recording;
mod yaml;

use std::path::{Path, PathBuf};

/// How the files are written again.
const COMMAND: &str = "UPDATE=1 cargo test -p gpuvitals-exposition --test exposition";

/// The root of the project.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a file with what it should be, or writes it.
fn is_current(name: &str, wanted: &str) {
    let path = root().join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "{name} is stale: run `{COMMAND}`");
}
