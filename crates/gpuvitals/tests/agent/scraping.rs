//! The answers to a scraper.

use std::cell::Cell;
use std::io::Read;
use std::process::{Command, Stdio};

use flate2::read::GzDecoder;
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;

use super::node::Node;
use super::process::{Agent, fixture, value};

/// A machine with a host and no GPUs.
fn host() -> Vec<String> {
    let procfs = fixture("host/x86-2cpu");
    let sysfs = tempfile::tempdir().unwrap().keep();
    ["--sysfs", sysfs.to_str().unwrap(), "--procfs", procfs.to_str().unwrap()].map(str::to_owned).to_vec()
}

fn start(more: &[&str]) -> Agent {
    let host = host();
    let arguments: Vec<&str> = host.iter().map(String::as_str).chain(more.iter().copied()).collect();
    Agent::start(&arguments)
}

#[test]
fn a_node_without_gpus_shows_its_host_and_says_so() {
    let agent = start(&[]);
    agent.logged("no GPU was found");
    let text = agent.until("a row of the host", |text| value(text, "host_cpus ") == Some(2.0));
    assert_eq!(value(&text, "gpuvitals_build_info{version=\"0.1.0\"} "), Some(1.0));
    assert_eq!(value(&text, "gpuvitals_node_info{node=\"n1\"} "), Some(1.0));
    assert!(value(&text, "process_resident_memory_bytes ").unwrap() > 1e6, "{text}");
    assert!(value(&text, "gpuvitals_rows_total{driver=\"procfs\",device=\"n1\"} ").unwrap() >= 1.0, "{text}");
    assert_eq!(value(&text, "gpuvitals_samples_late_total "), Some(0.0));
    let ready = agent.get("/readyz", &[]);
    assert_eq!((ready.status, ready.text()), (200, "ok; there is no GPU\n"));
    assert_eq!(agent.get("/healthz", &[]).status, 200);
    assert!(agent.get("/", &[]).text().contains("href=\"/metrics\""));
    assert_eq!(agent.terminate(), Some(0));
}

#[test]
fn each_cpu_of_the_host_is_a_series_where_it_is_set() {
    let node = Node::new();
    let agent = node.agent_in(&[], &[("GPUVITALS_SAMPLING_PER_CORE", "true")]);
    let ticks = Cell::new(1_000);
    let text = agent.until("shares of the CPUs", |text| {
        ticks.set(ticks.get() + 10);
        let ticks = ticks.get();
        node.write(
            "proc/stat",
            &format!("cpu {ticks} 0 0 {ticks}\ncpu0 {ticks} 0 0 9\ncpu5 9 0 0 {ticks}\n"),
        );
        text.contains("host_cpu_core_utilization_ratio{")
    });
    assert_eq!(value(&text, "host_cpu_core_utilization_ratio{core=\"0\"} "), Some(1.0), "{text}");
    assert_eq!(value(&text, "host_cpu_core_utilization_ratio{core=\"5\"} "), Some(0.0), "{text}");
    assert_eq!(text.matches("\nhost_cpu_core_utilization_ratio{").count(), 2);
}

#[test]
fn where_gpus_are_required_a_node_without_them_is_a_failure() {
    let output =
        gpuvitals!().arg("agent").args(host()).args(["--port", "0", "--require-gpus"]).finished().unwrap();
    assert_eq!(output.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no GPU was found"));
}

#[test]
fn promtool_has_nothing_to_say_about_our_names() {
    use std::io::Write;
    let agent = start(&["--metrics", "all"]);
    let text = agent.until("a row of the host", |text| text.contains("host_cpus "));
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs; scripts/need promtool installs it");
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = gpuvitals_rig::waiting::outcome(promtool);
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn a_scraper_gets_the_form_it_asks_for() {
    let agent = start(&[]);
    agent.until("a row of the host", |text| text.contains("host_cpus "));
    let plain = agent.get("/metrics", &[]);
    assert_eq!(plain.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let asked = "Accept: application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5";
    let open = agent.get("/metrics", &["-H", asked]);
    assert_eq!(open.headers["content-type"], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(open.text().ends_with("# EOF\n") && !plain.text().contains("# EOF"));

    let zipped = agent.get("/metrics", &["-H", "Accept-Encoding: br, gzip;q=0.8"]);
    assert_eq!(zipped.headers["content-encoding"], "gzip");
    assert!(zipped.body.len() < plain.body.len() / 2);
    let mut text = String::new();
    GzDecoder::new(&zipped.body[..]).read_to_string(&mut text).unwrap();
    assert!(text.contains("host_cpus 2\n"));
    let refused = agent.get("/metrics", &["-H", "Accept-Encoding: gzip;q=0"]);
    assert!(!refused.headers.contains_key("content-encoding"));

    let head = agent.get("/metrics", &["--head"]);
    assert!(
        head.status == 200
            && head.body.is_empty()
            && head.headers["content-length"].parse::<usize>().unwrap() > 100
    );
}

#[test]
fn what_is_no_scrape_is_refused() {
    let agent = start(&[]);
    for (path, arguments, status) in [
        ("/metrics", &["-X", "POST"][..], 405),
        ("/metrics", &["-X", "GET", "-d", "x"], 413),
        ("/metric", &[], 404),
        ("/metrics/", &[], 404),
    ] {
        assert_eq!(agent.get(path, arguments).status, status, "{path} {arguments:?}");
    }
    let long = format!("X-Long: {}", "x".repeat(60_000));
    assert_eq!(agent.get("/metrics", &["-H", &long]).status, 431);
    assert_eq!(agent.get("/metrics", &[]).status, 200);
}

#[test]
fn connections_that_ask_nothing_keep_nobody_out() {
    let agent = start(&[]);
    let address = agent.at("").trim_start_matches("http://").to_owned();
    let idle: Vec<_> = (0..300).map(|_| std::net::TcpStream::connect(&address).unwrap()).collect();
    assert_eq!(agent.get("/metrics", &["--max-time", "20"]).status, 200);
    drop(idle);
}

#[test]
fn the_environment_that_exporters_share_is_understood() {
    let host = host();
    let arguments: Vec<&str> = host.iter().map(String::as_str).collect();
    let environment = [("METRICS_PATH", "/gpu"), ("COLLECTION_INTERVAL", "15"), ("POD_NAME", "agent-x")];
    let agent = Agent::start_in(&arguments, &environment);
    assert!(agent.url.ends_with("/gpu"), "{}", agent.url);
    assert_eq!(agent.get("/metrics", &[]).status, 404);
    assert!(agent.scrape().contains("pod=\"agent-x\""));
    let wrong = gpuvitals!().arg("agent").env("COLLECTION_INTERVAL", "often").finished().unwrap();
    assert_eq!(wrong.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("interval"));
}

#[test]
fn a_port_that_is_taken_is_said_with_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = gpuvitals!().arg("agent").args(host()).args(["--port", &port]).finished().unwrap();
    assert_eq!(output.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--port 0"));
}
