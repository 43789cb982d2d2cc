//! What the user says about files, by `gpuvitals stream`.

use std::path::Path;

use gpuvitals_rig::port::Port;
use gpuvitals_rig::program::Process;
use serde_json::{Value, json};

use crate::process::{get, start, until};

/// A broker, and a collector of it.
struct Site {
    queue: String,
    api: Port,
    _running: [Process; 2],
    _port: Port,
}

impl Site {
    fn new(data: &Path) -> Self {
        let (port, api) = (Port::new(), Port::new());
        let broker = start(&["broker", "--port", &port]);
        broker.says("queue: http");
        let data = data.to_str().unwrap();
        let collector = start(&["collect", "--api-port", &api, "--broker-port", &port, "--data-dir", data]);
        collector.says("collector API");
        let queue = format!("http://127.0.0.1:{port}");
        Self { queue, api, _running: [broker, collector], _port: port }
    }

    /// Streams a file to its end.
    fn stream(&self, file: &Path, more: &[&str]) {
        let file = file.to_str().unwrap();
        let all = ["stream", "--csv", file, "--once", "--rate", "0", "--mq-url", &self.queue];
        let (code, said) = start(&[&all, more].concat()).ended();
        assert_eq!(code, Some(0), "{said}");
    }

    /// Waits for so many rows, and returns those of a GPU, the newest first.
    fn rows(&self, count: u64, gpu: &str) -> Vec<[Value; 2]> {
        until(&self.api, "/stats", "the rows", |stats| stats["total_processed"].as_u64() == Some(count));
        let rows = get(&self.api, &format!("/telemetry/{gpu}"));
        let rows = rows.as_array().unwrap_or_else(|| panic!("{gpu}: {rows}"));
        rows.iter().map(|row| [row["timestamp"].clone(), row["metrics"]["power_w"].clone()]).collect()
    }
}

#[test]
fn two_machines_that_count_their_gpus_are_two_gpus_of_one_collector() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::new(&folder.path().join("data"));
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/logs");
    for host in ["hostA", "hostB"] {
        site.stream(&logs.join(format!("{host}.csv")), &["--timezone", "UTC"]);
    }
    for (gpu, watts) in [("hostA:gpu0", [101.0, 100.0]), ("hostB:gpu0", [301.0, 300.0])] {
        let [newest, oldest] = watts.map(Value::from);
        let rows = [[json!("2026-01-03T15:36:54Z"), newest], [json!("2026-01-03T15:36:53Z"), oldest]];
        assert_eq!(site.rows(4, gpu), rows, "{gpu}");
    }
    assert_eq!(get(&site.api, "/stats")["active_gpus"], 2);
}

#[test]
fn host_gpu_column_and_zone_are_as_the_user_says() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log.csv");
    std::fs::write(&file, "timestamp,Board Power\n2026-01-03 15:36:53,100123\n").unwrap();
    let site = Site::new(&folder.path().join("data"));
    let column = ["--column", "Board Power=power_w:mW"];
    for (more, gpu, time) in [
        (
            &["--host", "rack7", "--gpu", "left", "--timezone", "Asia/Tokyo"],
            "left@rack7",
            "2026-01-03T06:36:53Z",
        ),
        (&["--host", "rack8", "--gpu", "left", "--timezone", "UTC"], "left@rack8", "2026-01-03T15:36:53Z"),
    ] {
        site.stream(&file, &[&more[..], &column].concat());
        let count = if gpu.ends_with('7') { 1 } else { 2 };
        assert_eq!(site.rows(count, gpu), [[json!(time), json!(100.123)]], "{gpu}");
    }
}
