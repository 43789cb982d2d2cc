//! The agent's figures about itself: `gpuvitals_*`, and `process_*` as every exporter has them.

use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_core::figures::{Family, Kind, Labels, Number};
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{AbsenceReason, IdentityColumn};
use gpuvitals_flight::FlightRecorder;
use gpuvitals_sources::attribution::Ownership;
use gpuvitals_sources::machine::PinnedFile;
use gpuvitals_sources::sampler::WorkerStats;
use rustix::thread::ClockId;

use crate::hooks::Jobs;
use crate::kernel::KernelWatch;
use crate::node::Node;
use crate::publishing::Publisher;

/// Where Kubernetes has put this agent: variables that a pod gets from the downward API, and their labels.
const PLACE: [(&str, &str); 3] =
    [("POD_NAME", "pod"), ("POD_NAMESPACE", "namespace"), ("NODE_NAME", "kubernetes_node")];

/// What is counted where it happens.
#[derive(Debug)]
pub(crate) struct AgentCounts {
    /// Scrapes answered since the start.
    pub scrapes: AtomicU64,
    /// Time spent on them, nanoseconds.
    pub scrape_ns: AtomicU64,
    /// What the listener counts.
    pub listener: Arc<gpuvitals_listener::Meter>,
    /// Whether the last reload worked.
    pub reload_worked: AtomicU64,
    /// When settings last came into force, UTC nanoseconds.
    pub reloaded_ns: AtomicI64,
    started_ns: i64,
    /// Figures of the program beside these.
    beside: fn() -> Vec<Family>,
    /// Where this agent runs.
    place: Labels,
    /// `/proc/self/status`, where there is one.
    status: Mutex<Option<PinnedFile>>,
}

impl AgentCounts {
    /// Nothing has happened yet on this node.
    pub(crate) fn new(node: &str, now_ns: i64, beside: fn() -> Vec<Family>) -> Self {
        let told =
            PLACE.into_iter().filter_map(|(variable, label)| Some((label, std::env::var(variable).ok()?)));
        Self {
            place: std::iter::once(("node", node.to_owned())).chain(told).collect(),
            scrapes: AtomicU64::new(0),
            scrape_ns: AtomicU64::new(0),
            listener: Arc::new(gpuvitals_listener::Meter::new("agent")),
            reload_worked: AtomicU64::new(1),
            reloaded_ns: AtomicI64::new(now_ns),
            started_ns: now_ns,
            beside,
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
pub(crate) fn families(node: &Node, counts: &AgentCounts, ownership: &Ownership) -> Vec<Family> {
    let mut families = of_process(counts, ownership.owners().cluster());
    families.extend(counts.listener.families());
    families.extend(of_sampler(node));
    families.extend(node.publisher().into_iter().flat_map(Publisher::families));
    families.push(
        Family::new(
            "gpuvitals_attribution_up",
            Kind::Gauge,
            "Whether the last asking for the owners of the GPUs was answered.",
        )
        .by("source", ownership.sources()),
    );
    families.push(
        Family::new(
            "gpuvitals_attribution_unresolved_total",
            Kind::Counter,
            "Devices held by pods that are no GPU known here: an id of unknown form, a claim that only its driver can tell, a GPU of another name.",
        )
        .by("cause", ownership.unresolved()),
    );
    families.extend(node.jobs().into_iter().flat_map(Jobs::families));
    families.extend(node.families_of_jobs());
    families.extend(node.kernel().into_iter().flat_map(KernelWatch::families));
    families.extend(node.flight().into_iter().flat_map(FlightRecorder::families));
    families.extend((counts.beside)());
    families
}

fn of_process(counts: &AgentCounts, cluster: Option<&str>) -> Vec<Family> {
    let mut place = counts.place.clone();
    place.extend(cluster.map(|cluster| ("cluster", cluster.to_owned())));
    let cpu = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
    let cpu = Duration::new(cpu.tv_sec.unsigned_abs(), u32::try_from(cpu.tv_nsec).unwrap_or(0));
    let mut resident =
        Family::new("process_resident_memory_bytes", Kind::Gauge, "Resident memory of the agent.");
    if let Some(bytes) = counts.resident_bytes() {
        resident = resident.with(Labels::new(), Number::from(bytes));
    }
    vec![
        Family::new("gpuvitals_build_info", Kind::Info, "Version of gpuvitals.")
            .by("version", [(env!("CARGO_PKG_VERSION"), true)]),
        Family::new(
            "gpuvitals_node_info",
            Kind::Info,
            "The node, its cluster, and the pod of this agent on it.",
        )
        .with(place, Number::Int(1)),
        Family::counter("gpuvitals_scrapes_total", "Scrapes answered.", &counts.scrapes),
        Family::counter(
            "gpuvitals_scrape_seconds_total",
            "Time spent answering scrapes.",
            Duration::from_nanos(counts.scrape_ns.load(Ordering::Relaxed)),
        ),
        Family::gauge(
            "gpuvitals_config_last_reload_successful",
            "Whether the last reload of the configuration worked.",
            &counts.reload_worked,
        ),
        Family::gauge(
            "gpuvitals_config_last_reload_success_timestamp_seconds",
            "When settings last came into force.",
            timestamp(counts.reloaded_ns.load(Ordering::Relaxed)),
        ),
        Family::counter("process_cpu_seconds_total", "CPU time of the agent.", cpu),
        resident,
        Family::gauge("process_start_time_seconds", "When the agent started.", timestamp(counts.started_ns)),
    ]
}

/// A count of a worker: name, sentence, and the field.
type WorkerFigure = (&'static str, &'static str, fn(&WorkerStats) -> Number);

const WORKER_FIGURES: [WorkerFigure; 6] = [
    ("gpuvitals_readings_total", "Readings of a device that ended.", |s| s.ticks.into()),
    ("gpuvitals_readings_missed_total", "Readings left out because the one before took too long.", |s| {
        s.ticks_missed.into()
    }),
    ("gpuvitals_read_seconds_total", "Time spent reading a device.", |s| {
        Duration::from_nanos(s.read_ns).into()
    }),
    ("gpuvitals_rows_total", "Rows that readings gave.", |s| s.rows.into()),
    ("gpuvitals_rows_repeated_total", "Rows left out because the driver had nothing newer.", |s| {
        s.repeats.into()
    }),
    ("gpuvitals_values_invalid_total", "Values that could not be true.", |s| s.invalid.into()),
];

fn of_sampler(node: &Node) -> Vec<Family> {
    let sampler = node.sampler();
    let stats: Vec<(Labels, WorkerStats)> = sampler
        .stats()
        .into_iter()
        .map(|stats| {
            // Rows that are not about the state of one device have the name of their table.
            let device = stats.targets.first().map_or_else(|| stats.table.to_string(), ToString::to_string);
            (vec![("driver", stats.driver.to_string()), ("device", device)], stats)
        })
        .collect();
    let mut families: Vec<Family> = WORKER_FIGURES
        .into_iter()
        .map(|(name, help, of)| {
            let family = Family::new(name, Kind::Counter, help);
            stats.iter().fold(family, |family, (labels, stats)| family.with(labels.clone(), of(stats)))
        })
        .collect();
    let mut failures = Family::new(
        "gpuvitals_readings_failed_total",
        Kind::Counter,
        "Readings of a device that gave nothing, by reason.",
    );
    for (labels, stats) in &stats {
        // From 0 on, so that the first failure is an increase.
        for reason in AbsenceReason::ALL {
            let count =
                stats.failures.iter().find(|(failed, _)| *failed == reason).map_or(0, |(_, count)| *count);
            let mut labels = labels.clone();
            labels.push(("reason", reason.as_str().to_owned()));
            failures = failures.with(labels, Number::from(count));
        }
    }
    families.push(failures);
    let mut last = Family::new(
        "gpuvitals_last_row_timestamp_seconds",
        Kind::Gauge,
        "When a GPU (or partition) or the host last gave a row.",
    );
    for state in sampler.states() {
        let device = state.identity.key().or_else(|| state.identity.shared(IdentityColumn::Node).cloned());
        if let (Some(device), Some(last_row_ns)) = (device, state.last_row_ns) {
            let labels = vec![("driver", state.driver.to_string()), ("device", device.to_string())];
            last = last.with(labels, timestamp(last_row_ns));
        }
    }
    families.push(last);
    families.push(Family::counter(
        "gpuvitals_rows_dropped_total",
        "Rows dropped because nobody took them in time.",
        sampler.rows_dropped(),
    ));
    families.push(Family::counter(
        "gpuvitals_samples_late_total",
        "Samples that came after their window was complete and are not in it.",
        node.exposition().late_samples(),
    ));
    families
}

/// Seconds since 1970, to the millisecond.
fn timestamp(ns: i64) -> Number {
    Number::Nanoseconds((ns - ns % (SECOND_NS / 1000)).max(0))
}
