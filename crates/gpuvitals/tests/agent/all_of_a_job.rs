//! An incident of a whole job: one node tells a gateway of it, and each node of the job sends what it has.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use gpuvitals_core::time::SECOND_NS;
use gpuvitals_rig::faulty_sysfs::FaultySysfs;
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::link::CutLink;
use gpuvitals_rig::port::Port;
use gpuvitals_rig::program::{Finished as _, Process};
use gpuvitals_rig::waiting;
use serde_json::{Value, json};

use super::faults::ticks;
use super::flight::incidents;
use super::hooks::{ENVIRONMENT, hook};
use super::node::{Node, RX580, VEGA56, series};
use super::process::{Agent, curl, value};

const NODES: [&str; 3] = ["n1", "n2", "n3"];

/// Where a gateway is, whether it runs or not.
pub(crate) struct GatewayPlace {
    folder: tempfile::TempDir,
    api: Port,
    queue: Port,
}

impl GatewayPlace {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), api: Port::new(), queue: Port::new() }
    }

    /// Queue, history and gateway in one process.
    pub(crate) fn start(&self) -> Process {
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

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.api)
    }

    pub(crate) fn queue_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.queue)
    }

    pub(crate) fn get(&self, path: &str) -> Vec<u8> {
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
            let batch = gpuvitals_core::wire::unpack(piece).unwrap();
            for (row, at_ns) in batch.timestamps().iter().enumerate() {
                let gpu = batch.identity(row).key().unwrap().to_string();
                *rows.entry((gpu, *at_ns)).or_insert(0) += 1;
            }
        }
        assert!(left.is_empty());
        rows
    }
}

/// The agent of a node, over this `/sys`.
fn agent(gateway: &GatewayPlace, node: &(&str, Node), sysfs: &Path) -> Agent {
    agent_by(&gateway.url(), gateway, node, sysfs)
}

/// The same, which reaches the gateway at this address.
fn agent_by(url: &str, gateway: &GatewayPlace, (name, node): &(&str, Node), sysfs: &Path) -> Agent {
    let queue = gateway.queue_url();
    let (directory, socket) = (node.path("flight"), node.path("agent.sock"));
    let flags = ["--node", name, "--rate", "10", "--mq-url", &queue, "--flight-gateway", url, "--flight-dir"];
    let environment =
        [("GPUVITALS_AGENT_SOCKET", socket.to_str().unwrap()), ("GPUVITALS_AGENT_PUBLISH_INTERVAL", "200ms")];
    node.agent_over(sysfs, &[&flags[..], &[directory.to_str().unwrap()]].concat(), &environment)
}

/// A job begins on the Vega 56 of each node, and the gateway knows it.
fn begin_job(gateway: &GatewayPlace, nodes: &[(&str, Node)]) {
    for (_, node) in nodes {
        assert_eq!(hook(&node.path("agent.sock"), "prolog", &ENVIRONMENT), "");
    }
    let held = || gateway.get("/api/v1/gpus?limit=100&labels=job");
    let held = || String::from_utf8(held()).unwrap().matches("\"job\":\"4711\"").count();
    waiting::until("the job at the gateway", held, |held| *held == nodes.len());
}

/// The one incident, when all nodes have sent what they have: each row of each GPU once.
fn whole_incident(gateway: &GatewayPlace) -> Value {
    let windows = |incident: &Value| {
        let nodes = incident["nodes"].as_array().unwrap().iter();
        nodes.map(|node| (node["node"].clone(), node["window"].clone())).collect::<Vec<_>>()
    };
    let is_whole = |incidents: &Vec<Value>| {
        incidents.iter().flat_map(windows).filter(|(_, window)| !window.is_null()).count() == NODES.len()
    };
    let incidents = waiting::until("what each node has", || gateway.incidents(), is_whole);
    let [incident] = &incidents[..] else { panic!("{incidents:?}") };
    assert_eq!(incident["told"], 1);
    let (id, trigger) = (incident["id"].as_str().unwrap(), &incident["triggers"][0]["trigger"]);
    // From its trigger on a GPU is read by a second sampler, too, which may do so at the same millisecond.
    let is_read_twice =
        |gpu: &str, at_ns: i64| trigger["gpu"] == gpu && trigger["at_ns"].as_i64() <= Some(at_ns);
    for ((node, window), name) in windows(incident).into_iter().zip(NODES) {
        assert_eq!(node, name);
        let rows = gateway.rows(id, name);
        assert_eq!(window["rows"], rows.values().sum::<u32>(), "{window}");
        let mut once = rows.iter().filter(|((gpu, at_ns), _)| !is_read_twice(gpu, *at_ns));
        assert!(once.all(|(_, times)| *times == 1), "{rows:?}");
        for gpu in [RX580, VEGA56] {
            let key = gpu.replace("n1", name);
            assert!(rows.keys().filter(|(gpu, _)| *gpu == key).count() > 10, "{key}: {rows:?}");
        }
    }
    for node in incident["nodes"].as_array().unwrap() {
        // All are on one machine.
        let clock = |field: &str| node["clock"][field].as_i64().unwrap_or_else(|| panic!("{node}"));
        assert!(clock("offset_ns").abs() <= clock("error_ns"), "{node}");
    }
    incident.clone()
}

#[test]
fn a_trigger_on_one_node_asks_all_of_the_job_and_kills_lose_and_double_nothing() {
    let gateway = GatewayPlace::new();
    let running = gateway.start();
    let nodes = NODES.map(|name| (name, Node::new()));
    let start = |place: usize| agent(&gateway, &nodes[place], &nodes[place].1.path("sys"));
    let mut agents: Vec<Agent> = (0..nodes.len()).map(start).collect();
    begin_job(&gateway, &nodes);

    agents[1].process.signal("USR1");
    for agent in &agents {
        agent.logged("the flight recorder keeps an incident");
    }
    // Each was asked, and none can have answered: half a minute after the trigger is still to come.
    running.kill();
    agents.remove(2).process.kill();
    agents[0].logged("the gateway cannot be told of incidents");
    let _running = gateway.start();
    agents.push(start(2));
    let incident = whole_incident(&gateway);
    let [trigger] = &incident["triggers"].as_array().unwrap()[..] else { panic!("{incident}") };
    assert_eq!((&trigger["node"], &trigger["trigger"]["kind"]), (&"n2".into(), &"signal".into()));
    let (code, said) = agents.remove(0).process.terminated();
    assert_eq!(code, Some(0));
    let lines = said.matches("the gateway cannot be told of incidents").count();
    assert_eq!(lines, 1, "an outage is one line: {said}");
}

#[test]
fn a_node_that_the_network_cuts_off_while_it_is_asked_answers_once_when_it_is_back() {
    let gateway = GatewayPlace::new();
    let _running = gateway.start();
    let link = CutLink::to(&gateway.api);
    let nodes = NODES.map(|name| (name, Node::new()));
    let start = |place: usize| {
        let url = if place == 2 { format!("http://127.0.0.1:{}", link.port()) } else { gateway.url() };
        agent_by(&url, &gateway, &nodes[place], &nodes[place].1.path("sys"))
    };
    let mut agents: Vec<Agent> = (0..nodes.len()).map(start).collect();
    begin_job(&gateway, &nodes);

    agents[1].process.signal("USR1");
    for agent in &agents {
        agent.logged("the flight recorder keeps an incident");
    }
    // It was asked, and cannot have answered: half a minute after the trigger is still to come. Neither side hears of the cut.
    link.cut();
    agents[2].logged("the gateway cannot be told of incidents");
    let answered = || {
        let incidents = gateway.incidents();
        let nodes = incidents.iter().flat_map(|incident| incident["nodes"].as_array().unwrap());
        let had = nodes.filter(|node| !node["window"].is_null()).map(|node| node["node"].clone());
        had.collect::<Vec<_>>()
    };
    waiting::until("what the others have", answered, |had| had.len() == 2);
    assert_eq!(answered(), ["n1", "n2"]);
    link.mend();
    // Each row of each GPU once, of one incident.
    whole_incident(&gateway);
    assert_eq!(agents.remove(2).terminate(), Some(0));
    let own = incidents(&nodes[2].1.path("flight"));
    let [own] = &own[..] else { panic!("{own:?}") };
    assert_eq!(
        (&own["trigger"]["kind"], &own["triggers"]),
        (&"job".into(), &1.into()),
        "asked again, kept once"
    );
}

#[test]
fn a_gpu_whose_reads_slow_down_before_it_is_lost_is_the_first_victim_of_its_job() {
    let nodes = NODES.map(|name| (name, Node::new()));
    let Some(mut sysfs) = FaultySysfs::over(&nodes[1].1.path("sys")) else { return };
    let (gateway, faulty) = (GatewayPlace::new(), sysfs.path().to_path_buf());
    let running = gateway.start();
    let start = |place: usize| {
        let own = nodes[place].1.path("sys");
        agent(&gateway, &nodes[place], if place == 1 { &faulty } else { &own })
    };
    let mut agents: Vec<Agent> = (0..nodes.len()).map(start).collect();
    begin_job(&gateway, &nodes);
    let victim = VEGA56.replace("n1", "n2");
    let busy = "/class/drm/card1/device/gpu_busy_percent";
    // Readings are compared with sixty looks at those before, two a second.
    for _ in 0..6 {
        ticks(&mut sysfs, busy, 70);
    }
    sysfs.tell(json!({"path": busy, "slow": 0.2}));
    let kept = agents.iter().map(|agent| agent.logged("the flight recorder keeps an incident"));
    let kinds: Vec<Value> = kept.map(|line| line["kind"].clone()).collect();
    assert_eq!(kinds, ["job", "reads_slowed", "job"]);
    sysfs.tell(json!({"unplug": ["/class/drm/card1"]}));
    let up = series("gpu_up", 1, &victim);
    agents[1].until("the GPU to be lost", |text| value(text, &up) == Some(0.0));

    // The node that told is killed, and comes back without its GPU.
    running.kill();
    agents.remove(1).process.kill();
    agents[0].logged("the gateway cannot be told of incidents");
    let _running = gateway.start();
    agents.insert(1, start(1));
    let incident = whole_incident(&gateway);
    let [trigger] = &incident["triggers"].as_array().unwrap()[..] else { panic!("{incident}") };
    assert_eq!((&trigger["node"], &trigger["trigger"]["kind"]), (&"n2".into(), &"reads_slowed".into()));
    let detail = trigger["trigger"]["detail"].as_str().unwrap();
    assert!(detail.starts_with("its readings slowed from "), "{detail}");
    let first = &incident["first"];
    assert_eq!((&first["node"], &first["gpu"]), (&"n2".into(), &victim.as_str().into()), "{first}");
    let window = &incident["nodes"][1]["window"];
    let last_ns = |gpu: &str| {
        let gpus = window["gpus"].as_array().unwrap();
        gpus.iter().find(|of| of["gpu"] == gpu).and_then(|of| of["last_ns"].as_i64()).unwrap()
    };
    let other = RX580.replace("n1", "n2");
    assert!(last_ns(&other) - last_ns(&victim) > 10 * SECOND_NS, "{window}");
    assert_eq!(agents.remove(1).terminate(), Some(0));
    let own = incidents(&nodes[1].1.path("flight"));
    let [own] = &own[..] else { panic!("{own:?}") };
    assert_eq!((&own["trigger"]["kind"], &own["trigger"]["gpu"]), (&"reads_slowed".into(), &victim.into()));
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

#[test]
fn a_key_that_everyone_can_read_is_said_once_however_often_the_gateway_is_tried() {
    let node = Node::new();
    let key = node.path("key.pem");
    std::fs::write(&key, "a key").unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let (key, directory) = (key.to_str().unwrap(), node.path("flight"));
    let environment = [
        ("GPUVITALS_FLIGHT_GATEWAY_CLIENT_CERT", key),
        ("GPUVITALS_FLIGHT_GATEWAY_CLIENT_KEY", key),
        ("GPUVITALS_AGENT_SOCKET", "off"),
    ];
    let flags = ["--flight-gateway", "http://127.0.0.1:1", "--flight-dir", directory.to_str().unwrap()];
    let agent = node.agent_in(&flags, &environment);
    agent.logged("the gateway cannot be told of incidents");
    let (code, said) = agent.process.terminated();
    assert_eq!((code, said.matches("can read the private key").count()), (Some(0), 1), "{said}");
}
