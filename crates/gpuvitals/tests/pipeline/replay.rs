//! Recorded rows in Parquet, replayed into another store.

use std::path::{Path, PathBuf};

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;
use serde_json::Value;

use crate::restore::{fleet, named, store};
use crate::server::Server;

/// The table files of one UTC hour of 2026-01-01.
fn files(data: &Path, hour: &str) -> Vec<PathBuf> {
    named(&data.join("raw/gpu_events/2026-01-01"), hour)
}

pub(crate) fn all_rows(server: &Server) -> Value {
    let answer = server.get("/api/v1/telemetry?limit=1000");
    assert_eq!(answer["total"].as_u64(), Some(answer["data"].as_array().unwrap().len() as u64));
    answer
}

/// Replays into a new store, and gives its rows.
fn replayed(folder: &Path, from: &Path) -> Value {
    let server = Server::start(folder, &["--replay", from.to_str().unwrap()]);
    let stats = server.until("/stats", "the end of the file", |stats| {
        let source = &stats["source"];
        source["ended"] == true && source["rows_stored"] == source["rows_published"]
    });
    assert_eq!(stats["source"]["bytes_read"], stats["source"]["bytes_total"], "{stats}");
    let rows = all_rows(&server);
    assert_eq!(server.terminate(), Some(0));
    rows
}

#[test]
fn a_file_of_the_store_and_a_directory_of_tables_give_the_rows_they_were_made_of() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = store(&data, &fleet(folder.path(), 90, "2026-01-01T00:59:30Z"));
    let before = all_rows(&server);
    assert_eq!(server.terminate(), Some(0));

    // By content, whatever its name is.
    let [hour] = files(&data, "01h").try_into().unwrap();
    let renamed = folder.path().join("rows.csv");
    std::fs::copy(&hour, &renamed).unwrap();
    let rows = replayed(&folder.path().join("hour"), &renamed);
    assert_eq!(rows["total"].as_u64(), Some(60 * 8));

    // A whole recording has a file a table; here the other hour is the table.
    let tables = folder.path().join("tables");
    std::fs::create_dir(&tables).unwrap();
    std::fs::copy(&files(&data, "00h")[0], tables.join("gpu_events.parquet")).unwrap();
    let rest = replayed(&folder.path().join("hour"), &tables);
    assert_eq!(rest, before);
}

#[test]
fn a_table_file_that_does_not_fit_is_refused_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.parquet");
    std::fs::write(&path, "PAR1 and no footer").unwrap();
    let refused = |path: &Path, words: &str| {
        for command in [&["up", "--port", "0"][..], &["stream"]] {
            let output = gpuvitals!().args(command).arg("--replay").arg(path).finished().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(65), "{said}");
            assert!(said.contains(&format!("cannot replay {}: {words}", path.display())), "{said}");
        }
    };
    refused(&path, "cannot be read as Parquet");
    refused(folder.path(), "the directory has no gpu_events.parquet");
}
