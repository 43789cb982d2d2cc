//! A collector sends the GPUs of its store.

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Process;

use super::receiver::{Knows, Receiver};
use super::{find, page, value};

/// A service, and the URL that it says after these words.
fn service(arguments: &[&str], environment: &[(&str, &str)], words: &str) -> (Process, String) {
    let process = Process::start(gpuvitals!().args(arguments).envs(environment.iter().copied()));
    let line: serde_json::Value = serde_json::from_str(&process.says(words)).unwrap();
    let message = line["message"].as_str().unwrap();
    let url = message[message.find("http").unwrap()..].to_owned();
    (process, url)
}

fn publish(broker: &str, at_ms: i64, watts: f64) {
    let at = gpuvitals_core::time::format(at_ms * 1_000_000);
    let message = format!(
        "{{\"timestamp\":\"{at}\",\"fields\":{{\"gpu_id\":3,\"uuid\":\"GPU-x\",\"node\":\"n7\",\"power_w\":{watts}}}}}"
    );
    let request = ureq::post(format!("{broker}/publish/gpu-telemetry"));
    assert_eq!(request.header("content-type", "application/json").send(&message).unwrap().status(), 200);
}

#[test]
fn the_latest_values_of_the_store_go_out_as_the_agent_shows_them() {
    for knows in [Knows::Both, Knows::One] {
        let receiver = Receiver::that(knows, "0");
        let folder = tempfile::tempdir().unwrap();
        let (broker, url) = service(&["broker", "--port", "0"], &[], "queue: http");
        let data = folder.path().join("data");
        let data = data.to_str().unwrap();
        let arguments = ["collect", "--api-port", "0", "--mq-url", &url, "--data-dir", data];
        let environment = [
            ("GPUVITALS_REMOTE_WRITE_URL", receiver.url.as_str()),
            ("GPUVITALS_REMOTE_WRITE_INTERVAL", "100ms"),
            ("GPUVITALS_REMOTE_WRITE_LABELS", "cluster=test"),
        ];
        let (collector, api) = service(&arguments, &environment, "collector API: ");
        // A GPU that nobody hears of any more is no series.
        let now_ms = gpuvitals_core::clock::now_ns() / 1_000_000;
        publish(&url, now_ms - 3_600_000, 1.0);
        publish(&url, now_ms - 1_500, 250.5);
        let has = |name: &'static str, watts: f64| {
            move |got: &[super::Got]| {
                let mut all = got.iter().filter(|got| got.status == 204).flat_map(|got| &got.samples);
                all.any(|it| it.name() == name && it.value == watts)
            }
        };
        let got = receiver.until("the GPU", has("gpu_power_watts", 250.5));
        let with = got.iter().find(|got| got.samples.iter().any(|it| it.name() == "gpu_power_watts"));
        let sample = find(with.unwrap(), "gpu_power_watts");
        let labels: Vec<String> =
            sample.labels.iter().skip(1).map(|(label, text)| format!("{label}={text}")).collect();
        let host = labels.iter().find(|label| label.starts_with("instance=")).unwrap().clone();
        assert_eq!(labels, ["cluster=test", "gpu=3", &host, "job=gpuvitals", "uuid=GPU-x"]);
        assert_eq!(sample.at_ms, now_ms - 1_500);
        assert_eq!(find(with.unwrap(), "gpu_info").labels["node"], "n7");
        assert_eq!(find(with.unwrap(), "gpu_up").value, 1.0);
        receiver.until("its own figures", has("gpuvitals_collector_rows_stored_total", 2.0));
        publish(&url, now_ms - 500, 251.0);
        receiver.until("the next value", has("gpu_power_watts", 251.0));
        // That row comes late: the newer value stays the latest.
        publish(&url, now_ms - 1_000, 249.0);
        receiver.until("the late row", has("gpuvitals_collector_rows_stored_total", 4.0));
        super::assert_in_order_and_once(&receiver.got());
        let page = page(&format!("{api}metrics"));
        assert!(value(&page, "gpuvitals_remote_write_samples_sent_total").unwrap() > 0.0);
        assert_eq!(collector.terminated().0, Some(0));
        broker.kill();
        let watts: Vec<f64> = receiver
            .got()
            .iter()
            .flat_map(|got| got.samples.clone())
            .filter(|it| it.name() == "gpu_power_watts")
            .map(|it| it.value)
            .collect();
        assert!(!watts.contains(&1.0) && !watts.contains(&249.0), "{watts:?}");
    }
}
