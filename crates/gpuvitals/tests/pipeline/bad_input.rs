//! Bad input is refused or skipped, counted, and the program stays up.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;

use crate::server::Server;

fn refused(content: &[u8], words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.csv");
    std::fs::write(&file, content).unwrap();
    let output = gpuvitals!()
        .args(["up", "--port", "0", "--data-dir"])
        .arg(folder.path().join("data"))
        .arg("--csv")
        .arg(&file)
        .finished()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(65), "{message}");
    assert!(message.contains("bad.csv"), "{message}");
    assert!(words.iter().all(|word| message.to_lowercase().contains(word)), "{words:?} in: {message}");
}

#[test]
fn a_file_that_is_no_capture_is_refused_with_its_reason() {
    refused(b"", &["empty"]);
    refused(b"1752871354,gpu_0,55\n1752871355,gpu_0,56\n", &["header"]);
    refused(&[0x7f, b'E', b'L', b'F', 0, 0, 1, 2, 0, 0, b'\n'], &["csv"]);
    refused(b"colour,shape\nred,round\n", &["gpu"]);
}

#[test]
fn that_a_named_pipe_is_waited_for_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).finished().unwrap().status.success());
    let (to, rows) = (pipe.clone(), "timestamp,uuid,power_w\n2026-01-01T00:00:00Z,a,100\n");
    // It waits for the reader.
    let writer = std::thread::spawn(move || std::fs::write(to, rows));
    let server = Server::start(&folder.path().join("data"), &["--csv", pipe.to_str().unwrap()]);
    assert!(server.first_line.contains("this is a named pipe"), "{}", server.first_line);
    writer.join().unwrap().unwrap();
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_missing_file_says_which() {
    let output = gpuvitals!().args(["up", "--port", "0", "--csv", "/no/such.csv"]).finished().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such.csv"));
    assert_eq!(output.status.code(), Some(74));
}

#[test]
fn bad_rows_are_skipped_and_counted_and_the_rest_arrives() {
    let mut file = String::from("timestamp,gpu_id,temperature,memory_used,power_draw\n");
    file.push_str("2026-01-01T00:00:00Z,gpu_0,50,1000,300.5\n");
    file.push_str("2026-01-01T00:00:01Z,gpu_0,51\n"); // too few fields
    file.push_str("2026-01-01T00:00:02Z,gpu_0,NaN,1000,301\n"); // it is absent, the row stays
    file.push_str("2126-01-01T00:00:00Z,gpu_0,50,1000,300\n"); // the future
    file.push_str("2026-01-01T00:00:03Z,gpu_0,52,-7,302\n"); // negative memory: the value goes
    file.push_str("2026-01-01T00:00:04Z,../../x,50,1000,300\n"); // hostile
    file.push_str("2026-01-01T00:00:05Z,gpu_0,");
    file.push_str(&"9".repeat(10_000_000));
    file.push_str(",1000,300\n");
    file.push_str("2026-01-01T00:00:06Z,gpu_0,53,1000,303\n");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mixed.csv");
    std::fs::write(&path, file).unwrap();

    let server = Server::start(&folder.path().join("data"), &["--csv", path.to_str().unwrap()]);
    let stats = server.until("/stats", "the end of the file", |stats| {
        stats["source"]["ended"] == true && stats["source"]["rows_stored"] == 4
    });
    assert_eq!(stats["source"]["rows_skipped"], 4);
    assert_eq!(stats["source"]["values_invalid"], 1);
    let rows = server.get("/api/v1/gpus/gpu_0/telemetry?limit=100&reverse=true");
    assert_eq!(rows["total"], 4);
    assert_eq!(rows["data"][1]["metrics"].get("temperature_c"), None, "NaN is absent, not 0");
    assert_eq!(rows["data"][2]["metrics"].get("memory_used_mb"), None, "negative memory is absent, not 0");
    assert_eq!(rows["data"][2]["metrics"]["power_w"], 302.0);
    assert_eq!(server.get("/api/v1/gpus")["total"], 1);
    assert_eq!(server.get("/health")["status"], "healthy");
    assert!(!Path::new("/x").exists());
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_file_whose_rows_are_all_skipped_is_no_health() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("future.csv");
    std::fs::write(&path, "timestamp,gpu_id,temperature\n2126-01-01T00:00:00Z,gpu_0,50\n").unwrap();
    let server = Server::start(&folder.path().join("data"), &["--csv", path.to_str().unwrap()]);
    let health = server.until("/health", "degraded", |health| health["collector"]["status"] == "degraded");
    let reason = health["collector"]["reason"].as_str().unwrap();
    assert!(reason.contains("all rows of the file were skipped") && reason.contains("line 2"), "{reason}");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn several_files_of_one_machine_are_one_replay() {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/logs/mi300x");
    let folder = tempfile::tempdir().unwrap();
    let files =
        ["gpu_power", "gpu_temp", "gpu_usage", "cpu", "memory"].map(|name| logs.join(format!("{name}.csv")));
    let mut arguments = vec!["--csv"];
    arguments.extend(files.iter().map(|path| path.to_str().unwrap()));
    let server = Server::start(&folder.path().join("data"), &arguments);
    server.until("/stats", "the end of the files", |stats| {
        stats["source"]["ended"] == true && stats["source"]["rows_stored"].as_u64() >= Some(48)
    });
    let gpus = server.get("/api/v1/gpus");
    assert_eq!(gpus["total"], 8, "{gpus}");
    let rows = server
        .get("/api/v1/gpus/card0@mi300x/telemetry?start_time=2025-01-01T00:00:00Z&limit=1&reverse=true");
    let metrics = &rows["data"][0]["metrics"];
    assert_eq!((&metrics["power_w"], &metrics["temperature_c"]), (&152.0.into(), &51.0.into()), "{rows}");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_file_that_breaks_off_leaves_the_program_up_with_what_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("rows.csv");
    let mut rows = String::from("timestamp,gpu_id,temperature\n");
    for n in 0..2000 {
        writeln!(rows, "{},gpu_0,{}", 1_767_225_600 + n, n % 90).unwrap();
    }
    std::fs::write(&plain, rows).unwrap();
    let packed = Command::new("gzip").arg("-k").arg(&plain).finished().unwrap();
    assert!(packed.status.success(), "{packed:?}");
    let cut = folder.path().join("cut.csv.gz");
    let whole = std::fs::read(folder.path().join("rows.csv.gz")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();

    let server = Server::start(&folder.path().join("data"), &["--csv", cut.to_str().unwrap()]);
    let health = server.until("/health", "degraded", |health| health["collector"]["status"] == "degraded");
    let reason = health["collector"]["reason"].as_str().unwrap();
    assert!(reason.contains("broke off") && reason.contains("cut.csv.gz"), "{reason}");
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn wrong_command_lines_and_settings_end_with_their_codes() {
    let code = |arguments: &[&str]| gpuvitals!().args(arguments).finished().unwrap().status.code();
    assert_eq!(code(&["frobnicate"]), Some(64));
    assert_eq!(code(&["up", "--port", "seven"]), Some(64));
    assert_eq!(code(&["--config", "/no/such.yaml", "config", "check"]), Some(78));
    assert_eq!(code(&["up", "--source", "replay"]), Some(64));
    assert_eq!(code(&["query", "--url", "http://127.0.0.1:1", "gpus"]), Some(69));
    assert_eq!(code(&["config", "check"]), Some(0));
}
