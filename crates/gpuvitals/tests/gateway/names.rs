//! Collectors by a name with several addresses, which come and go.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::port::Port;
use gpuvitals_rig::program::{Finished as _, Process};

use crate::site::{Gateway, Said, start_with};

/// Writes the addresses of the name: into the same file, since that is mounted.
fn name(hosts: &Path, addresses: &[u8]) {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(hosts).unwrap();
    for address in addresses {
        writeln!(file, "127.0.0.{address} collectors.test").unwrap();
    }
}

/// The program where `/etc/hosts` is this file. None if this machine does not permit that.
fn with_hosts(hosts: &Path) -> Option<Command> {
    let namespace = || {
        let mut command = Command::new("unshare");
        command.args([
            "--map-root-user",
            "--mount",
            "--",
            "sh",
            "-c",
            "mount --bind \"$0\" /etc/hosts && exec \"$@\"",
        ]);
        command.arg(hosts);
        command
    };
    let tried = namespace().arg("true").finished();
    if tried.as_ref().is_ok_and(|output| output.status.success()) {
        let mut command = namespace();
        command.arg(gpuvitals!().get_program());
        return Some(command);
    }
    eprintln!("skipped: this machine does not permit a test to have names of its own: {tried:?}");
    None
}

fn collectors(said: &Said) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let list = said.json["collectors"].as_array().unwrap().iter();
    list.map(|one| (text(&one["name"]), text(&one["status"]))).collect()
}

#[test]
fn every_address_of_a_name_is_a_collector_and_one_that_vanished_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let hosts = folder.path().join("hosts");
    name(&hosts, &[1, 2]);
    let Some(mut command) = with_hosts(&hosts) else { return };
    let (api, queue) = (Port::new(), Port::new());
    let collect = |host: u8| {
        let address = format!("127.0.0.{host}");
        let data = at(&format!("store-{host}"));
        let collect = ["collect", "--listen", &address, "--api-port", &api, "--broker-port", &queue];
        // On loopback without tokens it answers to its own names alone.
        let collector = start_with(
            &[&collect[..], &["--data-dir", &data]].concat(),
            &[("GPUVITALS_LISTENER_HOSTS", "collectors.test")],
        );
        collector.says("collector API");
        collector
    };
    let held: Vec<Process> = [1, 2].map(collect).into();
    let url = format!("http://collectors.test:{api}");
    let mq = format!("http://127.0.0.1:{queue}");
    command.args(["serve", "--port", "0", "--collectors", &url, "--mq-url", &mq]).stderr(Stdio::piped());
    let gateway = Gateway::of(Process::start(&mut command));
    let reached = |host: u8, is_reached: bool| {
        // The queue is away, so collectors that are reached say that.
        let reason = if is_reached { "the queue is not reached" } else { "the service does not answer" };
        let address = format!("127.0.0.{host}:{api}");
        move |said: &Said| {
            let list = said.json["collectors"].as_array().unwrap();
            let is_it = |one: &&serde_json::Value| one["name"] == address.as_str();
            list.iter().find(is_it).is_some_and(|one| one["reason"].as_str().unwrap().contains(reason))
        }
    };
    for host in [1, 2] {
        gateway.until("/health", "both", reached(host, true));
    }
    // One is gone, and not even listed: its rows are missed all the same.
    drop(held);
    let first = collect(1);
    name(&hosts, &[1]);
    gateway.until("/health", "one that vanished", reached(2, false));
    gateway.until("/health", "the other", reached(1, true));
    let partial = gateway.until("/api/v1/gpus", "what is missing", |said| said.partial.is_some());
    assert!(partial.partial.unwrap().contains(&format!("collector 127.0.0.2:{api}")));
    // Another takes its place.
    let third = collect(3);
    name(&hosts, &[1, 3]);
    gateway.until("/health", "a new one", reached(3, true));
    let said = gateway.ask("/health");
    assert_eq!(collectors(&said).len(), 2, "{said:?}");
    gateway.until("/api/v1/gpus", "nothing is missing", |said| said.partial.is_none());
    for process in [gateway.process, first, third] {
        let (code, said) = process.terminated();
        assert_eq!(code, Some(0), "{said}");
    }
}
