//! A view shows a cluster and its nodes as they are now.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::records::{GpuRecord, ProcessRecord};
use crate::clusters::records;
use crate::{Batch, Health, Status};

/// A cluster at one moment.
#[derive(Debug, Clone)]
pub struct ClusterView {
    /// Its name, from the configuration.
    pub name: Arc<str>,
    /// Whether it has GPUs, by configuration.
    pub has_gpu: bool,
    /// Whether its certificate is not verified.
    pub skips_tls_verify: bool,
    /// How well it answers.
    pub state: ClusterState,
    /// Since when, nanoseconds UTC since 1970.
    pub since_ns: i64,
    /// The last error, if the state is one, for people.
    pub error: Option<Arc<str>>,
    /// Whether the last list found driver pods.
    pub has_driver_pods: bool,
    /// Its GPU nodes by name. Of a cluster that does not answer, those that were known before.
    pub nodes: Vec<Arc<NodeView>>,
}

/// A GPU node at one moment.
#[derive(Debug, Clone)]
pub struct NodeView {
    /// Its name in the cluster.
    pub name: Arc<str>,
    /// Vendor of its GPUs: `nvidia`, `amd`.
    pub vendor: &'static str,
    /// The labels that the configuration keeps.
    pub labels: Arc<BTreeMap<String, String>>,
    /// Number of physical GPUs by label or capacity.
    pub gpus_announced: Option<u32>,
    /// Whether its GPUs are read, or why they are not.
    pub state: NodeState,
    /// Since when, nanoseconds UTC since 1970.
    pub since_ns: i64,
    /// The last error, if the state is one, for people.
    pub error: Option<Arc<str>>,
    /// The last good reading.
    pub reading: Option<Arc<NodeReading>>,
}

impl ClusterView {
    /// A node by its name.
    pub fn node(&self, name: &str) -> Option<&Arc<NodeView>> {
        self.nodes.iter().find(|node| *node.name == *name)
    }

    /// Whether answers about all nodes have this one. In a cluster without driver pods nothing can read a node of NVIDIA's, so such
    /// nodes do not count, unless they were read before the pods went away.
    pub fn shows(&self, node: &NodeView) -> bool {
        self.has_driver_pods || node.state != NodeState::NoDriverPod || node.reading.is_some()
    }

    /// Its GPU nodes; none if it has not listed them yet, or has none by configuration.
    pub fn node_count(&self) -> Option<usize> {
        let is_listed = self.has_gpu && !(self.nodes.is_empty() && self.state.hides_nodes());
        is_listed.then_some(self.nodes.len())
    }

    /// The last good readings of its nodes.
    pub fn readings(&self) -> impl Iterator<Item = &Arc<NodeReading>> {
        self.nodes.iter().filter_map(|node| node.reading.as_ref())
    }

    /// GPUs that were read.
    pub fn gpus_read(&self) -> usize {
        self.readings().map(|reading| reading.gpus.rows()).sum()
    }

    /// What an answer about it lacks and why, for people; nothing if all its GPU nodes and their processes were read at the last
    /// attempt.
    pub fn missing(&self) -> Vec<String> {
        let of_cluster = |error: &str| format!("cluster {}: {}: {error}", self.name, self.state.name());
        match self.state {
            ClusterState::NoGpu | ClusterState::NoGpuNodes => Vec::new(),
            ClusterState::Ok => {
                self.nodes.iter().filter_map(|node| node.without_processes(&self.name)).collect()
            }
            ClusterState::Starting => vec![of_cluster("not everything was read yet")],
            ClusterState::Degraded => self.nodes.iter().filter_map(|node| node.missing(&self.name)).collect(),
            _ => {
                let error = self.error.as_deref().unwrap_or("it does not say why");
                let what =
                    if self.readings().next().is_some() { " (its last readings are shown)" } else { "" };
                vec![format!("{}{what}", of_cluster(error))]
            }
        }
    }

    /// What an answer about one of its nodes lacks and why, for people.
    pub fn missing_of(&self, node: &NodeView) -> Vec<String> {
        if self.state.is_silent() { self.missing() } else { node.missing(&self.name).into_iter().collect() }
    }

    /// Whether the reading of one of its nodes is older than the last attempt to read it.
    pub fn is_stale(&self, node: &NodeView) -> bool {
        node.is_stale() || (node.reading.is_some() && self.state.is_silent())
    }

    /// Its health. A cluster or node that is not read is no failure of those who read it: degraded at worst.
    pub fn health(&self) -> Health {
        let is_well = matches!(
            self.state,
            ClusterState::Ok | ClusterState::Starting | ClusterState::NoGpu | ClusterState::NoGpuNodes
        );
        if is_well {
            return Health::healthy(self.since_ns);
        }
        let error = self.error.as_deref().unwrap_or_default();
        let reason = format!("cluster {}: {}: {error}", self.name, self.state.name());
        Health { status: Status::Degraded, reason, since_ns: self.since_ns }
    }
}

impl NodeView {
    /// What an answer about it lacks and why, for people; none if it and its processes were read at the last attempt.
    pub fn missing(&self, cluster: &str) -> Option<String> {
        let why = match (self.state, &self.error) {
            (NodeState::Ok, _) => return self.without_processes(cluster),
            (_, Some(error)) => error.as_ref(),
            (state, None) => state.name(),
        };
        let what = if self.is_stale() { " (its last reading is shown)" } else { "" };
        Some(format!("cluster {cluster}: node {}: {why}{what}", self.name))
    }

    /// Why its processes are not in its reading, for people.
    fn without_processes(&self, cluster: &str) -> Option<String> {
        let error = self.reading.as_ref()?.processes_error.as_ref()?;
        Some(format!("cluster {cluster}: node {}: its processes could not be listed: {error}", self.name))
    }

    /// Whether its reading is older than its own last attempt.
    pub fn is_stale(&self) -> bool {
        self.reading.is_some() && !self.state.is_read()
    }

    /// Age of its reading, nanoseconds.
    pub fn age_ns(&self, now_ns: i64) -> Option<i64> {
        self.reading.as_ref().map(|reading| now_ns.saturating_sub(reading.taken_ns).max(0))
    }

    /// Its GPUs by the last good reading; none if it was never read.
    pub fn gpus(&self) -> Option<Vec<GpuRecord>> {
        self.reading.as_ref().map(|reading| reading.gpus())
    }

    /// The GPUs that were read. A GPU that is lost is not read, though it is announced; a divided one may not be announced.
    pub fn gpu_count(&self) -> usize {
        self.reading.as_ref().map_or(0, |reading| reading.gpus.rows())
    }
}

/// The state of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ClusterState {
    /// It was not asked yet.
    Starting,
    /// All GPU nodes that a tool reads from outside were read at the last attempt.
    Ok,
    /// Some of them were not.
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It was not read yet.
    Waiting,
    /// Read at the last attempt.
    Ok,
    /// Read at the last attempt, but for GPUs that the tool cannot reach.
    Partial,
    /// The last attempt failed. What was read before is kept, and is stale.
    Failing,
    /// No driver pod runs on it.
    NoDriverPod,
    /// Its driver pod is not ready: the driver may be building.
    DriverPodNotReady,
    /// Its GPUs are not NVIDIA's: no tool is known that could be run from outside. The agent reads them.
    NoTool,
}

/// What the tool reported about a node.
#[derive(Debug, Clone)]
pub struct NodeReading {
    /// When it was read, nanoseconds UTC since 1970.
    pub taken_ns: i64,
    /// The row of each GPU, in `gpu_events`.
    pub gpus: Batch,
    /// The rows of `gpu_processes`; none without processes, or if they could not be listed.
    pub processes: Option<Batch>,
    /// Why the processes could not be listed.
    pub processes_error: Option<Arc<str>>,
}

impl ClusterState {
    /// Spelling in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::NoGpu => "no_gpu",
            Self::NoGpuNodes => "no_gpu_nodes",
            Self::NoGpuOperator => "no_gpu_operator",
            Self::Unreachable => "unreachable",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::Throttled => "throttled",
            Self::Failed => "failed",
        }
    }

    /// Every state, in the order of the enum.
    pub const ALL: [Self; 11] = [
        Self::Starting,
        Self::Ok,
        Self::Degraded,
        Self::NoGpu,
        Self::NoGpuNodes,
        Self::NoGpuOperator,
        Self::Unreachable,
        Self::Unauthorized,
        Self::Forbidden,
        Self::Throttled,
        Self::Failed,
    ];

    /// Whether a cluster in this state has not answered when it was asked last.
    pub fn is_silent(self) -> bool {
        use ClusterState::{Failed, Forbidden, Throttled, Unauthorized, Unreachable};
        matches!(self, Failed | Forbidden | Throttled | Unauthorized | Unreachable)
    }

    /// Whether a cluster in this state may have nodes that are not known.
    pub fn hides_nodes(self) -> bool {
        self == Self::Starting || self.is_silent()
    }
}

impl NodeState {
    /// Spelling in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Failing => "failing",
            Self::NoDriverPod => "no_driver_pod",
            Self::DriverPodNotReady => "driver_pod_not_ready",
            Self::NoTool => "no_tool",
        }
    }

    /// Every state, in the order of the enum.
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Ok,
        Self::Partial,
        Self::Failing,
        Self::NoDriverPod,
        Self::DriverPodNotReady,
        Self::NoTool,
    ];

    /// Whether the last attempt to read the node gave a reading.
    pub fn is_read(self) -> bool {
        matches!(self, Self::Ok | Self::Partial)
    }
}

impl NodeReading {
    /// The records of its GPUs.
    pub fn gpus(&self) -> Vec<GpuRecord> {
        let processes = self.processes();
        let with_processes = |row| {
            let mut gpu = records::gpu_of(&self.gpus, row);
            let of_gpu =
                |process: &&ProcessRecord| process.gpu_index.is_some() && process.gpu_index == gpu.index;
            gpu.processes = processes.iter().filter(of_gpu).cloned().collect();
            gpu
        };
        (0..self.gpus.rows()).map(with_processes).collect()
    }

    /// The records of its processes.
    pub fn processes(&self) -> Vec<ProcessRecord> {
        let batch = self.processes.as_ref();
        batch
            .map(|batch| (0..batch.rows()).filter_map(|row| records::process_of(batch, row)).collect())
            .unwrap_or_default()
    }
}
