//! `gpuvitals store` on a backup as the documentation makes it, and on what is no store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;
use gpuvitals_rig::waiting::outcome;
use serde_json::{Value, json};

use crate::import::import;
use crate::restore::{fleet, run, store};

/// The command of `docs/store.md` that copies an open store, in a folder with `data`.
fn back_up(folder: &Path) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/store.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let command = docs.lines().find(|line| line.starts_with("mkdir backup && cp")).unwrap();
    let copied = Command::new("sh").args(["-e", "-c", command]).current_dir(folder).finished().unwrap();
    assert!(copied.status.success(), "{copied:?}");
}

/// What is in a folder and in those in it; folders have no bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        }
        found.insert(path.clone(), std::fs::read(&path).ok());
    }
    found
}

#[test]
fn a_backup_of_an_open_store_is_read_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup"));
    store(&data, &fleet(folder.path(), 60, "2026-01-01T00:00:00Z")).terminate();
    // The rows of the second run are in the log alone.
    let server = store(&data, &fleet(folder.path(), 30, "2026-01-01T00:01:00Z"));
    back_up(folder.path());
    server.kill();
    std::fs::remove_dir_all(&data).unwrap();
    let before = files(&backup);

    let stats: Value = serde_json::from_slice(&run(&["store", "stats", "--json"], &backup).stdout).unwrap();
    assert_eq!((&stats["manifest"], &stats["tables"][0]["rows"]), (&Value::Null, &json!(480)), "{stats}");
    assert!(stats["log_bytes"].as_u64() > Some(0), "{stats}");
    let checked = run(&["store", "check", "--json"], &backup);
    let found: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(0), "{checked:?}");
    assert_eq!((&found["faults"], &found["whole"]["rows"]), (&json!([]), &json!(480)), "{found}");
    let exported = folder.path().join("all.csv");
    let output = run(&["store", "export", "-o", exported.to_str().unwrap()], &backup);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_to_string(&exported).unwrap().lines().count(), 1 + 720);
    let (code, said, report) = import(&[&backup], &folder.path().join("other"));
    assert_eq!((code, &report["rows"]), (Some(0), &json!(720)), "{said}");
    assert!(files(&backup) == before, "reading changed it");
}

/// Runs a command that must end by itself.
fn at_once(arguments: &[&str], data: &Path) -> (Option<i32>, String) {
    let child = gpuvitals!()
        .args(arguments)
        .arg("--data-dir")
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let Output { status, stderr, .. } = outcome(child);
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn the_root_of_the_file_system_and_a_named_pipe_are_refused_and_nobody_waits() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (pipe, rows, data) = (at("pipe"), at("rows.csv"), at("data"));
    assert!(Command::new("mkfifo").arg(&pipe).finished().unwrap().status.success());
    let output = at("out.csv");
    let export = ["store", "export", "-o", output.to_str().unwrap()];
    for path in [Path::new("/"), &pipe] {
        let name = path.display();
        for command in [&["store", "stats"][..], &["store", "check"], &["store", "repair"], &export] {
            let (code, said) = at_once(command, path);
            assert_eq!(code, Some(65), "{command:?} {name}: {said}");
            assert!(said.contains(&format!("{name} holds no store")), "{command:?}: {said}");
        }
        let (code, said) = at_once(&["store", "import", path.to_str().unwrap()], &data);
        assert_eq!(code, Some(65), "{said}");
        assert!(said.contains(&format!("these were not imported, or are not whole: {name}")), "{said}");
    }
    std::fs::write(&rows, "timestamp,uuid,power_w\n2026-01-01T00:00:00Z,a,100\n").unwrap();
    let (code, said) = at_once(&["store", "import", rows.to_str().unwrap()], &pipe);
    assert_eq!(code, Some(74), "{said}");
    assert!(said.contains(&format!("cannot open the data directory {}", pipe.display())), "{said}");
    assert!(!output.exists() && !data.exists());
}
