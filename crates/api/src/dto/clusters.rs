//! Clusters whose nodes are read from outside, and their GPU nodes.

use std::collections::BTreeMap;

use gpuvitals_core::clusters::{ClusterState, ClusterView, GpuRecord, NodeState, NodeView, total_memory_mb};
use gpuvitals_core::number::float;
use serde::Serialize;
use utoipa::ToSchema;

use super::Moment;

/// A GPU node of a cluster, and its GPUs by its last good reading.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClusterNode<'a> {
    /// Name of the node in its cluster.
    #[schema(example = "node-07")]
    node_name: &'a str,
    /// The cluster that it belongs to, by its name in the configuration.
    #[schema(example = "east")]
    cluster_id: &'a str,
    /// Vendor of its GPUs: `nvidia` or `amd`.
    vendor: &'a str,
    /// How the last reading of the node ended.
    state: NodeState,
    /// Since when it is in this state.
    since: Moment,
    /// Why it was not read at the last attempt.
    error: Option<&'a str>,
    /// Whether what is shown is from an earlier attempt than the last.
    stale: bool,
    /// Age of the reading that is shown, seconds; null if it was never read.
    age_seconds: Option<f64>,
    /// GPUs that were read: those in `gpus`.
    gpu_count: usize,
    /// Physical GPUs that it announces by label or capacity; null if it announces none.
    gpus_announced: Option<u32>,
    /// Memory of the GPUs that were read, MiB.
    #[serde(serialize_with = "gpuvitals_core::clusters::whole::number")]
    #[schema(value_type = i64)]
    total_memory_mb: f64,
    /// The labels that `kubernetes.node_labels` keeps.
    labels: &'a BTreeMap<String, String>,
    /// The GPUs that were read; none if it was never read.
    gpus: Vec<GpuRecord>,
    /// Why their processes could not be listed.
    processes_error: Option<&'a str>,
}

impl<'a> ClusterNode<'a> {
    /// A node at a time.
    pub(crate) fn of(cluster: &'a ClusterView, node: &'a NodeView, now_ns: i64) -> Self {
        let gpus = node.gpus().unwrap_or_default();
        Self {
            node_name: &node.name,
            cluster_id: &cluster.name,
            vendor: node.vendor,
            state: node.state,
            since: Moment(node.since_ns),
            error: node.error.as_deref(),
            stale: cluster.is_stale(node),
            age_seconds: node.age_ns(now_ns).map(seconds),
            gpu_count: node.gpu_count(),
            gpus_announced: node.gpus_announced,
            total_memory_mb: total_memory_mb(&gpus),
            labels: &node.labels,
            gpus,
            processes_error: node.reading.as_ref().and_then(|reading| reading.processes_error.as_deref()),
        }
    }
}

/// A cluster of the configuration.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ClusterInfo<'a> {
    /// Name of the cluster in the configuration.
    #[schema(example = "east")]
    cluster_id: &'a str,
    /// Whether the cluster can be read.
    state: ClusterState,
    /// Since when it is in this state.
    since: Moment,
    /// Its last error, if the state is one.
    error: Option<&'a str>,
    /// Whether it has GPUs, by configuration. One without is never asked.
    has_gpu: bool,
    /// Whether the certificate of its API server is not verified: anybody on the way could read the token.
    skips_tls_verify: bool,
    /// Its GPU nodes; null if it has not listed them yet.
    node_count: Option<usize>,
    /// How many of them are in which state.
    nodes: NodeCounts,
    /// GPUs that were read.
    gpu_count: usize,
    /// Age of its newest reading of a node, seconds.
    newest_reading_age_seconds: Option<f64>,
    /// Age of its oldest, seconds.
    oldest_reading_age_seconds: Option<f64>,
    /// The nodes that were not read at the last attempt.
    missing: Vec<MissingNode<'a>>,
}

impl<'a> ClusterInfo<'a> {
    /// A cluster at a time.
    pub(crate) fn of(cluster: &'a ClusterView, now_ns: i64) -> Self {
        let ages = || cluster.nodes.iter().filter_map(|node| node.age_ns(now_ns));
        let missing = cluster.nodes.iter().filter(|node| node.state != NodeState::Ok);
        Self {
            cluster_id: &cluster.name,
            state: cluster.state,
            since: Moment(cluster.since_ns),
            error: cluster.error.as_deref(),
            has_gpu: cluster.has_gpu,
            skips_tls_verify: cluster.skips_tls_verify,
            node_count: cluster.node_count(),
            nodes: NodeCounts::of(cluster),
            gpu_count: cluster.gpus_read(),
            newest_reading_age_seconds: ages().min().map(seconds),
            oldest_reading_age_seconds: ages().max().map(seconds),
            missing: missing.map(|node| MissingNode::of(cluster, node)).collect(),
        }
    }
}

/// How many GPU nodes are in which state.
#[derive(Debug, Default, Serialize, ToSchema)]
struct NodeCounts {
    waiting: usize,
    ok: usize,
    partial: usize,
    failing: usize,
    no_driver_pod: usize,
    driver_pod_not_ready: usize,
    no_tool: usize,
}

impl NodeCounts {
    fn of(cluster: &ClusterView) -> Self {
        let mut counts = Self::default();
        for node in &cluster.nodes {
            *match node.state {
                NodeState::Waiting => &mut counts.waiting,
                NodeState::Ok => &mut counts.ok,
                NodeState::Partial => &mut counts.partial,
                NodeState::Failing => &mut counts.failing,
                NodeState::NoDriverPod => &mut counts.no_driver_pod,
                NodeState::DriverPodNotReady => &mut counts.driver_pod_not_ready,
                NodeState::NoTool => &mut counts.no_tool,
            } += 1;
        }
        counts
    }
}

/// A node that was not read at the last attempt.
#[derive(Debug, Serialize, ToSchema)]
struct MissingNode<'a> {
    /// Name of the node in its cluster.
    node_name: &'a str,
    /// How the last reading of the node ended.
    state: NodeState,
    /// Since when it is in this state.
    since: Moment,
    /// Why it was not read; null while it waits for its turn.
    error: Option<&'a str>,
    /// Whether an earlier reading is shown.
    stale: bool,
}

impl<'a> MissingNode<'a> {
    fn of(cluster: &ClusterView, node: &'a NodeView) -> Self {
        Self {
            node_name: &node.name,
            state: node.state,
            since: Moment(node.since_ns),
            error: node.error.as_deref(),
            stale: cluster.is_stale(node),
        }
    }
}

/// Nanoseconds as seconds, to the millisecond.
fn seconds(ns: i64) -> f64 {
    let ms = float(ns / 1_000_000);
    ms / 1e3
}
