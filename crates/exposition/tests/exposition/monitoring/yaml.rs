//! As much YAML as rule files need.

use std::fmt::Write;

/// A line `key: "text"`, indented.
pub(crate) fn text(out: &mut String, indent: usize, key: &str, text: &str) {
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    writeln!(out, "{:indent$}{key}: \"{quoted}\"", "").unwrap();
}

/// A line `key: word`.
pub(crate) fn word(out: &mut String, indent: usize, key: &str, word: &str) {
    writeln!(out, "{:indent$}{key}: {word}", "").unwrap();
}
