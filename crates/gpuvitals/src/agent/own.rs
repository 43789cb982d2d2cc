//! The agent's figures about itself: `gpuvitals_*`, and `process_*` as every exporter has them.

use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_core::IdentityColumn;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_exposition::{Family, Kind, Labels};
use gpuvitals_sources::machine::PinnedFile;
use gpuvitals_sources::sampler::WorkerStats;
use rustix::thread::ClockId;

use super::node::Node;
use super::publishing::Publisher;
use crate::ownership::Ownership;

/// Where Kubernetes has put this agent: variables that a pod gets from the downward API, and their labels.
const PLACE: [(&str, &str); 3] =
    [("POD_NAME", "pod"), ("POD_NAMESPACE", "namespace"), ("NODE_NAME", "kubernetes_node")];

/// What is counted where it happens.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Scrapes answered.
    pub scrapes: AtomicU64,
    /// Time spent on them, nanoseconds.
    pub scrape_ns: AtomicU64,
    /// Connections that are open.
    pub connections: AtomicU64,
    /// Requests without certificate or login.
    pub refused: AtomicU64,
    /// Whether the last reload worked.
    pub reload_worked: AtomicU64,
    /// When settings last came into force, UTC nanoseconds.
    pub reloaded_ns: AtomicI64,
    started_ns: i64,
    /// Where this agent runs.
    place: Labels,
    /// `/proc/self/status`, where there is one.
    status: Mutex<Option<PinnedFile>>,
}

impl Counts {
    /// Nothing has happened yet on this node.
    pub(crate) fn new(node: &str, now_ns: i64) -> Self {
        let told =
            PLACE.into_iter().filter_map(|(variable, label)| Some((label, std::env::var(variable).ok()?)));
        Self {
            place: std::iter::once(("node", node.to_owned())).chain(told).collect(),
            scrapes: AtomicU64::new(0),
            scrape_ns: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            reload_worked: AtomicU64::new(1),
            reloaded_ns: AtomicI64::new(now_ns),
            started_ns: now_ns,
            status: Mutex::new(PinnedFile::open(Path::new("/proc/self/status")).ok()),
        }
    }

    /// Resident memory in bytes, from `VmRSS` (kB) of `/proc/self/status`.
    fn resident_bytes(&self) -> Option<u64> {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let text = status.as_mut()?.read_text().ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }
}

/// All families, in the order they are shown.
pub(crate) fn families(node: &Node, counts: &Counts, ownership: &Ownership) -> Vec<Family> {
    let mut families = of_process(counts);
    families.extend(of_sampler(node));
    families.extend(node.publisher().into_iter().flat_map(Publisher::families));
    families.push(family(
        "gpuvitals_attribution_up",
        "Whether the last asking for the owners of the GPUs was answered.",
        Kind::Gauge,
        ownership
            .told()
            .into_iter()
            .map(|(teller, up)| (vec![("source", teller.to_owned())], flag(up)))
            .collect(),
    ));
    families.extend(crate::telemetry::families());
    families
}

fn of_process(counts: &Counts) -> Vec<Family> {
    let count = |count: &AtomicU64| whole(count.load(Ordering::Relaxed));
    let one = |name, help, kind, value| family(name, help, kind, vec![(Labels::new(), value)]);
    let build = vec![("version", env!("CARGO_PKG_VERSION").to_owned())];
    let resident = counts.resident_bytes().map(|bytes| (Labels::new(), whole(bytes)));
    let cpu = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    let cpu = Duration::new(cpu.tv_sec.unsigned_abs(), u32::try_from(cpu.tv_nsec).unwrap_or(0));
    vec![
        family("gpuvitals_build_info", "Version of gpuvitals.", Kind::Info, vec![(build, 1.0)]),
        family(
            "gpuvitals_node_info",
            "The node, and the pod of this agent on it.",
            Kind::Info,
            vec![(counts.place.clone(), 1.0)],
        ),
        one("gpuvitals_scrapes_total", "Scrapes answered.", Kind::Counter, count(&counts.scrapes)),
        one(
            "gpuvitals_scrape_seconds_total",
            "Time spent answering scrapes.",
            Kind::Counter,
            seconds(counts.scrape_ns.load(Ordering::Relaxed)),
        ),
        one("gpuvitals_connections", "Connections that are open.", Kind::Gauge, count(&counts.connections)),
        one(
            "gpuvitals_requests_refused_total",
            "Requests without the certificate or login that is asked for.",
            Kind::Counter,
            count(&counts.refused),
        ),
        one(
            "gpuvitals_config_last_reload_successful",
            "Whether the last reload of the configuration worked.",
            Kind::Gauge,
            count(&counts.reload_worked),
        ),
        one(
            "gpuvitals_config_last_reload_success_timestamp_seconds",
            "When settings last came into force.",
            Kind::Gauge,
            timestamp(counts.reloaded_ns.load(Ordering::Relaxed)),
        ),
        one("process_cpu_seconds_total", "CPU time of the agent.", Kind::Counter, cpu.as_secs_f64()),
        family(
            "process_resident_memory_bytes",
            "Resident memory of the agent.",
            Kind::Gauge,
            resident.into_iter().collect(),
        ),
        one(
            "process_start_time_seconds",
            "When the agent started.",
            Kind::Gauge,
            timestamp(counts.started_ns),
        ),
    ]
}

/// A count of a worker: name, sentence, where it stands.
type WorkerFigure = (&'static str, &'static str, fn(&WorkerStats) -> f64);

const WORKER_FIGURES: [WorkerFigure; 6] = [
    ("gpuvitals_readings_total", "Readings of a device that ended.", |s| whole(s.ticks)),
    ("gpuvitals_readings_missed_total", "Readings left out because the one before took too long.", |s| {
        whole(s.ticks_missed)
    }),
    ("gpuvitals_read_seconds_total", "Time spent reading a device.", |s| seconds(s.read_ns)),
    ("gpuvitals_rows_total", "Rows that readings gave.", |s| whole(s.rows)),
    ("gpuvitals_rows_repeated_total", "Rows left out because the driver had nothing newer.", |s| {
        whole(s.repeats)
    }),
    ("gpuvitals_values_invalid_total", "Values that could not be true.", |s| whole(s.invalid)),
];

fn of_sampler(node: &Node) -> Vec<Family> {
    let sampler = node.sampler();
    let stats: Vec<(Labels, WorkerStats)> = sampler
        .stats()
        .into_iter()
        .map(|stats| {
            let device = stats.targets.first().map_or_else(String::new, ToString::to_string);
            (vec![("driver", stats.driver.to_string()), ("device", device)], stats)
        })
        .collect();
    let mut families: Vec<Family> = WORKER_FIGURES
        .into_iter()
        .map(|(name, help, of)| {
            let samples = stats.iter().map(|(labels, stats)| (labels.clone(), of(stats))).collect();
            family(name, help, Kind::Counter, samples)
        })
        .collect();
    let failures = stats.iter().flat_map(|(labels, stats)| {
        stats.failures.iter().map(|(reason, count)| {
            let mut labels = labels.clone();
            labels.push(("reason", reason.as_str().to_owned()));
            (labels, whole(*count))
        })
    });
    families.push(family(
        "gpuvitals_readings_failed_total",
        "Readings of a device that gave nothing, by reason.",
        Kind::Counter,
        failures.collect(),
    ));
    let last = sampler.states().into_iter().filter_map(|state| {
        let device = state.identity.key().or_else(|| state.identity.shared(IdentityColumn::Node).cloned())?;
        let labels = vec![("driver", state.driver.to_string()), ("device", device.to_string())];
        Some((labels, timestamp(state.last_row_ns?)))
    });
    families.push(family(
        "gpuvitals_last_row_timestamp_seconds",
        "When a GPU (or partition) or the host last gave a row.",
        Kind::Gauge,
        last.collect(),
    ));
    families.push(family(
        "gpuvitals_rows_dropped_total",
        "Rows dropped because nobody took them in time.",
        Kind::Counter,
        vec![(Labels::new(), whole(sampler.rows_dropped()))],
    ));
    families.push(family(
        "gpuvitals_samples_late_total",
        "Samples that came after their window was complete and are not in it.",
        Kind::Counter,
        vec![(Labels::new(), whole(node.exposition().late_samples()))],
    ));
    families
}

pub(super) fn family(
    name: &'static str,
    help: &'static str,
    kind: Kind,
    samples: Vec<(Labels, f64)>,
) -> Family {
    Family { name, help, kind, samples }
}

pub(super) fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts beyond 2^53 are rounded, as in every Prometheus client"
)]
pub(super) fn whole(count: u64) -> f64 {
    count as f64
}

fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

fn timestamp(ns: i64) -> f64 {
    // In milliseconds first: nanoseconds since 1970 have more digits than a double.
    whole((ns / (SECOND_NS / 1000)).max(0).unsigned_abs()) / 1e3
}
