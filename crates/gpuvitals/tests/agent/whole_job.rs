//! An incident of a whole job: one node tells a gateway of it, and each node of the job sends what it has.

use std::collections::BTreeMap;

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::port::Port;
use gpuvitals_rig::program::{Finished as _, Process};
use gpuvitals_rig::waiting;
use serde_json::Value;

use super::hooks::{ENVIRONMENT, hook};
use super::node::{Node, RX580, VEGA56};
use super::process::{Agent, curl};

const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// Where a gateway is, whether it runs or not.
struct GatewayPlace {
    folder: tempfile::TempDir,
    api: Port,
    queue: Port,
}

impl GatewayPlace {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), api: Port::new(), queue: Port::new() }
    }

    /// Queue, history and gateway in one process.
    fn start(&self) -> Process {
        let mut command = gpuvitals!();
        command
            .args(["up", "--source", "none", "--port", &self.api, "--broker-port", &self.queue])
            .arg("--data-dir")
            .arg(self.folder.path().join("data"))
            .env("GPUVITALS_FLIGHT_DIR", self.folder.path().join("flight"));
        let process = Process::start(&mut command);
        process.says("dashboard and API: http");
        process
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.api)
    }

    fn get(&self, path: &str) -> Vec<u8> {
        let got = curl(&format!("{}{path}", self.url()), &[]).unwrap();
        assert_eq!(got.status, 200, "{path}: {}", got.text());
        got.body
    }

    fn incidents(&self) -> Vec<Value> {
        let listed: Value = serde_json::from_slice(&self.get("/api/v1/flight/incidents")).unwrap();
        listed["incidents"].as_array().unwrap().clone()
    }

    /// How often each row of what a node sent is there: GPU and time.
    fn rows(&self, id: &str, node: &str) -> BTreeMap<(String, i64), u32> {
        let sent = self.get(&format!("/api/v1/flight/incidents/{id}/nodes/{node}"));
        let (mut left, mut rows) = (sent.as_slice(), BTreeMap::new());
        while let Some((len, rest)) = left.split_first_chunk::<4>() {
            let (piece, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
            left = rest;
            let batch = gpuvitals_record::unpack(piece).unwrap();
            for (row, at_ns) in batch.timestamps().iter().enumerate() {
                let gpu = batch.identity(row).key().unwrap().to_string();
                *rows.entry((gpu, *at_ns)).or_insert(0) += 1;
            }
        }
        assert!(left.is_empty());
        rows
    }
}

fn agent(gateway: &GatewayPlace, name: &str, node: &Node) -> Agent {
    let (queue, url) = (format!("http://127.0.0.1:{}", gateway.queue), gateway.url());
    let (directory, socket) = (node.path("flight"), node.path("agent.sock"));
    let flags = ["--node", name, "--mq-url", &queue, "--flight-gateway", &url, "--flight-dir"];
    let environment =
        [("GPUVITALS_AGENT_SOCKET", socket.to_str().unwrap()), ("GPUVITALS_AGENT_PUBLISH_INTERVAL", "200ms")];
    node.agent_in(&[&flags[..], &[directory.to_str().unwrap()]].concat(), &environment)
}

#[test]
fn a_trigger_on_one_node_asks_all_of_the_job_and_kills_lose_and_double_nothing() {
    let gateway = GatewayPlace::new();
    let running = gateway.start();
    let nodes = NODES.map(|name| (name, Node::new()));
    let mut agents: Vec<Agent> = nodes.iter().map(|(name, node)| agent(&gateway, name, node)).collect();
    for (_, node) in &nodes {
        assert_eq!(hook(&node.path("agent.sock"), "prolog", &ENVIRONMENT), "");
    }
    let held = || gateway.get("/api/v1/gpus?limit=100&labels=job");
    let held = || String::from_utf8(held()).unwrap().matches("\"job\":\"4711\"").count();
    waiting::until("the job at the gateway", held, |held| *held == NODES.len());

    agents[1].process.signal("USR1");
    for agent in &agents {
        agent.logged("the flight recorder keeps an incident");
    }
    // Each was asked, and none can have answered: half a minute after the trigger is still to come.
    running.kill();
    agents.remove(2).process.kill();
    agents[0].logged("the gateway cannot be told of incidents");
    let _running = gateway.start();
    agents.push(agent(&gateway, nodes[2].0, &nodes[2].1));
    let windows = |incident: &Value| {
        let nodes = incident["nodes"].as_array().unwrap().iter();
        nodes.map(|node| (node["node"].clone(), node["window"].clone())).collect::<Vec<_>>()
    };
    let is_whole = |incidents: &Vec<Value>| {
        incidents.iter().flat_map(windows).filter(|(_, window)| !window.is_null()).count() == NODES.len()
    };
    let incidents = waiting::until("what each node has", || gateway.incidents(), is_whole);
    let [incident] = &incidents[..] else { panic!("{incidents:?}") };
    assert_eq!(incident["triggers"][0]["node"], "n2");
    assert_eq!(
        (&incident["told"], &incident["triggers"][0]["trigger"]["kind"]),
        (&1.into(), &"signal".into())
    );
    let id = incident["id"].as_str().unwrap();
    for ((node, window), name) in windows(incident).into_iter().zip(NODES) {
        assert_eq!(node, name);
        let rows = gateway.rows(id, name);
        assert_eq!(window["rows"], rows.len(), "{window}");
        assert!(rows.values().all(|times| *times == 1), "{rows:?}");
        for gpu in [RX580, VEGA56] {
            let key = gpu.replace("n1", name);
            assert!(rows.keys().filter(|(gpu, _)| *gpu == key).count() > 10, "{key}: {rows:?}");
        }
    }
    let (code, said) = agents.remove(0).process.terminated();
    assert_eq!(code, Some(0));
    let lines = said.matches("the gateway cannot be told of incidents").count();
    assert_eq!(lines, 1, "an outage is one line: {said}");
}

#[test]
fn a_gateway_of_which_the_token_cannot_be_read_ends_the_agent_with_78() {
    let mut command = gpuvitals!();
    command.args(["agent", "--port", "0", "--flight-gateway", "http://127.0.0.1:1"]);
    command.env("GPUVITALS_FLIGHT_GATEWAY_TOKEN_FILE", "/nowhere/token");
    let output = command.finished().unwrap();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("flight.gateway_token_file: /nowhere/token"), "{said}");
}
