//! `gpuvitals store export` and `compact`.

use std::fs::File;
use std::path::Path;

use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};

use crate::import::{import, rows_of};
use crate::replay::all_rows;
use crate::restore::{fleet, run, store};

/// Runs an export. Returns the exit code, standard error and the report.
fn export(file: &Path, more: &[&str], data: &Path) -> (Option<i32>, String, Value) {
    let mut arguments = vec!["store", "export", "--json", "-o", file.to_str().unwrap()];
    arguments.extend(more);
    let output = run(&arguments, data);
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said, serde_json::from_slice(&output.stdout).unwrap_or_default())
}

#[test]
fn what_is_exported_beside_the_writer_is_imported_as_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let data = at("data");
    store(&data, &fleet(folder.path(), 60, "2026-01-01T00:59:30Z")).terminate();
    // Some rows are in files, some in the log only.
    let server = store(&data, &fleet(folder.path(), 30, "2026-01-01T01:00:30Z"));
    let before = all_rows(&server);
    for name in ["rows.parquet", "rows.csv"] {
        let file = at(name);
        let (code, said, report) = export(&file, &[], &data);
        assert_eq!((code, &report["rows"], &report["missing"]), (Some(0), &json!(720), &json!([])), "{said}");
        assert_eq!(report["bytes"], json!(std::fs::metadata(&file).unwrap().len()));
        let (code, said, report) = import(&[&file], &at("again"));
        assert_eq!((code, &report["rows"]), (Some(0), &json!(720)), "{said}");
        assert_eq!(rows_of(&at("again")), before, "{name}");
        std::fs::remove_dir_all(at("again")).unwrap();
    }
    assert_eq!(server.terminate(), Some(0));
    // Nothing was done to it.
    assert_eq!(rows_of(&data), before);
}

#[test]
fn an_export_has_the_rows_and_columns_that_were_asked_for_and_replaces_no_file_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (data, file) = (at("data"), at("rows.parquet"));
    store(&data, &fleet(folder.path(), 60, "2026-01-01T00:59:30Z")).terminate();
    let wanted = ["--start", "2026-01-01T00:59:50Z", "--end", "2026-01-01T01:00:09Z", "--metrics", "power_w"];
    let (code, said, report) = export(&file, &wanted, &data);
    assert_eq!((code, &report["rows"]), (Some(0), &json!(8 * 20)), "{said}");
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&file).unwrap()).unwrap();
    let schema = reader.schema();
    assert!(schema.column_with_name("power_w").is_some(), "{schema:?}");
    assert!(schema.column_with_name("temperature_c").is_none(), "{schema:?}");

    let (code, said, _) = export(&file, &[], &data);
    assert_eq!(code, Some(65), "{said}");
    assert!(said.contains("rows.parquet exists; --force replaces it"), "{said}");
    let first = &rows_of(&data)["data"][0];
    let uuid = first["uuid"].as_str().or(first["gpu_id"].as_str()).unwrap();
    let (code, said, report) = export(&file, &["--force", "--gpus", uuid], &data);
    assert_eq!((code, &report["rows"]), (Some(0), &json!(60)), "{said}");

    for (flags, code, words) in [
        (&["--gpus", "nobody"][..], 65, "the store has no GPU \"nobody\""),
        (&["--metrics", "fan_hz"], 65, "has a column \"fan_hz\""),
        (&["--start", "2027-01-01T00:00:00Z"], 65, "no row of gpu_events in that time"),
        (
            &["--start", "2026-01-02T00:00:00Z", "--end", "2026-01-01T00:00:00Z"],
            64,
            "--end is before --start",
        ),
    ] {
        let (found, said, _) = export(&at("none.csv"), flags, &data);
        assert_eq!(found, Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    }
    let (code, said, _) = export(&at("rows.txt"), &[], &data);
    assert_eq!(code, Some(64), "{said}");
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn a_compaction_merges_what_no_writer_would_merge_yet() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // Two hours of a day, and each in two files.
    store(&data, &fleet(folder.path(), 60, "2026-01-01T00:59:30Z")).terminate();
    let server = store(&data, &fleet(folder.path(), 60, "2026-01-01T00:59:45Z"));
    let before = all_rows(&server);
    let refused = run(&["store", "compact"], &data);
    assert_eq!(refused.status.code(), Some(69), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in use by another process"), "{refused:?}");
    assert_eq!(server.terminate(), Some(0));

    for was in [4, 1] {
        let output = run(&["store", "compact", "--json"], &data);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let files = |when: &str| &report[when]["rows"]["files"];
        assert_eq!((files("before"), files("now")), (&json!(was), &json!(1)), "{report}");
    }
    let stats = run(&["store", "stats"], &data);
    assert!(String::from_utf8_lossy(&stats.stdout).contains("a day"), "{stats:?}");
    assert_eq!(rows_of(&data), before);
    let nowhere = run(&["store", "compact"], &folder.path().join("nowhere"));
    assert_eq!(nowhere.status.code(), Some(74), "{nowhere:?}");
    assert!(!folder.path().join("nowhere").exists());
}

#[test]
fn a_compaction_says_how_many_rows_lost_a_value_to_a_later_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut told = 0;
    for watts in [[100, 101, 102], [100, 201, 202]] {
        let row = |(second, watts)| format!("2026-03-01T00:00:0{second}Z,a,{watts}\n");
        let rows: String = watts.into_iter().enumerate().map(row).collect();
        std::fs::write(at("rows.csv"), format!("timestamp,uuid,power_w\n{rows}")).unwrap();
        let (code, said, report) = import(&[&at("rows.csv")], &at("data"));
        assert_eq!(code, Some(0), "{said}");
        // A writer that is open may have merged the files.
        told += report["rows_overwritten"].as_u64().unwrap();
    }
    let output = run(&["store", "compact", "--json"], &at("data"));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told + report["rows_overwritten"].as_u64().unwrap(), 2, "{report}");
    let again = run(&["store", "compact"], &at("data"));
    assert!(!String::from_utf8_lossy(&again.stdout).contains("other values"), "{again:?}");
}
