//! Totals over sleep and over a driver that repeats itself, through an imitation of `/sys` that has faults by
//! rule. Skipped, with a line on standard error, if the machine has no FUSE.

use gpuvitals_rig::faulty_sysfs::FaultySysfs;
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Process;
use serde_json::{Value, json};

use super::node::{Node, series};
use super::process::{Agent, value};

const RX6900XT: &str = "946d7e1ef9b172dd";
const DEVICE: &str = "/class/drm/card0/device";
/// Offset of the snapshot's time in the table of the RX 6900 XT.
const SNAPSHOT_TIME: u64 = 32;
const TICK_S: f64 = 0.1;

/// Lets this many ticks begin, counted by the reads of a file that each tick reads once.
pub(crate) fn ticks(sysfs: &mut FaultySysfs, path: &str, count: u64) {
    let reads = sysfs.tell(json!({"await": path, "reads": 0}));
    sysfs.tell(json!({"await": path, "reads": reads + count}));
}

/// The figures of the one GPU: energy, unobserved time, time of the last sample.
fn totals(text: &str, of: impl Fn(&str) -> String) -> Option<[f64; 3]> {
    let figures =
        ["gpu_energy_joules_total", "gpu_unobserved_seconds_total", "gpu_last_sample_timestamp_seconds"];
    let [energy, unobserved, last] = figures.map(|name| value(text, &of(name)));
    Some([energy?, unobserved?, last?])
}

#[test]
fn sleep_is_unobserved_for_the_agent_and_for_a_recording() {
    let rounds = if std::env::var_os("GPUVITALS_TEST_LONG").is_some() { 7 } else { 2 };
    let node = Node::with(&[("rx580", "card0")]);
    let device = |file: &str| format!("sys{DEVICE}/{file}");
    node.write(&device("hwmon/hwmon4/power1_average"), "80000000\n");
    node.write(&device("power/control"), "auto\n");
    node.write(&device("power/runtime_status"), "active\n");
    let Some(mut sysfs) = FaultySysfs::over(&node.path("sys")) else { return };
    let (mounted, procfs) = (sysfs.path().to_path_buf(), node.path("proc"));
    let machine = ["--sysfs", mounted.to_str().unwrap(), "--procfs", procfs.to_str().unwrap()];
    let of = |name: &str| series(name, 0, super::node::RX580);
    let status = format!("{DEVICE}/power/runtime_status");

    let agent = Agent::start(&[&machine[..], &["--rate", "10"]].concat());
    let recorded = tempfile::tempdir().unwrap();
    let mut record = gpuvitals!();
    record.arg("record").args(machine).args(["--rate", "10", "--json", "--output"]).arg(recorded.path());
    let record = Process::start(&mut record);
    let first = agent.until("energy", |text| totals(text, of).is_some_and(|[energy, ..]| energy > 0.0));
    let first = totals(&first, of).unwrap();
    // Both read it at each tick, and once a second while the GPU sleeps.
    for _ in 0..rounds {
        ticks(&mut sysfs, &status, 30);
        sysfs.tell(json!({"path": status, "text": "suspended\n"}));
        ticks(&mut sysfs, &status, 5);
        sysfs.tell(json!({"path": status, "text": "active\n"}));
    }
    ticks(&mut sysfs, &status, 20);
    let text = agent.until("the GPU awake", |text| totals(text, of).is_some());
    let last = totals(&text, of).unwrap();
    let [energy, unobserved, passed] = [0, 1, 2].map(|at| last[at] - first[at]);
    assert!(unobserved > f64::from(rounds) * 1.0, "{first:?} {last:?}");
    assert!((energy / 80.0 + unobserved - passed).abs() < 2e-3, "{first:?} {last:?}");

    record.signal("INT");
    let said = record.ended().1;
    let gpu: Value = serde_json::from_str::<Value>(&said).unwrap()["gpus"][0].clone();
    let figure = |figure: &Value| figure.as_f64().unwrap();
    let (energy, gaps_s) = (figure(&gpu["energy"]["joules"]), figure(&gpu["gaps_s"]));
    assert_eq!(gpu["gaps"], rounds, "{gpu}");
    assert!((energy / 80.0 + gaps_s - figure(&gpu["duration_s"])).abs() < TICK_S / 10.0, "{gpu}");
}

#[test]
fn a_snapshot_that_stands_still_ends_the_totals_until_it_moves_again() {
    let node = Node::with(&[("rx6900xt", "card0")]);
    let Some(mut sysfs) = FaultySysfs::over(&node.path("sys")) else { return };
    let (mounted, procfs) = (sysfs.path().to_path_buf(), node.path("proc"));
    let table = format!("{DEVICE}/gpu_metrics");
    sysfs.tell(json!({"path": table, "stamp": SNAPSHOT_TIME}));
    let machine = ["--sysfs", mounted.to_str().unwrap(), "--procfs", procfs.to_str().unwrap()];
    let agent = Agent::start(&[&machine[..], &["--rate", "10"]].concat());
    let of = |name: &str| series(name, 0, RX6900XT);
    agent.until("energy", |text| totals(text, of).is_some_and(|[energy, ..]| energy > 0.0));

    sysfs.tell(json!({"path": table}));
    let before = totals(&agent.scrape(), of).unwrap();
    let text = agent.until("a stale GPU", |text| value(text, &of("gpu_up")) == Some(0.0));
    let reason = of("gpu_down_reason").replacen('{', "{reason=\"invalid\",", 1);
    assert_eq!(value(&text, &reason), Some(1.0), "{text}");
    let samples = value(&text, &of("gpu_samples_total"));
    ticks(&mut sysfs, &table, 15);
    let text = agent.scrape();
    assert_eq!(value(&text, &of("gpu_up")), Some(0.0), "{text}");
    assert_eq!(value(&text, &of("gpu_samples_total")), samples, "a repetition is no sample");

    sysfs.tell(json!({"path": table, "stamp": SNAPSHOT_TIME}));
    let text = agent.until("the GPU back", |text| totals(text, of).is_some());
    let after = totals(&text, of).unwrap();
    let [energy, unobserved, passed] = [0, 1, 2].map(|at| after[at] - before[at]);
    let watts = value(&text, &of("gpu_power_watts")).unwrap();
    assert!(unobserved > 1.5, "{before:?} {after:?}");
    assert!(energy <= watts * (passed - unobserved) + 0.1, "{before:?} {after:?}");
}
