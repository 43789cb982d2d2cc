//! GPUs of clusters, added up.

use serde::Serialize;

use super::{GpuRecord, NodeView, whole};

/// Sums and means over GPUs. A sum of nothing is 0, a mean of nothing is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClusterSummary {
    /// The cluster; none: all of them.
    pub cluster_id: Option<String>,
    /// How many GPU nodes there are.
    pub node_count: usize,
    /// GPUs that were read.
    pub gpu_count: usize,
    /// Their memory, MiB.
    #[serde(serialize_with = "whole::number")]
    #[cfg_attr(feature = "schema", schema(value_type = i64))]
    pub total_memory_mb: f64,
    /// Their used memory, MiB.
    #[serde(serialize_with = "whole::number")]
    #[cfg_attr(feature = "schema", schema(value_type = i64))]
    pub used_memory_mb: f64,
    /// Used memory as a share of that of GPUs which report both, %, to one decimal.
    pub memory_utilization_percent: Option<f64>,
    /// Mean utilisation, %, to one decimal.
    pub average_gpu_utilization_percent: Option<f64>,
    /// Mean temperature, °C, to one decimal.
    pub average_temperature_celsius: Option<f64>,
}

impl ClusterSummary {
    /// Over nodes. GPUs of stale readings count: they are still there.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a NodeView>) -> Self {
        let nodes: Vec<_> = nodes.into_iter().collect();
        let gpus: Vec<GpuRecord> = nodes.iter().filter_map(|node| node.gpus()).flatten().collect();
        let both = |gpu: &GpuRecord| Some((gpu.memory_used_mb?, gpu.memory_total_mb?));
        let (used, total) =
            gpus.iter().filter_map(both).fold((0.0, 0.0), |(used, total), gpu| (used + gpu.0, total + gpu.1));
        Self {
            cluster_id: None,
            node_count: nodes.len(),
            gpu_count: gpus.len(),
            total_memory_mb: total_memory_mb(&gpus),
            used_memory_mb: gpus.iter().filter_map(|gpu| gpu.memory_used_mb).fold(0.0, |sum, one| sum + one),
            memory_utilization_percent: (total > 0.0).then(|| rounded(100.0 * used / total)),
            average_gpu_utilization_percent: mean(gpus.iter().filter_map(|gpu| gpu.utilization_gpu_percent)),
            average_temperature_celsius: mean(gpus.iter().filter_map(|gpu| gpu.temperature_celsius)),
        }
    }
}

/// Memory of GPUs, MiB; of those that report it.
pub fn total_memory_mb(gpus: &[GpuRecord]) -> f64 {
    // An empty sum of floats is -0.
    gpus.iter().filter_map(|gpu| gpu.memory_total_mb).fold(0.0, |sum, one| sum + one)
}

/// To one decimal.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| rounded(sum / count))
}

/// To one decimal.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
