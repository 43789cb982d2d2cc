//! A live fleet: new rows reach watchers, simulated rows say so, and the end is orderly.

use std::process::Command;

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;

use crate::server::Server;

#[test]
fn a_watcher_sees_new_rows_and_that_they_are_simulated() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(
        folder.path(),
        &["--source", "simulated", "--gpus", "12", "--hosts", "2", "--seed", "7"],
    );
    assert!(server.first_line.contains("simulating 12 GPUs on 2 hosts"), "{}", server.first_line);
    let mut seen = std::collections::BTreeSet::new();
    server.stream("/api/v1/stream", |samples| {
        for sample in samples.as_array().unwrap() {
            assert_eq!(sample["simulated"], true);
            seen.insert((sample["gpu_id"].to_string(), sample["timestamp"].to_string()));
        }
        seen.len() >= 24
    });
    let gpus = server.get("/api/v1/gpus?include=metrics");
    assert_eq!(gpus["total"], 12);
    assert!(gpus["gpus"].as_array().unwrap().iter().all(|gpu| gpu["simulated"] == true));
    assert_eq!(server.get("/stats")["source"]["simulated"], true);
    let catalogue = server.get("/api/v1/metrics");
    assert!(catalogue["metrics"].as_array().unwrap().iter().any(|metric| metric["column"] == "power_w"));

    let query = gpuvitals!().args(["query", "--url", &server.url, "gpus"]).finished().unwrap();
    let table = String::from_utf8(query.stdout).unwrap();
    assert!(
        table.contains("UTILIZATION %") && table.contains("(simulated)") && table.contains("12 GPUs"),
        "{table}"
    );
    // What jobs use of it is added up too, and is as simulated; until then it is known by rows.
    let is_added_up = |job: &serde_json::Value| job["gpus_by_rows"].is_null();
    let held =
        |list: &serde_json::Value| list["jobs"].as_array().is_some_and(|jobs| jobs.iter().any(is_added_up));
    let jobs = server.until("/api/v1/jobs", "the first sums, after ten seconds", held);
    assert!(jobs["jobs"].as_array().unwrap().iter().all(|job| job["simulated"] == true), "{jobs}");
    let health = gpuvitals!().args(["query", "--url", &server.url, "health"]).finished().unwrap();
    assert!(health.status.success(), "{}", String::from_utf8_lossy(&health.stdout));
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_second_server_on_the_same_directory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let second =
        gpuvitals!().args(["up", "--port", "0", "--data-dir"]).arg(folder.path()).finished().unwrap();
    assert_eq!(second.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&second.stderr).contains("in use"));
    assert_eq!(server.terminate(), Some(0));
}

#[test]
fn a_taken_port_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path(), &[]);
    let port = server.url.rsplit(':').next().unwrap().to_owned();
    let second = folder.path().join("second");
    let output = gpuvitals!().args(["up", "--port", &port, "--data-dir"]).arg(second).finished().unwrap();
    assert_eq!(output.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--port 0"));
}

#[test]
fn the_live_end_is_orderly_on_sigint_too() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start(folder.path(), &["--source", "simulated", "--gpus", "8", "--hosts", "1"]);
    server.until("/stats", "rows", |stats| stats["source"]["rows_stored"].as_u64() > Some(0));
    let sent = Command::new("kill").args(["-INT", &server.child.id().to_string()]).finished().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    assert_eq!(gpuvitals_rig::waiting::ended(&mut server.child).code(), Some(0));
    let server = Server::start(folder.path(), &[]);
    assert_eq!(server.get("/api/v1/gpus")["total"], 8);
}
