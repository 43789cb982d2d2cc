//! Energy of scripted loads, from the files of a driver to the totals of the agent and of a recording: each tick is written,
//! read by the dialect and totalled, in a time that is passed in.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use gpuvitals_analysis::summary::Summary;
use gpuvitals_core::catalogue::Series;
use gpuvitals_core::figures::Format;
use gpuvitals_core::{BatchBuilder, Origin, Table};
use gpuvitals_exposition::{Compat, DeviceStatus, Exposition, ExpositionConfig};
use gpuvitals_sources::machine::Machine;
use gpuvitals_sources::probe::{Driver, Due, Probe, Reading};
use gpuvitals_sources::registry::{discover, no_simulation};

use super::node::Node;

const S: i64 = 1_000_000_000;
const DEVICE: &str = "sys/class/drm/card0/device";
/// Begins long after 1970 and after the host booted.
const START_NS: i64 = 1_752_840_000 * S;

/// Power in watts at a time in seconds.
type Profile = (&'static str, fn(f64) -> f64);

const SINE: Profile = ("sine", |t| 160.0 + 120.0 * (std::f64::consts::TAU * t / 2.7).sin());
const SQUARE: Profile = ("square", |t| if t.rem_euclid(3.1) < 1.3 { 240.0 } else { 60.0 });
/// 40 ms of 290 W, some three times a second.
const SPIKES: Profile = ("spikes", |t| if t.rem_euclid(0.3371) < 0.04 { 290.0 } else { 50.0 });
/// Another power every half second.
const RANDOM: Profile = ("random", |t| 40.0 + 250.0 * ((t * 2.0).floor() * 0.618_033_988_7).fract());

/// Millijoules on the part's counter, from the true ones and whether 50 s have passed.
type Counter = (&'static str, fn(f64, bool) -> f64);

const COUNTERS: [Counter; 7] = [
    ("good", |mj, _| 5e6 + mj),
    ("reset", |mj, is_late| mj + if is_late { -2e6 } else { 5e6 }),
    ("1.2 times", |mj, _| 5e6 + 1.2 * mj),
    ("twice", |mj, _| 5e6 + 2.0 * mj),
    ("stuck", |mj, is_late| if is_late { 9e6 } else { 5e6 + mj }),
    ("jump", |mj, is_late| mj + if is_late { 2e12 } else { 5e6 }),
    ("in another unit", |mj, _| mj * 1e3),
];

/// The file that is written at each tick, in place: emptied first it would go to the disk each time.
enum Files {
    Hwmon(File),
    GpuMetrics(File, Vec<u8>, fn(f64, bool) -> f64),
}

impl Files {
    fn write(&mut self, watts: f64, joules: f64, t: f64) {
        match self {
            Self::Hwmon(file) => {
                file.write_all_at(format!("{:012.0}\n", watts * 1e6).as_bytes(), 0).unwrap();
            }
            Self::GpuMetrics(file, table, counter) => {
                let mut put = |at: usize, bytes: &[u8]| table[at..at + bytes.len()].copy_from_slice(bytes);
                put(22, &(watts.round() as u16).to_le_bytes());
                put(24, &(counter(joules * 1e3, t >= 50.0) as u64).to_le_bytes());
                put(32, &((t * 1e9) as u64 + 1).to_le_bytes());
                file.write_all_at(table, 0).unwrap();
            }
        }
    }
}

fn probe(node: &Node) -> Box<dyn Probe> {
    let machine = Machine { sysfs: node.path("sys"), ..Machine::local("n1") };
    let mut found = discover(&machine, &[Driver::AmdSysfs], no_simulation);
    found.probes.retain(|probe| probe.table() == Table::GpuEvents);
    found.probes.remove(0)
}

/// The energy that the agent and a recording say, and the true one. The GPU sleeps from 30 s to 31.5 s and draws nothing.
fn run(files: &mut Files, node: &Node, power: fn(f64) -> f64, hz: i64, seconds: i64) -> [f64; 3] {
    const FINE: i64 = 5_000;
    let mut probe = probe(node);
    let identity = probe.targets().remove(0);
    let window = Duration::from_secs(30);
    let mut agent = Exposition::new(ExpositionConfig {
        set: Series::Basic,
        compat: Compat::Off,
        window,
        interval: Duration::ZERO,
    });
    let mut record = Summary::new(Duration::from_secs_f64(1.0 / hz as f64), Duration::from_secs(1));
    let (mut truth, mut was_asleep, mut reading) = (0.0, false, Reading::default());
    for second in 0..seconds {
        let mut batch = BatchBuilder::new(Table::GpuEvents);
        let who = batch.add_identity(&identity);
        for tick in 0..hz {
            let t = second as f64 + tick as f64 / hz as f64;
            let is_asleep = (30.0..31.5).contains(&t);
            let at_ns = START_NS + second * S + tick * S / hz;
            if is_asleep && !was_asleep {
                batch.row_at(at_ns, at_ns, who);
            } else if !is_asleep {
                files.write(power(t), truth, t);
                reading.clear();
                probe.read(Due { slow: tick == 0, rare: t == 0.0 }, &mut reading).unwrap();
                let row = batch.row_at(at_ns, at_ns, who);
                for (metric, value) in reading.rows()[0].values() {
                    batch.set(row, *metric, *value).unwrap();
                }
                let parts = (0..FINE / hz).map(|part| power(t + (part as f64 + 0.5) / FINE as f64));
                truth += parts.sum::<f64>() / FINE as f64;
            }
            was_asleep = is_asleep;
        }
        if let Some(batch) = batch.finish(Origin::default(), 0) {
            agent.observe(&batch);
            record.add(&batch);
        }
    }
    let device = DeviceStatus {
        identity,
        sharers: Vec::new(),
        up: true,
        reason: None,
        stuck: false,
        since_ns: 0,
        update_interval: None,
    };
    let mut text = Vec::new();
    agent.render(Format::Prometheus, START_NS + seconds * S, &[device], &[], &mut text);
    let text = String::from_utf8(text).unwrap();
    let total = text.lines().find(|line| line.starts_with("gpu_energy_joules_total{")).unwrap();
    let total = total.rsplit_once(' ').unwrap().1.parse().unwrap();
    [total, record.gpus()[0].energy.as_ref().unwrap().joules, truth]
}

fn check(what: &str, [agent, record, truth]: [f64; 3], lost: f64) {
    for (who, joules) in [("agent", agent), ("record", record)] {
        let off = (joules - truth).abs() / truth;
        assert!(off <= 0.01 + lost, "{what}: {who} says {joules} J for {truth} J");
    }
}

#[test]
fn the_energy_of_a_scripted_load_is_within_a_hundredth_by_hwmon_and_by_gpu_metrics() {
    let is_long = std::env::var_os("GPUVITALS_TEST_LONG").is_some();
    let scripts: &[(Profile, i64, i64)] = if is_long {
        &[
            (SINE, 10, 600),
            (SQUARE, 10, 600),
            (RANDOM, 10, 600),
            (SINE, 100, 300),
            (SQUARE, 100, 300),
            (SPIKES, 100, 300),
            (RANDOM, 100, 300),
            (SPIKES, 1_000, 150),
        ]
    } else {
        &[(SINE, 10, 130), (SQUARE, 10, 130), (RANDOM, 10, 130), (SPIKES, 100, 35), (SPIKES, 1_000, 4)]
    };
    let hwmon = Node::with(&[("rx580", "card0")]);
    let table = Node::with(&[("rx6900xt", "card0")]);
    let captured = |node: &Node, file: &str| -> (File, Vec<u8>) {
        let path = node.path(&format!("{DEVICE}/{file}"));
        let bytes = std::fs::read(&path).unwrap();
        (File::options().write(true).open(path).unwrap(), bytes)
    };
    for &((profile, power), hz, seconds) in scripts {
        // The tick before sleep and that after it are not bridged.
        let lost = 3.0 / (hz * seconds) as f64;
        let mut files = Files::Hwmon(captured(&hwmon, "hwmon/hwmon4/power1_average").0);
        let found = run(&mut files, &hwmon, power, hz, seconds);
        check(&format!("{profile} by hwmon at {hz} Hz"), found, lost);
        // Faults of counters that come later are shown at 10 Hz.
        let counters = if is_long || hz == 10 { &COUNTERS[..] } else { &COUNTERS[..1] };
        for &(name, counter) in counters {
            let (file, bytes) = captured(&table, "gpu_metrics");
            let mut files = Files::GpuMetrics(file, bytes, counter);
            let found = run(&mut files, &table, power, hz, seconds);
            check(&format!("{profile} by gpu_metrics at {hz} Hz, counter {name}"), found, lost);
        }
    }
}
