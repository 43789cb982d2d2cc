//! A job of many nodes: one trigger, and what all of them have is collected. The agents run in this process, the gateway is a program.
//! Only with `GPUVITALS_TEST_LONG`, as it takes two minutes and both cores.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_agent::{Agent, AgentSettings, Parts};
use gpuvitals_core::batch::Value as Number;
use gpuvitals_core::time::{MINUTE_NS, SECOND_NS};
use gpuvitals_core::{Identity, IdentityColumn, MetricId, clock};
use gpuvitals_flight::{FlightError, FlightSettings, IncidentFiles};
use gpuvitals_queue::link::MessageQueue;
use gpuvitals_rig::waiting;
use gpuvitals_settings::Section as _;
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Driver, Due, Probe, ProbeError, Reading};
use gpuvitals_sources::registry::Discovery;
use gpuvitals_sources::settings::{Attribution, Sampling};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::all_of_a_job::GatewayPlace;

/// No incident of a node's own is over before the test is.
const NO_FILES: IncidentFiles = IncidentFiles {
    begin: |_, _| Err(FlightError::File("no node writes files here".into())),
    read: |_| Ok(Box::new(std::iter::empty())),
};
const NODES: usize = 125;
const GPUS: usize = 8;
/// Samples of a GPU a second.
const RATE: usize = 10;
/// Within this time after the window is over it is collected.
const COLLECTED_NS: i64 = 30 * SECOND_NS;
/// Between two looks, so that they take nothing from what is measured.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
const COLUMNS: [&str; 8] = [
    "power_w",
    "temperature_c",
    "temperature_memory_c",
    "utilization_pct",
    "memory_utilization_pct",
    "memory_used_mb",
    "gpu_clock_mhz",
    "mem_clock_mhz",
];

/// The GPUs of a node, all of one job. Their values move, and nothing happens to them.
struct NodeGpus {
    gpus: Vec<Arc<Identity>>,
    tick: u32,
}

impl NodeGpus {
    fn of(node: &str) -> Self {
        let gpu = |place: i32| {
            let uuid = format!("GPU-{node}-{place}");
            let texts = [
                (IdentityColumn::Node, node),
                (IdentityColumn::Vendor, "nvidia"),
                (IdentityColumn::Source, Driver::Simulated.as_str()),
                (IdentityColumn::Job, "4711"),
                (IdentityColumn::Uuid, uuid.as_str()),
            ];
            let mut named = Identity::default();
            named.index = Some(place);
            for (column, text) in texts {
                named.set(column, text).unwrap();
            }
            Arc::new(named)
        };
        Self { gpus: (0..).map(gpu).take(GPUS).collect(), tick: 0 }
    }
}

impl Probe for NodeGpus {
    fn driver(&self) -> Driver {
        Driver::Simulated
    }

    fn targets(&self) -> Vec<Arc<Identity>> {
        self.gpus.clone()
    }

    fn fill(&mut self, _due: Due, reading: &mut Reading) -> Result<(), ProbeError> {
        self.tick += 1;
        for (place, gpu) in (0..).zip(&self.gpus) {
            let row = reading.row(gpu);
            for (column, shift) in COLUMNS.into_iter().zip(0..) {
                let metric = MetricId::of(column);
                row.set(metric, Number::of(metric, f64::from(10 + (self.tick * (shift + 1) + place) % 60)));
            }
        }
        Ok(())
    }
}

fn find(machine: &Machine) -> Discovery {
    Discovery { probes: vec![Box::new(NodeGpus::of(&machine.node))], ..Discovery::default() }
}

/// The agent of a node, whose files are in this folder.
fn agent(name: &str, folder: &Path, gateway: &GatewayPlace, runtime: &Handle) -> Agent {
    let nothing = folder.join("nothing");
    std::fs::create_dir_all(&nothing).unwrap();
    let (sysfs, procfs, dev) = (nothing.clone(), nothing.clone(), nothing);
    let machine = Machine { sysfs, procfs, dev, node: name.into() };
    let sampling = [("sampling.node", json!(name)), ("sampling.rate", json!(RATE))];
    let off = [
        ("attribution.pod_resources", json!("off")),
        ("attribution.slurm", json!(false)),
        ("attribution.users", json!(false)),
    ];
    let flight = [
        ("flight.dir", json!(folder.join("flight"))),
        ("flight.gateway", json!(gateway.url())),
        // What each node writes for itself then takes nothing from what is measured.
        ("flight.after", json!("3m")),
    ];
    let queue = [("message_queue.address", json!(gateway.queue_url()))];
    let parts = Parts {
        settings: &AgentSettings::of(&[("agent.socket", json!("off"))]).unwrap(),
        flight: &FlightSettings::of(&flight).unwrap(),
        files: NO_FILES,
        state_directory: None,
        sampling: &Sampling::of(&sampling).unwrap(),
        attribution: &Attribution::of(&off).unwrap(),
        queue: &MessageQueue::of(&queue).unwrap(),
        found: find(&machine),
        machine,
        simulated: find,
        beside: Vec::new,
    };
    Agent::start(parts, runtime).unwrap()
}

/// Each agent has some files and connections of its own.
fn raise_open_files() {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
}

#[test]
fn a_job_of_125_nodes_is_collected_in_half_a_minute() {
    if std::env::var_os("GPUVITALS_TEST_LONG").is_none() {
        return;
    }
    raise_open_files();
    let (folder, gateway) = (tempfile::tempdir().unwrap(), GatewayPlace::new());
    let _running = gateway.start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let agents: Vec<Agent> = (0..NODES)
        .map(|number| {
            let name = format!("n{number:03}");
            agent(&name, &folder.path().join(&name), &gateway, runtime.handle())
        })
        .collect();
    let look = |path: &str| {
        std::thread::park_timeout(LOOK_PAUSE);
        serde_json::from_slice::<Value>(&gateway.get(path)).unwrap()
    };
    let held = || look("/api/v1/gpus?limit=1&where=job%3D4711")["total"].clone();
    waiting::until("all GPUs at the gateway", held, |total| *total == NODES * GPUS);
    let all_ns = clock::now_ns();
    // A window goes back a minute.
    let passed_ns = || {
        std::thread::park_timeout(LOOK_PAUSE);
        clock::now_ns() - all_ns
    };
    waiting::until("a minute of rows", passed_ns, |passed_ns| *passed_ns > MINUTE_NS + SECOND_NS);

    agents[0].keep_flight();
    let incidents = || look("/api/v1/flight/incidents")["incidents"].clone();
    let windows = |incidents: &Value| {
        let nodes = incidents[0]["nodes"].as_array().cloned().unwrap_or_default();
        nodes
            .into_iter()
            .map(|node| node["window"].clone())
            .filter(|window| !window.is_null())
            .collect::<Vec<_>>()
    };
    let incidents =
        waiting::until("what each node has", incidents, |incidents| windows(incidents).len() == NODES);
    assert_eq!(incidents.as_array().unwrap().len(), 1);
    let (windows, end_ns) = (windows(&incidents), incidents[0]["asked"]["to_ns"].as_i64().unwrap());
    let came_ns = windows.iter().map(|window| window["came_ns"].as_i64().unwrap()).max().unwrap();
    let bytes: u64 = windows.iter().map(|window| window["bytes"].as_u64().unwrap()).sum();
    eprintln!("{bytes} bytes of {NODES} nodes came within {} ms", (came_ns - end_ns) / 1_000_000);
    for window in &windows {
        let rows = window["rows"].as_u64().unwrap() as usize;
        // Some ticks are missed by a machine that does the work of 125.
        assert!(rows > 80 * RATE * GPUS && rows <= 91 * RATE * GPUS, "{window}");
        assert_eq!((&window["is_cut"], window["gpus"].as_array().unwrap().len()), (&false.into(), GPUS));
    }
    assert!(came_ns - end_ns < COLLECTED_NS, "{} s", (came_ns - end_ns) / SECOND_NS);
}
