//! A day of simulated GPUs through the alert rules, evaluated by Prometheus' own engine: silent on sound GPUs of either vendor; a
//! faulty GPU among them fires its alerts and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::catalogue::Series;
use gpuvitals_core::figures::Format;
use gpuvitals_core::ports::{Poll, Source as _};
use gpuvitals_core::{AbsenceReason, Identity};
use gpuvitals_exposition::{Compat, DeviceStatus, Exposition, ExpositionConfig};
use gpuvitals_inputs::simulated::{SimConfig, Simulated};

use super::alerts::{GROUPS, RULES};
use super::checks::test_rules;
use super::root;
use crate::reader::read;

const SECOND_NS: i64 = 1_000_000_000;
/// Between two ticks of the simulation, each of which is scraped.
const STEP_S: i64 = 30;
const STEP: Duration = Duration::from_secs(STEP_S.unsigned_abs());

/// Simulated hosts, and the GPUs of them that are watched.
struct Watched {
    fleet: Simulated,
    /// Whether the GPUs of this node are watched.
    takes: fn(&str) -> bool,
    /// By uuid, with the time of the latest row.
    seen: BTreeMap<Arc<str>, (Arc<Identity>, i64)>,
}

impl Watched {
    fn new(gpus: usize, hosts: usize, takes: fn(&str) -> bool) -> Self {
        let config = SimConfig { gpus, hosts: Some(hosts), interval: STEP, ..SimConfig::default() };
        Self { fleet: Simulated::new(config).unwrap(), takes, seen: BTreeMap::new() }
    }

    /// The rows that are due.
    fn observe(&mut self, now_ns: i64, exposition: &mut Exposition) {
        while let Ok(Poll::Ready(batch)) = self.fleet.poll(now_ns) {
            exposition.observe(&batch);
            for row in 0..batch.rows() {
                let identity = batch.identity(row);
                if (self.takes)(identity.node().unwrap()) {
                    self.seen.insert(identity.key().unwrap(), (Arc::new(identity), now_ns));
                }
            }
        }
    }

    /// A GPU without a row at this time is gone.
    fn devices(&self, now_ns: i64) -> impl Iterator<Item = DeviceStatus> {
        self.seen.values().map(move |(identity, last_ns)| DeviceStatus {
            identity: Arc::clone(identity),
            sharers: Vec::new(),
            up: *last_ns == now_ns,
            reason: (*last_ns != now_ns).then_some(AbsenceReason::Gone),
            stuck: false,
            since_ns: 0,
            update_interval: None,
        })
    }
}

/// The sound GPUs: those of each host but the first. H100, MI300X, A100 and RTX 6000; seven, or 56 in the long tests.
fn sound() -> Watched {
    let gpus = if std::env::var_os("GPUVITALS_TEST_LONG").is_some() { 64 } else { 8 };
    Watched::new(gpus, 8, |node| node != "sim-node-0001")
}

/// The values of every series that the rules read, one a scrape; none: it was not there.
fn scraped(mut fleets: Vec<Watched>, hours: i64) -> BTreeMap<String, Vec<Option<f64>>> {
    let exprs: Vec<String> = GROUPS.iter().flat_map(|(_, alerts)| alerts()).map(|alert| alert.expr).collect();
    let words = exprs.iter().flat_map(|expr| expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let read_by_rules: BTreeSet<&str> = words.collect();
    let config =
        ExpositionConfig { set: Series::Standard, compat: Compat::Off, window: STEP, interval: STEP };
    let mut exposition = Exposition::new(config);
    let mut series: BTreeMap<String, Vec<Option<f64>>> = BTreeMap::new();
    let mut out = Vec::new();
    let scrapes = usize::try_from(hours * 3600 / STEP_S).unwrap();
    for (at, now_s) in (0..hours * 3600).step_by(usize::try_from(STEP_S).unwrap()).enumerate() {
        let now_ns = now_s * SECOND_NS;
        for fleet in &mut fleets {
            fleet.observe(now_ns, &mut exposition);
        }
        let devices: Vec<_> = fleets.iter().flat_map(|fleet| fleet.devices(now_ns)).collect();
        exposition.render(Format::Prometheus, now_ns, &devices, &[], &mut out);
        let text = std::str::from_utf8(&out).unwrap();
        let kept: String =
            text.split_inclusive('\n').filter(|line| read_by_rules.contains(named(line))).collect();
        for sample in read(Format::Prometheus, kept.as_bytes()) {
            let key = key(&sample.name, &sample.labels);
            series.entry(key).or_insert_with(|| vec![None; scrapes])[at] = Some(sample.value);
        }
    }
    series
}

/// The family that a line of the text is about.
fn named(line: &str) -> &str {
    let line = line.trim_start_matches("# HELP ").trim_start_matches("# TYPE ");
    line.split(['{', ' ']).next().unwrap_or_default()
}

/// The series as a scrape of an agent names it: the label `job` of the agent's own makes way.
fn key(name: &str, labels: &BTreeMap<String, String>) -> String {
    let own = labels.iter().map(|(label, text)| {
        let label = if label == "job" { "exported_job" } else { label };
        format!("{label}=\"{text}\"")
    });
    let labels: Vec<_> = own.chain(["job=\"agent\"", "instance=\"node7:9400\""].map(str::to_owned)).collect();
    format!("{name}{{{}}}", labels.join(","))
}

/// The values as promtool writes them: runs of one value together; a series that ends goes stale at once.
fn values(values: &[Option<f64>]) -> String {
    let mut out = String::new();
    let mut before = None;
    for run in values.chunk_by(|one, other| one == other) {
        let more = run.len() - 1;
        match (run[0], before) {
            (Some(value), _) => write!(out, "{value}x{more} ").unwrap(),
            (None, None) => write!(out, "_x{} ", run.len()).unwrap(),
            (None, Some(_)) if more == 0 => out.push_str("stale "),
            (None, Some(_)) => write!(out, "stale _x{more} ").unwrap(),
        }
        before = run[0];
    }
    out.trim_end().to_owned()
}

/// Runs the rules over the hours; exactly these alerts fire, by name, node and index of the GPU.
fn fires(name: &str, fleets: Vec<Watched>, hours: i64, wanted: &[(&str, &str, i32)]) {
    let rules = root().join(RULES).canonicalize().unwrap();
    let mut out = format!("rule_files: [\"{}\"]\nevaluation_interval: 1m\ntests:\n", rules.display());
    writeln!(out, "  - interval: {STEP_S}s\n    input_series:").unwrap();
    let series = scraped(fleets, hours);
    assert!(series.len() > 100, "{} series", series.len());
    for (series, of) in series {
        writeln!(out, "      - series: '{series}'\n        values: '{}'", values(&of)).unwrap();
    }
    writeln!(
        out,
        "    promql_expr_test:\n      - expr: group by (alertname, node, gpu) (count_over_time(ALERTS{{alertstate=\"firing\"}}[{hours}h]))\n        \
         eval_time: {hours}h\n        exp_samples:"
    )
    .unwrap();
    for (alert, node, gpu) in wanted {
        let labels = format!("alertname=\"{alert}\", node=\"{node}\", gpu=\"{gpu}\"");
        writeln!(out, "          - {{labels: '{{{labels}}}', value: 1}}").unwrap();
    }
    test_rules(&format!("day-{name}.yaml"), &out);
}

#[test]
fn a_clean_day_of_simulated_gpus_fires_no_alert() {
    fires("clean", vec![sound()], 24, &[]);
}

/// The first simulated host has the faulty GPUs: 3 idles while a pod holds it, 4 cannot dissipate its heat, 5 vanishes, the memory
/// of 6 fails.
#[test]
fn each_faulty_gpu_among_sound_ones_fires_its_alerts_alone() {
    let faulty = Watched::new(8, 1, |_| true);
    let wanted = [
        ("GpuIdleWhileHeld", "sim-node-0001", 3),
        ("GpuLost", "sim-node-0001", 5),
        ("GpuRowRemapPending", "sim-node-0001", 6),
        ("GpuSoftwareThermalSlowdown", "sim-node-0001", 4),
        ("GpuThrottledByHeat", "sim-node-0001", 4),
        ("GpuXidNonfatal", "sim-node-0001", 6),
    ];
    fires("faulty", vec![sound(), faulty], 3, &wanted);
}
