//! A data directory without its manifest, and one from a backup.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;
use gpuvitals_rig::waiting::ended;
use serde_json::Value;

use crate::server::Server;

const GPUS: u64 = 8;

/// Rows, all of which are stored.
pub(crate) fn fleet(folder: &Path, seconds: u64, start: &str) -> PathBuf {
    let path = folder.join("fleet.csv");
    let mut simulated = gpuvitals!()
        .args(["simulate", "--gpus", "8", "--hosts", "2", "--start", start])
        .args(["--duration", &format!("{seconds}s")])
        .stdout(Stdio::from(std::fs::File::create(&path).unwrap()))
        .spawn()
        .unwrap();
    assert!(ended(&mut simulated).success());
    path
}

/// Has `up` store rows of a file, and waits until they are acknowledged.
pub(crate) fn store(data: &Path, csv: &Path) -> Server {
    let server = Server::start(data, &["--csv", csv.to_str().unwrap()]);
    server.until("/stats", "the end of the file", |stats| {
        let source = &stats["source"];
        source["ended"] == true && source["rows_stored"] == source["rows_published"]
    });
    server
}

fn rows(server: &Server) -> u64 {
    server.get("/api/v1/telemetry?limit=1")["total"].as_u64().unwrap()
}

pub(crate) fn run(arguments: &[&str], data: &Path) -> Output {
    gpuvitals!().args(arguments).arg("--data-dir").arg(data).finished().unwrap()
}

pub(crate) fn named(folder: &Path, start: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with(start));
    files
}

#[test]
fn without_its_manifest_nothing_is_opened_until_a_repair_and_then_all_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = store(&data, &fleet(folder.path(), 120, "2026-01-01T00:59:00Z"));
    let busy = run(&["store", "repair"], &data);
    assert_eq!(busy.status.code(), Some(69), "{busy:?}");
    assert!(String::from_utf8_lossy(&busy.stderr).contains("in use by another process"), "{busy:?}");
    let before = rows(&server);
    assert_eq!(before, GPUS * 120);
    assert_eq!(server.terminate(), Some(0));

    let manifests = named(&data, "MANIFEST-");
    assert_eq!(manifests.len(), 1, "{manifests:?}");
    std::fs::remove_file(&manifests[0]).unwrap();
    let tables = || {
        let mut tables = named(&data.join("raw/gpu_events/2026-01-01"), "");
        tables.sort();
        tables
    };
    let kept = tables();
    for arguments in [&["up", "--port", "0"][..], &["collect", "--api-port", "0"]] {
        let refused = run(arguments, &data);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(74), "{text}");
        for words in ["table files (2) but no manifest that verifies", "gpuvitals store repair --data-dir"] {
            assert!(text.contains(words), "{words} in {text}");
        }
        assert_eq!(tables(), kept);
    }

    let repaired = run(&["store", "repair", "--json"], &data);
    assert!(repaired.status.success(), "{repaired:?}");
    let outcome: Value = serde_json::from_slice(&repaired.stdout).unwrap();
    assert_eq!((outcome["files"].as_u64(), outcome["rows"].as_u64()), (Some(2), Some(before)));
    assert_eq!(outcome["set_aside"], serde_json::json!([]));
    let server = Server::start(&data, &[]);
    assert_eq!(rows(&server), before);
    assert_eq!(server.get("/health")["store"]["status"], "healthy");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn stats_and_check_look_at_a_store_that_is_open_and_find_a_damaged_file() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    assert_eq!(run(&["store", "stats"], folder.path()).status.code(), Some(65), "there is no store");
    store(&data, &fleet(folder.path(), 60, "2026-01-01T00:00:00Z")).terminate();
    let server = store(&data, &fleet(folder.path(), 30, "2026-01-01T00:01:00Z"));
    let stats = run(&["store", "stats", "--json"], &data);
    let stats: Value = serde_json::from_slice(&stats.stdout).unwrap();
    let table = &stats["tables"][0];
    assert_eq!((&table["table"], &table["level"]), (&Value::from("gpu_events"), &Value::from(0)), "{stats}");
    assert_eq!((table["files"].as_u64(), table["rows"].as_u64()), (Some(1), Some(GPUS * 60)));
    assert!(stats["log_bytes"].as_u64() > Some(0), "the rows of the second run: {stats}");
    let text = String::from_utf8(run(&["store", "stats"], &data).stdout).unwrap();
    assert!(text.contains("2026-01-01T00:00:59Z      1   480"), "{text}");

    let whole = run(&["store", "check"], &data);
    let text = String::from_utf8_lossy(&whole.stdout);
    assert!(whole.status.success() && text.contains("whole: 1 file with 480 rows"), "{whole:?}");
    assert_eq!(server.terminate(), Some(0));
    let files = named(&data.join("raw/gpu_events/2026-01-01"), "");
    let mut bytes = std::fs::read(&files[0]).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&files[0], bytes).unwrap();
    let damaged = run(&["store", "check", "--json"], &data);
    assert_eq!(damaged.status.code(), Some(65), "{damaged:?}");
    let found: Value = serde_json::from_slice(&damaged.stdout).unwrap();
    assert_eq!(
        (&found["faults"][0]["reason"], &found["whole"]["files"]),
        (&Value::from("checksum of a block"), &Value::from(1))
    );
    assert_eq!(found["faults"][0]["path"].as_str(), files[0].to_str());
}

/// Copies as in `docs/store.md`.
fn cp(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).finished().unwrap();
    assert!(copied.status.success(), "{copied:?}");
}

#[test]
fn a_store_comes_back_from_a_copy_made_while_it_runs_or_when_it_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (data, live, stopped) =
        (folder.path().join("data"), folder.path().join("live"), folder.path().join("stopped"));
    store(&data, &fleet(folder.path(), 60, "2026-01-01T00:00:00Z")).terminate();
    // The rows of the second run are in the log alone.
    let server = store(&data, &fleet(folder.path(), 30, "2026-01-01T00:01:00Z"));
    std::fs::create_dir(&live).unwrap();
    cp(&data.join("wal"), &live.join("wal"));
    cp(&data.join("raw"), &live.join("raw"));
    assert_eq!(rows(&server), GPUS * 90);
    assert_eq!(server.terminate(), Some(0));
    cp(&data, &stopped);
    std::fs::remove_dir_all(&data).unwrap();

    cp(&stopped, &data);
    let server = Server::start(&data, &[]);
    assert_eq!(rows(&server), GPUS * 90);
    assert_eq!(server.get("/health")["store"]["status"], "healthy");
    assert_eq!(server.terminate(), Some(0));

    let repaired = run(&["store", "repair"], &live);
    let text = String::from_utf8_lossy(&repaired.stdout);
    assert!(repaired.status.success() && text.contains("lists 1 file with 480 rows"), "{text}");
    let server = Server::start(&live, &[]);
    assert_eq!(rows(&server), GPUS * 90);
    assert_eq!(server.get("/health")["store"]["status"], "healthy");
    assert_eq!(server.terminate(), Some(0));
}
