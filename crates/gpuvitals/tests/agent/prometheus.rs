//! A real Prometheus scrapes the agent, and PromQL over the result is right.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gpuvitals_rig::authority::CertificateAuthority;
use gpuvitals_rig::port::Port;
use gpuvitals_rig::waiting;
use serde_json::Value;

use gpuvitals_listener::{TokenScope, Tokens};

use super::node::Node;

pub(crate) struct Prometheus {
    child: Child,
    _port: Port,
    url: String,
}

impl Prometheus {
    pub(crate) fn start(node: &Node, config: &str) -> Self {
        let file = node.write("prometheus.yml", config);
        let port = Port::new();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", node.path("tsdb").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--log.level=error")
            .stdin(Stdio::null())
            .spawn()
            .expect("prometheus runs; scripts/need promtool installs it");
        Self { child, url: format!("http://127.0.0.1:{port}"), _port: port }
    }

    /// The series of an answer, or why there is none.
    pub(crate) fn result(&self, query: &str) -> Result<Vec<Value>, String> {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(10))).build().into();
        let request = agent.get(format!("{}/api/v1/query", self.url)).query("query", query);
        let answer = request.call().map_err(|error| error.to_string())?.body_mut().read_to_string();
        let answer: Value = serde_json::from_str(&answer.map_err(|error| error.to_string())?).unwrap();
        answer["data"]["result"].as_array().cloned().ok_or_else(|| answer.to_string())
    }

    /// Value of a query with one result; none while it has no or more results, or Prometheus does not answer yet.
    fn ask(&self, query: &str) -> Option<f64> {
        match self.result(query).ok()?.as_slice() {
            [only] => only["value"][1].as_str().unwrap().parse().ok(),
            _ => None,
        }
    }

    /// Queries until the value is near the expected one: Prometheus' data grows with each scrape.
    pub(crate) fn becomes(&self, query: &str, expected: f64) {
        let is_near = |value: &f64| (value - expected).abs() <= expected.abs() * 0.05;
        let what = format!("{expected} as {query}");
        waiting::until(&what, || self.ask(query), |value| value.as_ref().is_some_and(is_near));
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // After a failed assertion nobody else ends it.
        let _ended_before = self.child.kill();
        let _reaped_before = self.child.wait();
    }
}

#[test]
fn prometheus_scrapes_it_with_tls_and_token_and_promql_is_right() {
    let node = Node::new();
    let authority = CertificateAuthority::new();
    let ca = authority.file(node.path("ca.crt"));
    let server = authority.sign("127.0.0.1", &node.path(""));
    let client = authority.sign("prometheus", &node.path(""));
    let tokens = node.path("tokens");
    let token = Tokens::create(&tokens, "prometheus", &[TokenScope::Read], "now".to_owned()).unwrap();
    let token = node.write("token", &token);
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let agent = node.agent(&[
        "--rate=20",
        "--interval=2s",
        "--compat=both",
        &format!("--tls-cert={}", text(&server.cert)),
        &format!("--tls-key={}", text(&server.key)),
        &format!("--tls-client-ca={}", text(&ca)),
        &format!("--token-file={}", text(&tokens)),
    ]);
    // docs/agent.md shows this scrape configuration.
    let prometheus = Prometheus::start(
        &node,
        &format!(
            "global:\n  scrape_interval: 1s\n\
             scrape_configs:\n\
             - job_name: gpuvitals\n\
             \x20 scheme: https\n\
             \x20 tls_config: {{ca_file: {}, cert_file: {}, key_file: {}}}\n\
             \x20 authorization: {{credentials_file: {}}}\n\
             \x20 static_configs:\n\
             \x20 - targets: [\"{}\"]\n",
            text(&ca),
            text(&client.cert),
            text(&client.key),
            text(&token),
            agent.url.trim_start_matches("https://").trim_end_matches("/metrics"),
        ),
    );
    prometheus.becomes("up{job=\"gpuvitals\"}", 1.0);
    prometheus.becomes("count(gpu_up == 1)", 2.0);
    // The captures do not change: 41.045 W and 8 W.
    prometheus.becomes("gpu_power_watts{gpu=\"0\"}", 41.045);
    prometheus.becomes("sum by (vendor) (gpu_power_watts)", 49.045);
    prometheus
        .becomes("sum(gpu_power_watts * on (uuid) group_left (model) gpu_info{model=~\".*RX Vega.*\"})", 8.0);
    prometheus.becomes("rate(gpu_energy_joules_total{gpu=\"0\"}[10s])", 41.045);
    prometheus.becomes("gpu_power_watts_window{gpu=\"1\",stat=\"max\"}", 8.0);
    prometheus.becomes("rate(gpu_samples_total{gpu=\"1\"}[10s])", 20.0);
    prometheus.becomes("DCGM_FI_DEV_POWER_USAGE{gpu=\"0\"}", 41.045);
    prometheus.becomes("DCGM_FI_DEV_BOARD_POWER_WATTS{gpu=\"0\"}", 41.045);
    prometheus.becomes("host_cpus", 2.0);
    prometheus.becomes("max_over_time(gpuvitals_config_last_reload_successful[10s])", 1.0);
    // This would find a GPU whose last sample is old; there is none.
    prometheus.becomes("count(time() - gpu_last_sample_timestamp_seconds < 10)", 2.0);
}
