//! A collector whose only sink is JSON lines.

use std::path::Path;

use gpuvitals_rig::port::Port;
use serde_json::Value;

use crate::process::{Keys, get, recording, start, until};

const GROUP: &str = "/stats/gpu-telemetry";

/// GPU and time of every line, each of which is the only one of its row.
fn lines(folder: &Path) -> Keys {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut keys = Keys::new();
    for file in files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")) {
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let time_ns = gpuvitals_core::time::parse(line["timestamp"].as_str().unwrap()).unwrap();
            assert!(line["metrics"]["power_w"].is_f64(), "{line}");
            let key = (line["gpu_id"].as_str().unwrap().to_owned(), time_ns);
            assert!(keys.insert(key), "{line} is a row's second line in {}", file.display());
        }
    }
    keys
}

#[test]
fn json_lines_alone_lose_and_double_nothing_although_the_collector_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("lines");
    let (file, keys) = recording(folder.path(), 8_000);
    let (port, api) = (Port::new(), Port::new());
    let broker = start(&["broker", "--port", &port]);
    broker.says("queue: http");
    let collector = || {
        let to = ["--data-dir", data.to_str().unwrap(), "--sinks", "jsonl"];
        let process = start(&[&["collect", "--api-port", &api, "--broker-port", &port], &to[..]].concat());
        let warning = process.says("kept nowhere");
        assert!(warning.contains("system_events gpu_details gpu_processes gpu_health_events"), "{warning}");
        process.says("collector API");
        process
    };
    let first = collector();
    let url = format!("http://127.0.0.1:{port}");
    let from = ["--csv", file.to_str().unwrap(), "--once", "--rate", "2000", "--batch-size", "20"];
    let streamer = start(&[&["stream", "--mq-url", &url], &from[..]].concat());
    until(&api, "/stats", "rows", |stats| stats["total_processed"].as_u64() > Some(2_000));
    first.kill();
    let second = collector();
    until(&api, "/stats", "rows again", |stats| stats["total_processed"].as_u64() > Some(1_000));
    second.kill();
    let third = collector();
    let (code, said) = streamer.ended();
    assert_eq!(code, Some(0), "{said}");
    until(&port, GROUP, "the end", |stats| stats["groups"]["store"]["lag"] == 0 && stats["messages"] == 0);
    assert_eq!(get(&port, GROUP)["dead_letters"], 0);

    let rows = get(&api, "/telemetry/GPU-3?limit=2");
    let times: Vec<_> = rows.as_array().unwrap().iter().map(|row| &row["timestamp"]).collect();
    assert_eq!(times, ["2026-01-01T00:01:19.9Z", "2026-01-01T00:01:19.8Z"]);
    let stats = get(&api, "/stats");
    assert_eq!(stats["active_gpus"], 10);
    assert!(
        stats["file_entries"].is_u64(),
        "those of this process: nobody counts the lines of earlier ones: {stats}"
    );
    assert!(stats["cache_entries"].as_u64() <= stats["total_processed"].as_u64(), "{stats}");
    for process in [third, broker] {
        let (code, said) = process.terminated();
        assert_eq!(code, Some(0), "{said}");
    }
    assert!(lines(&data) == keys, "every row that was published is there, and no other");
}
