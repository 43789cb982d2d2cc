//! A real Prometheus as the receiver. Debian's speaks 1.0, and takes a request of 2.0 for an empty one.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gpuvitals_rig::port::Port;
use gpuvitals_rig::waiting;
use serde_json::Value;

use super::{Agent, WAITING};

struct Prometheus(Child);

impl Prometheus {
    fn start(folder: &Path, port: &Port) -> Self {
        let config = folder.join("prometheus.yml");
        std::fs::write(&config, "global: {scrape_interval: 1h}\n").unwrap();
        let child = Command::new("prometheus")
            .arg("--web.enable-remote-write-receiver")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--log.level=warn")
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{error}; scripts/need promtool installs Prometheus"));
        Self(child)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // After a failed assertion nobody else ends it.
        let _ended_before = self.0.kill();
        let _reaped_before = self.0.wait();
    }
}

/// The answer to a query; none while there is none.
fn ask(port: &Port, query: &str) -> Option<Vec<Value>> {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(10))).build().into();
    let request = agent.get(format!("http://127.0.0.1:{port}/api/v1/query")).query("query", query);
    let answer = request.call().ok()?.body_mut().read_to_string().ok()?;
    serde_json::from_str::<Value>(&answer).ok()?["data"]["result"].as_array().cloned()
}

fn number(port: &Port, query: &str) -> Option<f64> {
    match ask(port, query)?.as_slice() {
        [only] => only["value"][1].as_str()?.parse().ok(),
        _ => None,
    }
}

#[test]
fn a_real_prometheus_takes_it_and_what_came_while_it_was_down() {
    let (folder, port) = (tempfile::tempdir().unwrap(), Port::new());
    let agent = Agent::sending(&format!("http://127.0.0.1:{port}/api/v1/write"), &[]);
    agent.process.says("the receiver of remote write takes nothing");
    waiting::until("a GPU", || agent.page(), |page| page.contains("gpu_power_watts{"));
    agent.waits_for_more(6);
    let prometheus = Prometheus::start(folder.path(), &port);
    agent.process.says("the receiver does not take remote write 2.0");
    let becomes = |query: &str, is_so: &dyn Fn(f64) -> bool| {
        waiting::until(query, || number(&port, query), |found| found.is_some_and(is_so)).unwrap()
    };
    let page = agent.page();
    let shown = page.lines().filter(|line| line.starts_with("gpu_power_watts{")).count();
    let shown = f64::from(u32::try_from(shown).unwrap());
    becomes("count(gpu_power_watts{job=\"gpuvitals\",instance=\"n1\"})", &|gpus| gpus == shown);
    // What is only known from before it was up: samples of one second at least.
    becomes("min(count_over_time(gpu_up{uuid!=\"simulated\"}[1m]))", &|samples| samples >= 6.0);
    becomes("sum(gpu_power_watts * on (uuid) group_left (model) gpu_info{source=\"simulated\"})", &|it| {
        it > 0.0
    });
    becomes("min(rate(gpu_energy_joules_total[1m]))", &|watts| watts > 0.0);
    becomes("sum(gpuvitals_agent_request_duration_seconds_bucket{le=\"+Inf\"})", &|count| count > 0.0);
    // A second one in the middle: it goes on.
    drop(prometheus);
    agent.until("gpuvitals_remote_write_up", |up| up == 0.0);
    agent.waits_for_more(4);
    let _prometheus = Prometheus::start(folder.path(), &port);
    agent.until("gpuvitals_remote_write_up", |up| up == 1.0);
    agent.until(WAITING, |samples| samples == 0.0);
    let page = agent.page();
    for reason in ["refused", "limit", "age", "order"] {
        let dropped = format!("gpuvitals_remote_write_samples_dropped_total{{reason=\"{reason}\"}}");
        assert_eq!(super::value(&page, &dropped), Some(0.0), "{reason}");
    }
    // The page's values and Prometheus' are of the same GPU at the same moment.
    let last = "max(timestamp(gpu_power_watts)) - max(gpu_last_sample_timestamp_seconds)";
    becomes(last, &|seconds| seconds.abs() < 0.5);
    assert_eq!(agent.process.terminated().0, Some(0));
}
