//! Columns under ever new names, as a stranger publishes them: the names are bounded, and no row is lost.

use gpuvitals_rig::port::Port;
use gpuvitals_rig::waiting::PATIENCE;
use serde_json::{Map, Value, json};

use crate::process::{Keys, get, start, stored, until};

/// Frames, rows in each, and new names in each: more than the 512 that a store takes, and less than the 128 of one node.
const FRAMES: u64 = 6;
const ROWS: u64 = 5;
const NAMES: u64 = 100;

/// A frame of a node, whose rows have names that no other frame has.
fn frame(number: u64) -> (String, Keys) {
    let mut keys = Keys::new();
    let rows: Vec<Value> = (0..ROWS)
        .map(|second| {
            let uuid = format!("GPU-{number}");
            let mut fields: Map<String, Value> =
                (0..NAMES).map(|name| (format!("n{number}q{name}x"), json!(second))).collect();
            fields.insert("uuid".to_owned(), json!(uuid));
            fields.insert("node".to_owned(), json!(format!("stranger-{number}")));
            fields.insert("power_w".to_owned(), json!(100 + second));
            let time_ns = i64::try_from(1_767_225_600 + second).unwrap() * 1_000_000_000;
            keys.insert((uuid, time_ns));
            json!({"timestamp": format!("2026-01-01T00:00:0{second}Z"), "fields": fields})
        })
        .collect();
    (Value::from(rows).to_string(), keys)
}

#[test]
fn six_frames_of_a_hundred_new_columns_each_cost_no_row_and_health_names_whose_were_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (port, api) = (Port::new(), Port::new());
    let broker = start(&["broker", "--port", &port]);
    broker.says("queue: http");
    let collector = start(&[
        "collect",
        "--api-port",
        &api,
        "--broker-port",
        &port,
        "--workers",
        "1",
        "--data-dir",
        data.to_str().unwrap(),
    ]);
    let group = "/stats/gpu-telemetry";
    until(&port, group, "the collector", |stats| stats["groups"]["store"]["members"] == 1);
    let agent: ureq::Agent = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build().into();
    let mut keys = Keys::new();
    for number in 0..FRAMES {
        let (body, more) = frame(number);
        keys.extend(more);
        let url = format!("http://127.0.0.1:{port}/publish/gpu-telemetry");
        agent.post(url).header("content-type", "application/json").send(body).unwrap();
        // One after the other, so that it is the last whose columns find no room.
        until(&port, group, "an empty queue", |stats| stats["messages"] == 0);
    }
    let stats = get(&port, group);
    assert_eq!((&stats["dead_letters"], &stats["dropped"]), (&json!(0), &json!(0)), "{stats}");
    let health = until(&api, "/health", "whose columns are left out", |health| {
        health["reason"].as_str().is_some_and(|reason| reason.contains("are left out"))
    });
    let reason = health["reason"].as_str().unwrap();
    assert!(reason.contains("columns of stranger-5 are left out, such as \"n5q"), "{reason}");
    for process in [collector, broker] {
        let (code, said) = process.terminated();
        assert_eq!(code, Some(0), "{said}");
    }
    assert!(stored(&data) == keys, "every row is there, with the columns that are known");
}
