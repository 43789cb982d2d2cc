//! Summary of a recording: per GPU energy, power, clocks, throttling, load and memory; and the host.
//!
//! Fed batch by batch in constant memory, however long the recording. Means are over time, by the monotonic
//! clock if the rows carry it: a driver that repeats itself, or a missed tick, weighs no more than its time.
//! A figure that was not read is none.

mod extent;
mod tally;

use std::time::Duration;

use gpuvitals_core::batch::MetricColumn;
use gpuvitals_core::catalogue::Scope;
use gpuvitals_core::energy::{Energy, EnergyColumns, EnergyInterval, EnergySource};
use gpuvitals_core::identity::SIMULATED;
use gpuvitals_core::integral::{Blanks, rounded};
use gpuvitals_core::quantity::counted;
use gpuvitals_core::sketch::Sketch;
use gpuvitals_core::throttle::StepColumns;
use gpuvitals_core::{Batch, Identity, IdentityColumn, MetricId, Table};
use serde::Serialize;

use tally::{Gauge, Pulse};

pub use extent::Extent;

/// Least distance between two samples that is a gap: the slow tier always gives a row a second.
const GAP_MIN_NS: i64 = 2_500_000_000;
/// A distance this many times the sampling interval is a gap.
const GAP_INTERVALS: i64 = 5;
/// Most GPUs of a summary; partitions count. No node has more.
const GPUS_MAX: usize = 1_024;
/// Most hosts of a summary.
const HOSTS_MAX: usize = 1_024;

const POWER: MetricId = MetricId::of("power_w");
const POWER_AVERAGE: MetricId = MetricId::of("power_average_w");
const GPU_CLOCK: MetricId = MetricId::of("gpu_clock_mhz");
const MEM_CLOCK: MetricId = MetricId::of("mem_clock_mhz");
const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const UTILIZATION: MetricId = MetricId::of("utilization_pct");
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");
const THROTTLED: MetricId = MetricId::of("throttled");
const THROTTLED_BY: [MetricId; 2] =
    [MetricId::of("throttled_power_ns"), MetricId::of("throttled_thermal_ns")];

const CPU: MetricId = MetricId::of("cpu_pct");
const HOST_MEMORY: MetricId = MetricId::of("memory_mb");
const HOST_COUNTERS: [MetricId; 3] =
    [MetricId::of("ctx_switches"), MetricId::of("page_faults"), MetricId::of("irqs")];

/// Longest distance between two samples that is no gap, nanoseconds, for samples this far apart.
pub fn gap_ns(interval: Duration) -> i64 {
    let ns = i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX);
    ns.saturating_mul(GAP_INTERVALS).max(GAP_MIN_NS)
}

/// Sums up batches as they come.
#[derive(Debug)]
pub struct Summary {
    gap_ns: i64,
    system_gap_ns: i64,
    gpus: Vec<(GpuKey, GpuTally)>,
    hosts: Vec<(Identity, HostTally)>,
    left_out: u64,
}

/// Energy, and the source of the number.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EnergyFigure {
    /// Energy over the rows, joules.
    pub joules: f64,
    /// Where the number comes from.
    pub source: EnergySource,
    /// The reason for the source.
    pub reason: String,
    /// Seconds over which power was sampled.
    pub power_seen_s: f64,
    /// How far it may be off: `± 5.5 %`, or `not known` and why.
    pub error: String,
    /// Where it lies, and what that is made of; none: not known.
    pub interval: Option<EnergyInterval>,
}

impl EnergyFigure {
    /// How the number is known, and why so: `integrated from power; the GPU has no energy counter`.
    pub fn origin(&self) -> String {
        let from = match self.source {
            EnergySource::Counter => "by the hardware's counter",
            EnergySource::Integrated => "integrated from power",
        };
        format!("{from}; {}", self.reason)
    }
}

/// Power in watts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PowerFigure {
    /// Mean over time.
    pub mean: f64,
    /// Largest sample, W.
    pub max: f64,
    /// Value that 99 % of the samples do not exceed, within 1 %.
    pub p99: f64,
    /// Whether it is the part's own average, because it has no instantaneous reading.
    pub averaged: bool,
}

/// How long the clocks were held down.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ThrottleFigure {
    /// How long something held the clocks down, seconds.
    pub seconds: f64,
    /// Share of the observed time, 0 to 1.
    pub share: f64,
    /// Computed from the hardware's counters of time or of steps, not from a sampled state: the longer of
    /// power and heat, so a lower bound.
    pub counted: bool,
}

/// What the rows say of one GPU, or of a partition of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuSummary {
    /// Its key: `uuid`, or `uuid:partition`.
    pub id: String,
    /// Index on the node.
    pub gpu: Option<i32>,
    /// Name of its host.
    pub node: Option<String>,
    /// Product name, as the driver gives it.
    pub model: Option<String>,
    /// PCI address, `0000:65:00.0`.
    pub pci: Option<String>,
    /// The driver that read it.
    pub driver: Option<String>,
    /// From the first to the last row, seconds.
    pub duration_s: f64,
    /// How many rows there are.
    pub samples: u64,
    /// Rows a second.
    pub rate_hz: Option<f64>,
    /// Times without a row for longer than a gap, and times in which the GPU is known to have reported
    /// nothing.
    pub gaps: u64,
    /// Their length, seconds.
    pub gaps_s: f64,
    /// Energy over the rows; none: neither counted nor to be had from power.
    pub energy: Option<EnergyFigure>,
    /// Power, W; none: no row has one.
    pub power_w: Option<PowerFigure>,
    /// Clock of the graphics and compute engine.
    pub gpu_clock_mhz: Option<Extent>,
    /// Clock of the memory.
    pub mem_clock_mhz: Option<Extent>,
    /// Main temperature, °C.
    pub temperature_c: Option<Extent>,
    /// How long its clocks were held down; none: the driver does not say.
    pub throttled: Option<ThrottleFigure>,
    /// Utilisation of the GPU, %.
    pub utilization_pct: Option<Extent>,
    /// Most device memory in use, MiB.
    pub memory_used_max_mb: Option<f64>,
}

impl GpuSummary {
    /// What people call it among these, of which it is one: its index; with its node, if the index is unique there alone; its
    /// key, if not even that: a MIG instance has the index of its GPU, and each vendor counts from 0.
    pub fn name_among<'a>(&self, all: impl IntoIterator<Item = &'a Self>) -> String {
        let Some(index) = self.gpu else { return self.id.clone() };
        let of_index: Vec<&Self> = all.into_iter().filter(|gpu| gpu.gpu == self.gpu).collect();
        let is_only_there = of_index.iter().filter(|gpu| gpu.node == self.node).count() <= 1;
        if of_index.len() <= 1 {
            index.to_string()
        } else if let Some(node) = self.node.as_ref().filter(|_| is_only_there) {
            format!("{node}/{index}")
        } else {
            self.id.clone()
        }
    }
}

/// How many of these GPUs are made up, as a sentence; none if all of them were read.
pub fn simulated_words<'a>(gpus: impl IntoIterator<Item = &'a GpuSummary>) -> Option<String> {
    let (mut all, mut simulated) = (0, 0);
    for gpu in gpus {
        all += 1;
        simulated += u64::from(gpu.driver.as_deref() == Some(SIMULATED));
    }
    (simulated > 0).then(|| format!("Simulated, not measured: {simulated} of {}.", counted(all, "GPU")))
}

/// What the rows say of a host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostSummary {
    /// Its name; none: the rows have none.
    pub node: Option<String>,
    /// From the first to the last row, seconds.
    pub duration_s: f64,
    /// How many rows there are.
    pub samples: u64,
    /// Utilisation of all its CPUs together, %.
    pub cpu_pct: Option<Extent>,
    /// Most memory in use, MiB.
    pub memory_max_mb: Option<f64>,
    /// Context switches a second.
    pub ctx_switches_per_s: Option<f64>,
    /// Page faults a second.
    pub page_faults_per_s: Option<f64>,
    /// Interrupts a second.
    pub irqs_per_s: Option<f64>,
}

#[derive(Debug, PartialEq, Eq)]
struct GpuKey {
    uuid: String,
    partition: Option<String>,
}

#[derive(Debug, Default)]
struct GpuTally {
    identity: Identity,
    pulse: Pulse,
    energy: Energy,
    power: Gauge,
    power_average: Gauge,
    power_samples: Sketch,
    average_samples: Sketch,
    gpu_clock: Gauge,
    mem_clock: Gauge,
    temperature: Gauge,
    throttled: Gauge,
    held: tally::Held,
    throttled_by: [tally::Count; 2],
    utilization: Gauge,
    memory: Gauge,
}

#[derive(Debug, Default)]
struct HostTally {
    pulse: Pulse,
    cpu: Gauge,
    memory: Gauge,
    counters: [tally::Count; 3],
}

impl Summary {
    /// For samples this far apart, GPUs' and host's.
    pub fn new(interval: Duration, system_interval: Duration) -> Self {
        Self {
            gap_ns: gap_ns(interval),
            system_gap_ns: gap_ns(system_interval),
            gpus: Vec::new(),
            hosts: Vec::new(),
            left_out: 0,
        }
    }

    /// Adds a batch; the rows of one GPU come in the order of time.
    pub fn add(&mut self, batch: &Batch) {
        match batch.table() {
            Table::GpuEvents => self.add_gpus(batch),
            Table::SystemEvents => self.add_hosts(batch),
            _ => {}
        }
    }

    fn add_gpus(&mut self, batch: &Batch) {
        let times = batch.monotonic().unwrap_or_else(|| batch.timestamps());
        let columns = GpuColumns::of(batch);
        let dictionary_key = |column, row| batch.identity_column(column).and_then(|array| array.key(row));
        // Our index for each pair of dictionary keys: an identity is built once a batch.
        let mut seen: Vec<(_, Option<usize>)> = Vec::new();
        for (row, &time_ns) in times.iter().enumerate() {
            let keys =
                (dictionary_key(IdentityColumn::Uuid, row), dictionary_key(IdentityColumn::Partition, row));
            let at = if let Some((_, at)) = seen.iter().find(|(known, _)| *known == keys) {
                *at
            } else {
                let at = self.gpu(batch.identity(row));
                seen.push((keys, at));
                at
            };
            match at.and_then(|at| self.gpus.get_mut(at)) {
                Some((_, tally)) => tally.add(&columns, row, time_ns, self.gap_ns),
                None => self.left_out += 1,
            }
        }
    }

    /// Index of a GPU; none if it has no name or there are too many.
    fn gpu(&mut self, identity: Identity) -> Option<usize> {
        let key = GpuKey {
            uuid: identity.uuid()?.to_owned(),
            partition: identity.get(IdentityColumn::Partition).map(str::to_owned),
        };
        if let Some(at) = self.gpus.iter().position(|(known, _)| *known == key) {
            // The latest identity: a driver's version or a model name may come late.
            if let Some((_, tally)) = self.gpus.get_mut(at) {
                tally.identity = identity;
            }
            return Some(at);
        }
        if self.gpus.len() >= GPUS_MAX {
            return None;
        }
        self.gpus.push((key, GpuTally { identity, ..GpuTally::default() }));
        Some(self.gpus.len() - 1)
    }

    fn add_hosts(&mut self, batch: &Batch) {
        let times = batch.monotonic().unwrap_or_else(|| batch.timestamps());
        let (cpu, memory) = (batch.metric(CPU), batch.metric(HOST_MEMORY));
        let counters = HOST_COUNTERS.map(|id| batch.metric(id));
        for (row, &time_ns) in times.iter().enumerate() {
            if batch.instance(Scope::CpuCore, row).is_some() {
                // Of one CPU; the host's own row covers all.
                continue;
            }
            // A batch of the host has one host; looked up by row nevertheless.
            let identity = batch.identity(row);
            let at = self.hosts.iter().position(|(known, _)| known.node() == identity.node());
            let at = at.unwrap_or(self.hosts.len());
            if at == self.hosts.len() && at < HOSTS_MAX {
                self.hosts.push((identity, HostTally::default()));
            }
            let gap_ns = self.system_gap_ns;
            let Some((_, tally)) = self.hosts.get_mut(at) else {
                self.left_out += 1;
                continue;
            };
            tally.pulse.beat(time_ns, gap_ns);
            tally.cpu.add(time_ns, value(cpu, row), gap_ns);
            tally.memory.add(time_ns, value(memory, row), gap_ns);
            for (count, column) in tally.counters.iter_mut().zip(counters) {
                count.read(time_ns, value(column, row), gap_ns);
            }
        }
    }

    /// Rows in no figure: of GPUs without a name, and of GPUs or hosts beyond 1,024 of each.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The GPUs so far, by machine, index and name.
    pub fn gpus(&self) -> Vec<GpuSummary> {
        let mut gpus: Vec<GpuSummary> = self.gpus.iter().map(|(_, tally)| tally.summary()).collect();
        let place = |gpu: &GpuSummary| (gpu.gpu.is_none(), gpu.gpu);
        gpus.sort_by(|a, b| (&a.node, place(a), &a.id).cmp(&(&b.node, place(b), &b.id)));
        gpus
    }

    /// The hosts so far: one, unless recordings were joined.
    pub fn hosts(&self) -> Vec<HostSummary> {
        self.hosts.iter().map(|(identity, tally)| tally.summary(identity)).collect()
    }
}

/// The summarised columns, looked up once a batch.
struct GpuColumns<'a> {
    blanks: Blanks<'a>,
    energy: EnergyColumns<'a>,
    power: Option<MetricColumn<'a>>,
    power_average: Option<MetricColumn<'a>>,
    gpu_clock: Option<MetricColumn<'a>>,
    mem_clock: Option<MetricColumn<'a>>,
    temperature: Option<MetricColumn<'a>>,
    throttled: Option<MetricColumn<'a>>,
    steps: StepColumns<'a>,
    throttled_by: [Option<MetricColumn<'a>>; 2],
    utilization: Option<MetricColumn<'a>>,
    memory: Option<MetricColumn<'a>>,
}

impl<'a> GpuColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        Self {
            blanks: Blanks::of(batch),
            energy: EnergyColumns::of(batch),
            power: batch.metric(POWER),
            power_average: batch.metric(POWER_AVERAGE),
            gpu_clock: batch.metric(GPU_CLOCK),
            mem_clock: batch.metric(MEM_CLOCK),
            temperature: batch.metric(TEMPERATURE),
            throttled: batch.metric(THROTTLED),
            steps: StepColumns::of(batch),
            throttled_by: THROTTLED_BY.map(|id| batch.metric(id)),
            utilization: batch.metric(UTILIZATION),
            memory: batch.metric(MEMORY_USED),
        }
    }
}

fn value(column: Option<MetricColumn<'_>>, row: usize) -> Option<f64> {
    column?.value(row).map(gpuvitals_core::batch::Value::as_f64)
}

impl GpuTally {
    fn add(&mut self, columns: &GpuColumns<'_>, row: usize, time_ns: i64, gap_ns: i64) {
        if columns.blanks.has(row) {
            self.lose();
            return;
        }
        self.pulse.beat(time_ns, gap_ns);
        self.energy.row(&columns.energy, row, time_ns, gap_ns);
        let (power, average) = (value(columns.power, row), value(columns.power_average, row));
        self.power.add(time_ns, power, gap_ns);
        self.power_average.add(time_ns, average, gap_ns);
        if let Some(watts) = power {
            self.power_samples.add(watts);
        }
        if let Some(watts) = average {
            self.average_samples.add(watts);
        }
        self.gpu_clock.add(time_ns, value(columns.gpu_clock, row), gap_ns);
        self.mem_clock.add(time_ns, value(columns.mem_clock, row), gap_ns);
        self.temperature.add(time_ns, value(columns.temperature, row), gap_ns);
        self.throttled.add(time_ns, value(columns.throttled, row), gap_ns);
        self.held.read(time_ns, columns.steps.at(row), gap_ns);
        for (count, column) in self.throttled_by.iter_mut().zip(columns.throttled_by) {
            count.read(time_ns, value(column, row), gap_ns);
        }
        self.utilization.add(time_ns, value(columns.utilization, row), gap_ns);
        self.memory.add(time_ns, value(columns.memory, row), gap_ns);
    }

    /// It reports nothing from the last row to the next one.
    fn lose(&mut self) {
        self.pulse.lose();
        self.energy.lose();
        self.held.lose();
        let gauges = [
            &mut self.power,
            &mut self.power_average,
            &mut self.gpu_clock,
            &mut self.mem_clock,
            &mut self.temperature,
            &mut self.throttled,
            &mut self.utilization,
            &mut self.memory,
        ];
        gauges.into_iter().for_each(Gauge::lose);
    }

    fn power(&self) -> Option<PowerFigure> {
        let averaged = self.energy.is_averaged();
        let (gauge, samples) = if self.power.count() > 0 {
            (&self.power, &self.power_samples)
        } else {
            (&self.power_average, &self.average_samples)
        };
        let extent = gauge.extent()?;
        let p99 = rounded(samples.quantile(0.99)?.min(extent.max));
        Some(PowerFigure { mean: extent.mean, max: extent.max, p99, averaged })
    }

    fn energy(&self) -> Option<EnergyFigure> {
        let total = self.energy.total()?;
        let interval = self.energy.interval(&self.identity);
        Some(EnergyFigure {
            joules: rounded(total.joules),
            source: total.source,
            reason: total.reason.to_string(),
            power_seen_s: rounded(total.seen_s),
            error: interval.as_ref().map_or_else(ToString::to_string, ToString::to_string),
            interval: interval.ok(),
        })
    }

    fn throttling(&self) -> Option<ThrottleFigure> {
        // The state of such a GPU only says that it was held down at some time since the reading before.
        if let Some((seconds, seen_s)) = self.held.total() {
            let share = rounded((seconds / seen_s).clamp(0.0, 1.0));
            return Some(ThrottleFigure { seconds: rounded(seconds), share, counted: true });
        }
        if let (Some(share), Some(seen_s)) = (self.throttled.mean(), self.throttled.seen_s()) {
            return Some(ThrottleFigure {
                seconds: rounded(share * seen_s),
                share: rounded(share),
                counted: false,
            });
        }
        let longest = self
            .throttled_by
            .iter()
            .filter_map(|count| Some((count.total()? / 1e9, count.span_s()?)))
            .max_by(|a, b| a.0.total_cmp(&b.0))?;
        let (seconds, span_s) = longest;
        let share = rounded((seconds / span_s).clamp(0.0, 1.0));
        Some(ThrottleFigure { seconds: rounded(seconds), share, counted: true })
    }

    fn summary(&self) -> GpuSummary {
        let text = |column| self.identity.get(column).map(str::to_owned);
        GpuSummary {
            id: self.identity.key().map(|key| key.to_string()).unwrap_or_default(),
            gpu: self.identity.index,
            node: text(IdentityColumn::Node),
            model: text(IdentityColumn::Model),
            pci: text(IdentityColumn::Pci),
            driver: text(IdentityColumn::Source),
            duration_s: rounded(self.pulse.duration_s()),
            samples: self.pulse.count(),
            rate_hz: self.pulse.rate_hz().map(rounded),
            gaps: self.pulse.gaps(),
            gaps_s: rounded(self.pulse.gaps_s()),
            energy: self.energy(),
            power_w: self.power(),
            gpu_clock_mhz: self.gpu_clock.extent(),
            mem_clock_mhz: self.mem_clock.extent(),
            temperature_c: self.temperature.extent(),
            throttled: self.throttling(),
            utilization_pct: self.utilization.extent(),
            memory_used_max_mb: self.memory.extent().map(|extent| extent.max),
        }
    }
}

impl HostTally {
    fn summary(&self, identity: &Identity) -> HostSummary {
        let [ctx_switches_per_s, page_faults_per_s, irqs_per_s] =
            self.counters.each_ref().map(|count| count.per_s().map(rounded));
        HostSummary {
            node: identity.node().map(str::to_owned),
            duration_s: rounded(self.pulse.duration_s()),
            samples: self.pulse.count(),
            cpu_pct: self.cpu.extent(),
            memory_max_mb: self.memory.extent().map(|extent| extent.max),
            ctx_switches_per_s,
            page_faults_per_s,
            irqs_per_s,
        }
    }
}
