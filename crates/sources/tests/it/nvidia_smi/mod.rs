//! NVIDIA by the nvidia-smi command: every captured output, and the probe on a tool that replays them.

mod captures;
mod fields;
mod pmon;
mod probe;
mod tool;

use std::path::{Path, PathBuf};

/// The 13 columns of captures without a header.
const COLUMNS: [&str; 13] = [
    "index",
    "uuid",
    "name",
    "temperature.gpu",
    "utilization.gpu",
    "utilization.memory",
    "memory.total",
    "memory.used",
    "memory.free",
    "power.draw",
    "power.limit",
    "pcie.link.gen.current",
    "pcie.link.width.current",
];

fn fixtures(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/nvidia").join(folder)
}

/// The files of a folder with this suffix, with their texts, sorted.
fn files(folder: &str, ends: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = std::fs::read_dir(fixtures(folder))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.path()))
        .filter(|(name, _)| name.ends_with(ends))
        .map(|(name, path)| (name, std::fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{folder} has no {ends}");
    files
}

/// Compares with the golden file beside a capture, or rewrites it.
fn is_as_expected(folder: &str, name: &str, got: &str) {
    let path = fixtures(folder).join(format!("{name}.expected"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, got).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, expected, "{}; UPDATE=1 writes it anew", path.display());
}
