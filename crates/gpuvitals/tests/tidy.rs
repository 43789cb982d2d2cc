//! The house rules that a compiler does not check: who may know whom, how large a room may be, which licences
//! may come in.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Crate → the siblings it may know. Only the binary knows all.
const STAR: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("log", &[]),
    ("queue", &["core", "log"]),
    ("sources", &["core", "log"]),
    ("store", &["core", "log"]),
    ("api", &["core", "store"]),
    ("gpuvitals", &["core", "log", "queue", "sources", "store", "api"]),
];

/// Licences compatible with Apache-2.0 that have come in so far.
const LICENCES: &[&str] = &[
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
    "0BSD",
    "BSL-1.0",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn sources(extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("crates"), root().join("dashboard")];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir()
                && !["node_modules", "dist", "target", "vendor", "test-results"].contains(&name.as_str())
            {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty());
    found
}

#[test]
fn dependencies_form_a_star_around_core() {
    for entry in std::fs::read_dir(root().join("crates")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let manifest = std::fs::read_to_string(entry.path().join("Cargo.toml")).unwrap();
        let allowed = STAR
            .iter()
            .find(|(krate, _)| *krate == name)
            .unwrap_or_else(|| {
                panic!("crate {name} has no place in the star; give it one here and in ARCHITECTURE.md")
            })
            .1;
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap();
        for line in dependencies.lines() {
            if let Some(sibling) =
                line.strip_prefix("gpuvitals-").and_then(|rest| rest.split(['.', ' ', '=']).next())
            {
                assert!(allowed.contains(&sibling), "crate {name} may not know {sibling}");
            }
            assert!(
                !line.contains("version =") || !line.contains('{'),
                "{name}: versions stand in the workspace manifest alone: {line}"
            );
        }
    }
}

#[test]
fn files_fit_on_a_few_screens() {
    for extension in ["rs", "ts", "tsx"] {
        for path in sources(extension) {
            if path.ends_with("src/api/schema.d.ts") {
                continue;
            }
            let lines = std::fs::read_to_string(&path).unwrap().lines().count();
            assert!(
                lines <= FILE_LINES_MAX,
                "{} has {lines} lines; are there two rooms in it?",
                path.display()
            );
        }
    }
}

#[test]
fn functions_fit_on_one_screen() {
    for path in sources("rs") {
        if path.components().any(|part| part.as_os_str() == "catalogue") {
            continue; // tables
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let word = line.trim_start();
            let is_function =
                ["fn ", "pub fn ", "pub(crate) fn ", "pub(super) fn ", "async fn ", "pub async fn "]
                    .iter()
                    .any(|prefix| word.starts_with(prefix));
            if !is_function {
                continue;
            }
            let close = format!("{}}}", " ".repeat(indent));
            let length = lines.iter().skip(start).position(|l| *l == close).unwrap_or(0) + 1;
            assert!(
                length <= FUNCTION_LINES_MAX,
                "{}:{}: function of {length} lines",
                path.display(),
                start + 1
            );
        }
    }
}

#[test]
fn no_room_is_named_for_what_it_lacks_a_name_for() {
    for path in sources("rs") {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(
            !["util", "utils", "common", "helpers", "helper", "misc", "manager", "types"]
                .contains(&stem.as_str()),
            "{}: name it for what it holds",
            path.display()
        );
    }
}

#[test]
fn licences_of_dependencies_are_compatible() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut offenders = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let licence = package["license"].as_str().unwrap_or("").replace('/', " OR ");
        // A choice is fine if one side is; a sum only if every part is.
        let fine = licence.split(" OR ").any(|choice| {
            choice.split(" AND ").all(|part| LICENCES.contains(&part.trim_matches(|c| "() ".contains(c))))
        });
        if !fine {
            offenders.insert(package["name"].to_string(), licence);
        }
    }
    assert!(offenders.is_empty(), "licences to look at: {offenders:#?}");
}
