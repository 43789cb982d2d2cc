//! Streamer, queue, collectors and their stores.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::Table;
use gpuvitals_core::history::{History, RowsQuery};
use gpuvitals_listener::client::{Credentials, Dial};
use gpuvitals_remote::{Merged, NamedHistory, Remote};
use gpuvitals_rig::port::Port;
use gpuvitals_rig::program::Process;

use crate::process::{Keys, Nats, get, recording, start, start_with, stored, until};

const TOPIC: &str = "gpu-telemetry";

fn processed(answer: &serde_json::Value) -> u64 {
    answer["total_processed"].as_u64().unwrap_or(0)
}

fn ends_well(process: Process) {
    let (code, said) = process.terminated();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn two_collectors_together_have_every_row_although_each_part_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, keys) = recording(folder.path(), 16_000);
    let port = Port::new();
    let queue = || {
        let process = start(&["broker", "--port", &port, "--persistence-path", &at("mq")]);
        process.says("queue: http");
        process
    };
    let broker = queue();
    let (one, other) = (Port::new(), Port::new());
    let collector = |api: &str, data: &str| {
        let process = start(&["collect", "--api-port", api, "--broker-port", &port, "--data-dir", &at(data)]);
        process.says("collector API");
        process
    };
    let stream = |rate: &str| {
        let (url, file) = (format!("http://127.0.0.1:{port}"), file.to_str().unwrap());
        start(&[
            "stream",
            "--csv",
            file,
            "--once",
            "--rate",
            rate,
            "--workers",
            "2",
            "--mq-url",
            &url,
            "--batch-size",
            "20",
        ])
    };
    let (a, b) = (collector(&one, "a"), collector(&other, "b"));
    let streamer = stream("1000");

    until(&one, "/stats", "rows", |stats| processed(stats) > 500);
    a.kill();
    let a = collector(&one, "a");
    until(&other, "/stats", "rows", |stats| processed(stats) > 1_500);
    b.kill();
    let b = collector(&other, "b");
    until(&other, "/stats", "rows again", |stats| processed(stats) > 300);
    broker.kill();
    let broker = queue();
    until(&one, "/stats", "rows after the queue's restart", |stats| processed(stats) > 2_500);
    // Nothing of it is sent again by anyone, so what the others lost would be missing.
    let (code, said) = streamer.ended();
    assert_eq!(code, Some(0), "{said}");

    let group = format!("/stats/{TOPIC}");
    let before = get(&port, &group)["published"].as_u64().unwrap();
    let streamer = stream("1000");
    until(&port, &group, "rows a second time", |stats| stats["published"].as_u64() > Some(before + 500));
    streamer.kill();
    until(&port, &group, "the end", |stats| stats["groups"]["store"]["lag"] == 0 && stats["messages"] == 0);
    assert_eq!(get(&port, &group)["dead_letters"], 0);
    assert_eq!(asked(&[&one, &other]), Some(keys.len()), "whoever asks both has every row once");
    [a, b, broker].into_iter().for_each(ends_well);
    together(folder.path(), &keys);
}

/// How many rows the collectors at these ports have together, each counted once.
fn asked(ports: &[&str]) -> Option<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let collector = |port: &&str| {
            let dial = Dial::new(&format!("127.0.0.1:{port}"), false, &Credentials::default()).unwrap();
            NamedHistory { name: Arc::from(*port), history: Arc::new(Remote::new(port, dial)) }
        };
        let both = Merged::new(ports.iter().map(collector).collect(), Duration::from_secs(30));
        let all = RowsQuery { with_total: true, ..RowsQuery::of(Table::GpuEvents, 100_000) };
        let found = both.rows(all).await.unwrap();
        assert_eq!(found.missing, Vec::<String>::new());
        found.answer.total
    })
}

/// Two stores have every key between them, and no other.
fn together(folder: &Path, keys: &Keys) {
    let [a, b] = ["a", "b"].map(|name| stored(&folder.join(name)));
    let both: Keys = a.union(&b).cloned().collect();
    assert_eq!(both.len(), keys.len());
    assert!(both == *keys, "every row that was published is there, and no other");
}

#[test]
fn up_runs_on_a_queue_elsewhere_and_another_group_gets_everything_too() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, keys) = recording(folder.path(), 3_000);
    let (port, api) = (Port::new(), Port::new());
    let broker = start(&["broker", "--port", &port]);
    broker.says("queue: http");
    let url = format!("grpc://127.0.0.1:{port}");
    let collector = start(&[
        "collect",
        "--api-port",
        &api,
        "--mq-url",
        &url,
        "--group",
        "copy",
        "--data-dir",
        &at("copy"),
    ]);
    let group = format!("/stats/{TOPIC}");
    until(&port, &group, "the second group", |stats| stats["groups"]["copy"]["members"] == 4);
    let up = start_with(
        &["up", "--port", "0", "--csv", file.to_str().unwrap(), "--data-dir", &at("up")],
        &[("GPUVITALS_MESSAGE_QUEUE_ADDRESS", &url)],
    );
    until(&port, &group, "the end", |stats| stats["published"] == 3_000 && stats["messages"] == 0);

    let rows = get(&api, "/telemetry/GPU-3?limit=2");
    assert_eq!(rows.as_array().map(Vec::len), Some(2));
    assert_eq!(rows[0]["timestamp"], "2026-01-01T00:00:29.9Z");
    assert_eq!(rows[0]["metrics"].as_object().map(serde_json::Map::len), Some(1));
    [up, collector, broker].into_iter().for_each(ends_well);
    assert!(stored(&folder.path().join("up")) == keys);
    assert!(stored(&folder.path().join("copy")) == keys);
}

#[test]
fn a_collector_says_that_its_queue_is_away_and_that_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (port, api) = (Port::new(), Port::new());
    let url = format!("grpc://127.0.0.1:{port}");
    let collector =
        start(&["collect", "--api-port", &api, "--mq-url", &url, "--data-dir", data.to_str().unwrap()]);
    let health = until(&api, "/health", "a queue that is away", |health| health["status"] == "degraded");
    assert!(health["reason"].as_str().unwrap().contains("the queue is not reached"), "{health}");
    let broker = start(&["broker", "--port", &port]);
    until(&api, "/health", "a queue that is back", |health| health["status"] == "healthy");
    broker.kill();
    until(&api, "/health", "a queue that is gone", |health| health["status"] == "degraded");
    ends_well(collector);
}

#[test]
fn health_says_since_when_a_state_is_not_since_when_it_was_first_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = recording(folder.path(), 3_000);
    let data = folder.path().join("data");
    let (port, shown) = (Port::new(), Port::new());
    let broker = start(&["broker", "--port", &port]);
    let up = start_with(
        &["up", "--port", &shown, "--csv", file.to_str().unwrap(), "--data-dir", data.to_str().unwrap()],
        &[("GPUVITALS_MESSAGE_QUEUE_ADDRESS", &format!("grpc://127.0.0.1:{port}"))],
    );
    until(&shown, "/stats", "rows", |stats| {
        stats["source"]["rows_stored"] == 3_000 && stats["total_processed"] == 3_000
    });
    broker.kill();
    let gone = get(&shown, "/stats")["gateway"]["uptime_seconds"].as_f64().unwrap();
    until(&shown, "/stats", "the time in which nobody asks for the health", |stats| {
        stats["gateway"]["uptime_seconds"].as_f64().unwrap() > gone + 2.5
    });
    let instant = |text: &serde_json::Value| gpuvitals_core::time::parse(text.as_str().unwrap()).unwrap();
    let health = get(&shown, "/health");
    assert_eq!(health["collector"]["status"], "degraded", "{health}");
    assert_eq!(health["queue"]["status"], "degraded", "it is not reached: {health}");
    assert!(get(&shown, "/stats")["total_processed"].is_null(), "nobody answers there");
    let (asked_ns, since_ns) = (instant(&health["timestamp"]), instant(&health["collector"]["since"]));
    assert!(asked_ns - since_ns > 1_000_000_000, "{health}");
    assert_eq!(get(&shown, "/health")["collector"]["since"], health["collector"]["since"]);
    ends_well(up);
}

#[test]
fn a_streamer_says_that_its_queue_takes_nothing_and_that_it_does_again() {
    let folder = tempfile::tempdir().unwrap();
    let (file, _) = recording(folder.path(), 3_000);
    let (port, shown) = (Port::new(), Port::new());
    let url = format!("grpc://127.0.0.1:{port}");
    let csv = file.to_str().unwrap();
    let streamer =
        start(&["stream", "--csv", csv, "--mq-url", &url, "--metrics-port", &shown, "--rate", "100"]);
    let health = until(&shown, "/health", "a queue that is away", |health| health["status"] == "degraded");
    assert!(health["reason"].as_str().unwrap().contains("the queue takes no rows"), "{health}");
    let broker = start(&["broker", "--port", &port]);
    until(&shown, "/health", "a queue that is back", |health| health["status"] == "healthy");
    ends_well(streamer);
    ends_well(broker);
}

#[test]
fn the_same_pipeline_runs_on_nats_by_changing_the_url() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (file, keys) = recording(folder.path(), 3_000);
    let nats = Nats::start(&folder.path().join("nats"));
    let ports = [Port::new(), Port::new()];
    let names = ["a", "b"];
    let collectors = [0, 1].map(|n| {
        let arguments =
            ["collect", "--api-port", &ports[n], "--mq-url", &nats.url, "--data-dir", &at(names[n])];
        let process = start(&arguments);
        process.says("collector API");
        process
    });
    let sent =
        start(&["stream", "--csv", file.to_str().unwrap(), "--once", "--rate", "0", "--mq-url", &nats.url]);
    let (code, said) = sent.ended();
    assert_eq!(code, Some(0), "{said}");
    let total = || ports.iter().map(|port| processed(&get(port, "/stats"))).sum::<u64>();
    until(&ports[0], "/stats", "all rows", |_| total() >= 3_000);
    collectors.into_iter().for_each(ends_well);
    together(folder.path(), &keys);

    let up = start_with(
        &["up", "--port", "0", "--csv", file.to_str().unwrap(), "--data-dir", &at("up")],
        &[("GPUVITALS_MESSAGE_QUEUE_ADDRESS", &nats.url), ("GPUVITALS_COLLECTOR_GROUP", "up")],
    );
    let line = up.says("dashboard and API");
    let port = line.split("127.0.0.1:").nth(1).unwrap().split('/').next().unwrap();
    until(port, "/api/v1/telemetry?limit=1", "every row in up", |rows| rows["total"] == 3_000);
    // The fields that a broker's statistics have.
    let stats =
        until(port, "/stats", "statistics of NATS", |stats| stats["total_processed"].as_u64() > Some(0));
    assert!(stats["uptime_seconds"].is_number(), "{stats}");
    let topic = &stats["topics"]["gpu-telemetry"];
    for field in ["messages", "subscribers", "throughput_msg_per_sec"] {
        assert!(topic[field].is_number(), "{field} in {topic}");
    }
    ends_well(up);
}
