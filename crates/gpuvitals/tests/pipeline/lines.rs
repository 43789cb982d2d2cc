//! `up` with JSON lines as its only sink.

use std::path::Path;

use serde_json::Value;

use crate::server::Server;

fn lines(data: &Path, gpu: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(data.join(format!("{gpu}.jsonl"))).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn json_lines_alone_show_the_fleet_and_its_newest_rows_and_refuse_ranges_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let fleet = ["--source", "simulated", "--gpus", "2", "--hosts", "2"];
    let server = Server::start(&data, &[&fleet[..], &["--sinks", "jsonl"]].concat());
    server.until("/api/v1/telemetry", "several rows", |rows| rows["total"].as_u64() >= Some(4));
    server.stream("/api/v1/stream", |rows| rows[0]["simulated"] == true);
    let gpus = server.get("/api/v1/gpus?include=metrics");
    assert_eq!((gpus["total"].as_u64(), &gpus["gpus"][0]["state"]), (Some(2), &Value::from("active")));
    let gpu = gpus["gpus"][0]["id"].as_str().unwrap();
    let rows = server.get(&format!("/api/v1/gpus/{gpu}/telemetry?limit=2"));
    let time = |row: usize| rows["data"][row]["timestamp"].as_str().unwrap().to_owned();
    assert!(time(0) > time(1), "{rows}");
    assert!(server.get("/stats")["store"]["rows_in_memory"].as_u64() >= Some(4));
    assert_eq!(server.get("/health")["store"]["status"], "healthy");

    for range in ["/api/v1/query?metrics=power_w", "/api/v1/telemetry?start_time=2026-01-01T00:00:00Z"] {
        let (status, body) = server.raw(range);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, body["code"].as_str()), (404, Some("not_kept")), "{range}: {body}");
        assert!(body["message"].as_str().unwrap().contains("--sinks store,jsonl"), "{body}");
    }
    let newest = server.get(&format!("/api/v1/gpus/{gpu}/telemetry?limit=1"))["data"][0].clone();
    assert_eq!(server.terminate(), Some(0));
    let written = lines(&data, gpu);
    let line = written.iter().find(|line| line["timestamp"] == newest["timestamp"]).unwrap();
    assert_eq!((&line["gpu_id"], &line["metrics"]), (&newest["gpu_id"], &newest["metrics"]));
    assert!(written.iter().all(|line| line["simulated"] == true), "{line}");
    assert!(!data.join("wal").exists(), "there is no store");
}
