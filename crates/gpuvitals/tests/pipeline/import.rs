//! `gpuvitals store import`: rows of files and of other stores.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::replay::all_rows;
use crate::restore::{fleet, run, store};
use crate::server::Server;

/// Runs an import. Returns the exit code, standard error and the report.
pub(crate) fn import(paths: &[&Path], data: &Path) -> (Option<i32>, String, Value) {
    let mut arguments = vec!["store", "import", "--json"];
    arguments.extend(paths.iter().map(|path| path.to_str().unwrap()));
    let output = run(&arguments, data);
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said, serde_json::from_slice(&output.stdout).unwrap_or_default())
}

/// The rows of a store that is stopped.
pub(crate) fn rows_of(data: &Path) -> Value {
    let server = Server::start(data, &["--source", "none"]);
    let rows = all_rows(&server);
    assert_eq!(server.terminate(), Some(0));
    rows
}

#[test]
fn an_import_gives_the_rows_of_a_replay_and_a_second_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (data, imported) = (folder.path().join("data"), folder.path().join("imported"));
    let csv = fleet(folder.path(), 90, "2026-01-01T00:59:30Z");
    let server = store(&data, &csv);
    let before = all_rows(&server);
    let (code, said, _) = import(&[&csv], &data);
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("in use by another process"), "{said}");
    assert_eq!(server.terminate(), Some(0));

    for _ in 0..2 {
        let (code, said, report) = import(&[&csv], &imported);
        assert_eq!((code, &report["rows"]), (Some(0), &json!(720)), "{said}");
        assert_eq!(rows_of(&imported), before);
    }
}

#[test]
fn a_bad_path_does_not_stop_the_others_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let rows =
        "timestamp,uuid,power_w\n2026-01-01T00:00:00Z,a,100\nyesterday,a,101\n2026-01-01T00:00:02Z,a,1e9\n";
    std::fs::write(at("rows.csv"), rows).unwrap();
    std::fs::write(at("empty.csv"), "").unwrap();
    std::fs::write(at("last.csv"), "timestamp,uuid,power_w\n2026-01-01T00:00:03Z,a,103\n").unwrap();
    let paths = ["rows.csv", "empty.csv", "nowhere", "last.csv", "data"].map(at);
    let (code, said, report) = import(&paths.each_ref().map(AsRef::as_ref), &at("data"));
    assert_eq!(code, Some(65), "{said}");
    let names = [&paths[1], &paths[2], &paths[4]].map(|path| path.display().to_string()).join(", ");
    assert!(
        said.contains(&format!("gpuvitals: these were not imported, or are not whole: {names}")),
        "{said}"
    );
    assert!(said.contains("rows.csv: line 3: column timestamp"), "{said}");
    let files = report["files"].as_array().unwrap();
    let counts = json!({ "no_value": 1, "time": 1 });
    assert_eq!(
        (&files[0]["rows"], &files[0]["rows_skipped"], &files[0]["values_invalid"]),
        (&json!(1), &counts, &json!(1))
    );
    let errors: Vec<_> = files.iter().map(|file| file["error"].is_string()).collect();
    assert_eq!(errors, [false, true, true, false, true], "{report}");
    assert_eq!((&report["rows"], &report["rows_skipped"]), (&json!(2), &json!(2)));
    assert_eq!(rows_of(&at("data"))["total"], 2);
    // Without any row no store is made.
    let (code, said, report) = import(&[&at("empty.csv"), &at("nowhere")], &at("none"));
    assert_eq!((code, &report["rows"]), (Some(65), &json!(0)), "{said}");
    assert!(!at("none").exists());
}

#[test]
fn old_rows_stay_and_those_that_overwrite_others_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let rows = |year: u16, watts: [u16; 3]| {
        let row = |(second, watts)| format!("{year}-03-01T00:00:0{second}Z,a,{watts}\n");
        let rows: String = watts.into_iter().enumerate().map(row).collect();
        format!("timestamp,uuid,power_w\n{rows}")
    };
    std::fs::write(at("old.csv"), rows(2023, [100, 101, 102])).unwrap();
    std::fs::write(at("new.csv"), rows(2025, [200, 201, 202])).unwrap();
    // Another GPU under the same name: two of its three rows differ.
    std::fs::write(at("other.csv"), rows(2025, [200, 301, 302])).unwrap();
    let paths = ["old.csv", "new.csv", "other.csv"].map(at);
    let (code, said, report) = import(&paths.each_ref().map(AsRef::as_ref), &at("data"));
    assert_eq!(code, Some(0), "{said}");
    let beyond: Vec<_> =
        report["files"].as_array().unwrap().iter().map(|file| &file["rows_beyond_keep"]).collect();
    assert_eq!(beyond, [&json!(3), &json!(0), &json!(0)], "{report}");
    assert_eq!((&report["rows_beyond_keep"], &report["rows_overwritten"]), (&json!(3), &json!(2)));
    let exported = at("all.csv");
    let output = run(&["store", "export", "-o", exported.to_str().unwrap()], &at("data"));
    assert!(output.status.success(), "{output:?}");
    let lines = std::fs::read_to_string(exported).unwrap();
    assert_eq!(lines.lines().count(), 1 + 6, "{lines}");
}

#[test]
fn a_store_is_imported_with_what_only_its_log_has_whether_it_runs_or_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let data = at("data");
    store(&data, &fleet(folder.path(), 60, "2026-01-01T00:00:00Z")).terminate();
    let server = store(&data, &fleet(folder.path(), 30, "2026-01-01T00:01:00Z"));
    let before = all_rows(&server);
    assert_eq!(before["total"], 720);
    let whole = (Some(0), &json!(720));
    let (code, said, report) = import(&[&data], &at("beside"));
    assert_eq!((code, &report["rows"]), whole, "{said}");
    server.kill();
    let (code, said, report) = import(&[&data], &at("killed"));
    assert_eq!((code, &report["rows"]), whole, "{said}");
    for copy in ["beside", "killed"] {
        assert_eq!(rows_of(&at(copy)), before, "{copy}");
    }
    // Nothing was done to it.
    assert_eq!(rows_of(&data), before);
}

#[test]
fn files_with_too_many_new_columns_keep_their_rows_and_the_import_says_what_was_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    // Seven times a hundred names; a store takes 512 at a time.
    let paths: Vec<PathBuf> = (0..7)
        .map(|file| {
            let names: Vec<String> = (0..100).map(|name| format!("n{file}q{name}x")).collect();
            let names = names.join(",");
            let row = |second| format!("2026-01-01T00:00:0{second}Z,GPU-{file},100{}\n", ",7".repeat(100));
            let rows = [0, 1, 2].map(row).concat();
            let path = at(&format!("odd-{file}.csv"));
            std::fs::write(&path, format!("timestamp,uuid,power_w,{names}\n{rows}")).unwrap();
            path
        })
        .collect();
    let paths: Vec<&Path> = paths.iter().map(AsRef::as_ref).collect();
    let (code, said, report) = import(&paths, &at("data"));
    assert_eq!((code, &report["rows"], &report["rows_skipped"]), (Some(0), &json!(21), &json!(0)), "{said}");
    let left_out: Vec<_> =
        report["files"].as_array().unwrap().iter().map(|file| &file["values_left_out"]).collect();
    // 88 of the names of the sixth, and all of the seventh, in three rows each.
    let expected = [0, 0, 0, 0, 0, 264, 300].map(|values| json!(values));
    assert_eq!(left_out, expected.each_ref(), "{report}");
    assert_eq!(rows_of(&at("data"))["total"], 21);

    let arguments: Vec<&str> =
        ["store", "import"].into_iter().chain(paths.iter().map(|path| path.to_str().unwrap())).collect();
    let told = run(&arguments, &at("told"));
    let text = String::from_utf8(told.stdout).unwrap();
    for line in [
        "odd-4.csv: 3 rows\n",
        "3 rows, 264 values left out, because the names of their columns are too many",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn host_gpu_column_and_zone_are_as_the_user_says() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let (file, exported) = (at("log.csv"), at("all.csv"));
    std::fs::write(&file, "timestamp,Board Power\n2026-01-03 15:36:53,100123\n").unwrap();
    let (file, to) = (file.to_str().unwrap(), exported.to_str().unwrap());
    for (host, zone) in [("rack7", "Asia/Tokyo"), ("rack8", "UTC")] {
        let said =
            ["--host", host, "--gpu", "left", "--timezone", zone, "--column", "Board Power=power_w:mW"];
        let output = run(&[&["store", "import", file][..], &said].concat(), &at("data"));
        assert!(output.status.success(), "{output:?}");
    }
    assert!(run(&["store", "export", "-o", to], &at("data")).status.success());
    let wanted = "timestamp,node,uuid,source,power_w\n\
                  2026-01-03T06:36:53Z,rack7,left@rack7,csv,100.123\n\
                  2026-01-03T15:36:53Z,rack8,left@rack8,csv,100.123\n";
    assert_eq!(std::fs::read_to_string(exported).unwrap(), wanted);
}

#[test]
fn files_of_one_name_in_two_folders_are_of_the_hosts_that_the_folders_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let files = [("rack1", 100), ("rack2", 200)].map(|(host, watts)| {
        std::fs::create_dir(at(host)).unwrap();
        let file = at(host).join("log.csv");
        std::fs::write(&file, format!("timestamp,gpu,power_w\n2026-01-03T15:36:53Z,0,{watts}\n")).unwrap();
        file
    });
    let (code, said, report) = import(&files.each_ref().map(AsRef::as_ref), &at("data"));
    assert_eq!((code, &report["rows_overwritten"]), (Some(0), &json!(0)), "{said}");
    let exported = at("all.csv");
    let output = run(&["store", "export", "-o", exported.to_str().unwrap()], &at("data"));
    assert!(output.status.success(), "{output:?}");
    let rows = std::fs::read_to_string(exported).unwrap();
    let has = |row: &str| rows.lines().any(|line| line.ends_with(row));
    assert!(has(",0,rack1,rack1:gpu0,csv,100") && has(",0,rack2,rack2:gpu0,csv,200"), "{rows}");
}
