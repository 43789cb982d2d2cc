//! What is known of the clusters now: the present views, and the records of GPUs and processes in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use gpuvitals_core::batch::{Value, numbers, text_at};
use gpuvitals_core::clock::Moment;
use gpuvitals_core::{Batch, IdentityColumn, MetricId};
use serde::Serialize;

const TEMPERATURE: MetricId = MetricId::of("temperature_c");
const UTILIZATION: MetricId = MetricId::of("utilization_pct");
const MEMORY_UTILIZATION: MetricId = MetricId::of("memory_utilization_pct");
const MEMORY_TOTAL: MetricId = MetricId::of("memory_total_mb");
const MEMORY_USED: MetricId = MetricId::of("memory_used_mb");
const MEMORY_FREE: MetricId = MetricId::of("memory_free_mb");
const POWER: MetricId = MetricId::of("power_w");
const POWER_AVERAGE: MetricId = MetricId::of("power_average_w");
const POWER_LIMIT: MetricId = MetricId::of("power_limit_w");
const PCIE_GENERATION: MetricId = MetricId::of("pcie_gen");
const PCIE_WIDTH: MetricId = MetricId::of("pcie_width");
const FAN_SPEED: MetricId = MetricId::of("fan_speed_pct");

/// The state of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClusterState {
    /// It was not asked yet.
    Starting,
    /// All GPU nodes were read at the last attempt.
    Ok,
    /// Some GPU nodes were not.
    Degraded,
    /// It has no GPUs by configuration, and is not asked.
    NoGpu,
    /// It has no GPU nodes.
    NoGpuNodes,
    /// It has GPU nodes and no driver pods: the driver may be on the host.
    NoGpuOperator,
    /// The API server does not answer, or its certificate is not accepted.
    Unreachable,
    /// The token is refused.
    Unauthorized,
    /// The token's role lacks a right.
    Forbidden,
    /// The API server asks for patience.
    Throttled,
    /// Its answers, or the files of its configuration, cannot be used.
    Failed,
}

/// The state of a GPU node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It was not read yet.
    Waiting,
    /// Read at the last attempt.
    Ok,
    /// The last attempt failed. What was read before is kept, and is stale.
    Failing,
    /// No driver pod runs on it.
    NoDriverPod,
    /// Its driver pod is not ready: the driver may be building.
    DriverPodNotReady,
    /// Its GPUs are not NVIDIA's: no tool is known that could be run from outside. The agent reads them.
    NoTool,
}

/// A cluster at one moment.
#[derive(Debug, Clone)]
pub struct ClusterView {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it has GPUs, by configuration.
    pub has_gpu: bool,
    /// Whether its certificate is not verified.
    pub skips_tls_verify: bool,
    /// Its state.
    pub state: ClusterState,
    /// Since when, nanoseconds UTC since 1970.
    pub since_ns: i64,
    /// The last error, if the state is one, for people.
    pub error: Option<Arc<str>>,
    /// Its GPU nodes by name. Of a cluster that does not answer, those that were known before.
    pub nodes: Vec<Arc<NodeView>>,
}

/// A GPU node at one moment.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// Its name.
    pub name: Arc<str>,
    /// Vendor of its GPUs: `nvidia`, `amd`.
    pub vendor: &'static str,
    /// The labels that the configuration keeps.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Number of physical GPUs by label or capacity.
    pub gpu_count: Option<u32>,
    /// Its state.
    pub state: NodeState,
    /// Since when, nanoseconds UTC since 1970.
    pub since_ns: i64,
    /// The last error, if the state is one, for people.
    pub error: Option<Arc<str>>,
    /// The last good reading.
    pub reading: Option<Arc<NodeReading>>,
}

/// What the tool reported about a node.
#[derive(Debug, Clone)]
pub struct NodeReading {
    /// When it was read.
    pub taken: Moment,
    /// The row of each GPU, in `gpu_events`.
    pub gpus: Batch,
    /// The rows of `gpu_processes`; none without processes, or if they could not be listed.
    pub processes: Option<Batch>,
    /// Why the processes could not be listed.
    pub processes_error: Option<Arc<str>>,
}

/// A GPU. A value that was not read is none, never 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuRecord {
    /// Index on the node.
    pub index: Option<i32>,
    /// `GPU-…`.
    pub uuid: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// Driver version.
    pub driver_version: Option<String>,
    /// Temperature, °C.
    pub temperature_celsius: Option<f64>,
    /// Utilisation, %.
    pub utilization_gpu_percent: Option<f64>,
    /// Utilisation of the memory controller, %.
    pub utilization_memory_percent: Option<f64>,
    /// Memory, MiB.
    pub memory_total_mb: Option<f64>,
    /// Used memory, MiB.
    pub memory_used_mb: Option<f64>,
    /// Free memory, MiB.
    pub memory_free_mb: Option<f64>,
    /// Power, W: the most instantaneous that the part reports.
    pub power_draw_watts: Option<f64>,
    /// Power limit, W.
    pub power_limit_watts: Option<f64>,
    /// Generation of the PCIe link now; it falls when idle.
    pub pcie_generation: Option<f64>,
    /// Lanes of the PCIe link now.
    pub pcie_link_width: Option<f64>,
    /// Fan speed, %.
    pub fan_speed_percent: Option<f64>,
}

/// A process on a GPU. A value that was not read is none, never 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessRecord {
    /// Process id on the node.
    pub pid: i64,
    /// Index of the GPU on the node.
    pub gpu_index: Option<i32>,
    /// `compute`, `graphics`, `compute+graphics`, `unknown`.
    pub process_type: String,
    /// Share of the SMs, %.
    pub sm_utilization: Option<f64>,
    /// Share of the memory controller, %.
    pub memory_utilization: Option<f64>,
    /// Share of the encoder, %.
    pub encoder_utilization: Option<f64>,
    /// Share of the decoder, %.
    pub decoder_utilization: Option<f64>,
    /// Device memory, MiB.
    pub fb_memory_mb: Option<f64>,
    /// Name of the program, never its arguments.
    pub command: Option<String>,
    /// The node.
    pub node_name: String,
    /// The cluster.
    pub cluster_id: String,
}

/// Sums and means over GPUs. A mean of nothing is none.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct FleetSummary {
    /// GPU nodes.
    pub node_count: usize,
    /// GPUs that were read.
    pub gpu_count: usize,
    /// Their memory, MiB.
    pub total_memory_mb: f64,
    /// Their used memory, MiB.
    pub used_memory_mb: f64,
    /// Used memory as a share of that of GPUs which report both, %, to one decimal.
    pub memory_utilization_percent: Option<f64>,
    /// Mean utilisation, %, to one decimal.
    pub average_gpu_utilization_percent: Option<f64>,
    /// Mean temperature, °C, to one decimal.
    pub average_temperature_celsius: Option<f64>,
}

impl ClusterView {
    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<&Arc<NodeView>> {
        self.nodes.iter().find(|node| *node.name == *name)
    }
}

impl NodeView {
    /// Whether its reading is older than the last attempt.
    pub fn is_stale(&self) -> bool {
        self.reading.is_some() && self.state != NodeState::Ok
    }

    /// Age of its reading, nanoseconds.
    pub fn age_ns(&self, now: Moment) -> Option<i64> {
        self.reading.as_ref().map(|reading| (now.mono_ns - reading.taken.mono_ns).max(0))
    }

    /// Its GPUs by the last good reading; none if it was never read.
    pub fn gpus(&self) -> Option<Vec<GpuRecord>> {
        self.reading.as_ref().map(|reading| reading.gpus())
    }

    /// Memory of its GPUs, MiB; none if none reports it.
    pub fn total_memory_mb(&self) -> Option<f64> {
        let totals: Vec<f64> = self.gpus()?.iter().filter_map(|gpu| gpu.memory_total_mb).collect();
        (!totals.is_empty()).then(|| totals.iter().sum())
    }
}

impl NodeReading {
    /// The records of its GPUs.
    pub fn gpus(&self) -> Vec<GpuRecord> {
        (0..self.gpus.rows()).map(|row| gpu_of(&self.gpus, row)).collect()
    }

    /// The records of its processes.
    pub fn processes(&self) -> Vec<ProcessRecord> {
        let batch = self.processes.as_ref();
        batch
            .map(|batch| (0..batch.rows()).filter_map(|row| process_of(batch, row)).collect())
            .unwrap_or_default()
    }
}

impl FleetSummary {
    /// Over clusters. GPUs of stale readings count: they are still there.
    pub fn of<'a>(clusters: impl IntoIterator<Item = &'a ClusterView>) -> Self {
        let mut summary = Self::default();
        let (mut used, mut total) = (0.0, 0.0);
        let (mut utilizations, mut temperatures) = (Mean::default(), Mean::default());
        for node in clusters.into_iter().flat_map(|cluster| &cluster.nodes) {
            summary.node_count += 1;
            for gpu in node.gpus().unwrap_or_default() {
                summary.gpu_count += 1;
                summary.total_memory_mb += gpu.memory_total_mb.unwrap_or_default();
                summary.used_memory_mb += gpu.memory_used_mb.unwrap_or_default();
                if let (Some(gpu_used), Some(gpu_total)) = (gpu.memory_used_mb, gpu.memory_total_mb) {
                    (used, total) = (used + gpu_used, total + gpu_total);
                }
                utilizations.add(gpu.utilization_gpu_percent);
                temperatures.add(gpu.temperature_celsius);
            }
        }
        summary.memory_utilization_percent = (total > 0.0).then(|| rounded(100.0 * used / total));
        summary.average_gpu_utilization_percent = utilizations.value();
        summary.average_temperature_celsius = temperatures.value();
        summary
    }
}

#[derive(Debug, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value {
            self.sum += value;
            self.count += 1.0;
        }
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0.0).then(|| rounded(self.sum / self.count))
    }
}

/// To one decimal.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn gpu_of(batch: &Batch, row: usize) -> GpuRecord {
    let identity = batch.identity(row);
    let text = |column| identity.get(column).map(str::to_owned);
    // The shortest decimal of a 32-bit float: 30.12 stays 30.12.
    let value = |metric| Some(batch.metric(metric)?.value(row)?.as_f64());
    GpuRecord {
        index: identity.index,
        uuid: text(IdentityColumn::Uuid),
        name: text(IdentityColumn::Model),
        driver_version: text(IdentityColumn::Driver),
        temperature_celsius: value(TEMPERATURE),
        utilization_gpu_percent: value(UTILIZATION),
        utilization_memory_percent: value(MEMORY_UTILIZATION),
        memory_total_mb: value(MEMORY_TOTAL),
        memory_used_mb: value(MEMORY_USED),
        memory_free_mb: value(MEMORY_FREE),
        power_draw_watts: value(POWER).or_else(|| value(POWER_AVERAGE)),
        power_limit_watts: value(POWER_LIMIT),
        pcie_generation: value(PCIE_GENERATION),
        pcie_link_width: value(PCIE_WIDTH),
        fan_speed_percent: value(FAN_SPEED),
    }
}

fn process_of(batch: &Batch, row: usize) -> Option<ProcessRecord> {
    let identity = batch.identity(row);
    let column = |name: &str| batch.records().column_by_name(name);
    let value = |name: &str| Some(numbers(column(name)?)?.value(row)?.as_f64());
    let text = |name: &str| text_at(column(name)?.as_dictionary_opt::<Int32Type>()?, row).map(str::to_owned);
    let Value::Int(pid) = numbers(column("pid")?)?.value(row)? else { return None };
    Some(ProcessRecord {
        pid,
        gpu_index: identity.index,
        process_type: text("process_type").unwrap_or_else(|| "unknown".to_owned()),
        sm_utilization: value("sm_utilization"),
        memory_utilization: value("memory_utilization"),
        encoder_utilization: value("encoder_utilization"),
        decoder_utilization: value("decoder_utilization"),
        fb_memory_mb: value("fb_memory_mb"),
        command: text("command"),
        node_name: identity.node().unwrap_or_default().to_owned(),
        cluster_id: identity.get(IdentityColumn::Cluster).unwrap_or_default().to_owned(),
    })
}
