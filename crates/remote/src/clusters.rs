//! The clusters that are read from outside, as the gRPC service `gpuvitals.clusters.v1`.

use std::sync::Arc;

use gpuvitals_core::clusters::{
    ClusterSelection, ClusterView, GpuRecord, NoCluster, NodeView, ProcessRecord, SelectedClusters,
    total_memory_mb,
};
use tonic::{Request, Response, Status};

use crate::clusters_v1 as v1;
use crate::clusters_v1::clusters_server::Clusters as Calls;
use crate::service::{Parts, parts};

/// Nodes of one message: of 16 GPUs with a few processes each some 1 MiB.
const PART_NODES: usize = 100;
/// Processes of one message.
const PART_PROCESSES: usize = 8_192;

/// The clusters as they are now.
pub type ClusterViews = Arc<dyn Fn() -> Vec<Arc<ClusterView>> + Send + Sync>;

/// Answers the calls.
pub(crate) struct ClusterAnswers(pub(crate) ClusterViews);

impl ClusterAnswers {
    fn selected(&self, of: &ClusterSelection) -> Result<SelectedClusters, Status> {
        of.among(&(self.0)()).map_err(|why| {
            let words = why.to_string();
            match why {
                NoCluster::Unknown | NoCluster::UnknownNode => Status::not_found(words),
                NoCluster::NoGpus => Status::failed_precondition(words),
                NoCluster::Hidden(_) => Status::unavailable(words),
            }
        })
    }
}

#[tonic::async_trait]
impl Calls for ClusterAnswers {
    type ListNodesStream = Parts<v1::NodesPart>;
    type ListProcessesStream = Parts<v1::ProcessesPart>;

    async fn list_clusters(
        &self,
        _: Request<v1::ListClustersRequest>,
    ) -> Result<Response<v1::ListClustersResponse>, Status> {
        let SelectedClusters { clusters, missing, .. } = self.selected(&ClusterSelection::default())?;
        let clusters = clusters.iter().map(|cluster| cluster_of(cluster)).collect();
        Ok(Response::new(v1::ListClustersResponse { clusters, missing }))
    }

    async fn list_nodes(
        &self,
        request: Request<v1::ListNodesRequest>,
    ) -> Result<Response<Self::ListNodesStream>, Status> {
        let v1::ListNodesRequest { cluster_id, node_name } = request.into_inner();
        let SelectedClusters { nodes, mut missing, .. } = self.selected(&selection(cluster_id, node_name))?;
        let made = pieces(nodes, PART_NODES).map(move |nodes| {
            let nodes = nodes.iter().map(|(cluster, node)| node_of(cluster, node)).collect();
            Ok(v1::NodesPart { nodes, missing: std::mem::take(&mut missing) })
        });
        Ok(parts(made))
    }

    async fn list_processes(
        &self,
        request: Request<v1::ListProcessesRequest>,
    ) -> Result<Response<Self::ListProcessesStream>, Status> {
        let v1::ListProcessesRequest { cluster_id, node_name } = request.into_inner();
        let SelectedClusters { nodes, mut missing, .. } = self.selected(&selection(cluster_id, node_name))?;
        let readings = nodes.iter().filter_map(|(_, node)| node.reading.as_ref());
        let processes = readings.flat_map(|reading| reading.processes()).map(v1::Process::from).collect();
        let made = pieces(processes, PART_PROCESSES)
            .map(move |processes| Ok(v1::ProcessesPart { processes, missing: std::mem::take(&mut missing) }));
        Ok(parts(made))
    }

    async fn summarize(
        &self,
        request: Request<v1::SummarizeRequest>,
    ) -> Result<Response<v1::Summary>, Status> {
        let of = selection(request.into_inner().cluster_id, String::new());
        let selected = self.selected(&of)?;
        let summary = of.summary(&selected);
        Ok(Response::new(v1::Summary {
            cluster_id: summary.cluster_id,
            node_count: count(summary.node_count),
            gpu_count: count(summary.gpu_count),
            total_memory_mb: Some(summary.total_memory_mb),
            used_memory_mb: Some(summary.used_memory_mb),
            memory_utilization_percent: summary.memory_utilization_percent,
            average_gpu_utilization_percent: summary.average_gpu_utilization_percent,
            average_temperature_celsius: summary.average_temperature_celsius,
            missing: selected.missing,
        }))
    }
}

/// Everything in pieces; of nothing one that is empty.
fn pieces<T>(mut all: Vec<T>, len: usize) -> impl Iterator<Item = Vec<T>> {
    let mut is_first = true;
    std::iter::from_fn(move || {
        if all.is_empty() && !std::mem::take(&mut is_first) {
            return None;
        }
        is_first = false;
        let rest = all.split_off(all.len().min(len));
        Some(std::mem::replace(&mut all, rest))
    })
}

fn selection(cluster: String, node: String) -> ClusterSelection {
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    ClusterSelection { cluster: given(cluster), node: given(node) }
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

fn cluster_of(cluster: &ClusterView) -> v1::Cluster {
    let times = || cluster.readings().map(|reading| reading.taken_ns);
    v1::Cluster {
        cluster_id: cluster.name.to_string(),
        state: cluster.state.name().to_owned(),
        since_ns: cluster.since_ns,
        error: cluster.error.as_deref().map(str::to_owned),
        has_gpu: cluster.has_gpu,
        skips_tls_verify: cluster.skips_tls_verify,
        node_count: cluster.node_count().map(count),
        gpu_count: count(cluster.gpus_read()),
        newest_reading_ns: times().max(),
        oldest_reading_ns: times().min(),
    }
}

fn node_of(cluster: &ClusterView, node: &NodeView) -> v1::Node {
    let gpus = node.gpus().unwrap_or_default();
    let reading = node.reading.as_ref();
    v1::Node {
        node_name: node.name.to_string(),
        cluster_id: cluster.name.to_string(),
        vendor: node.vendor.to_owned(),
        state: node.state.name().to_owned(),
        since_ns: node.since_ns,
        error: node.error.as_deref().map(str::to_owned),
        stale: cluster.is_stale(node),
        read_ns: reading.map(|reading| reading.taken_ns),
        gpu_count: Some(count(node.gpu_count())),
        gpus_announced: node.gpus_announced,
        total_memory_mb: Some(total_memory_mb(&gpus)),
        labels: node.labels.iter().map(|(name, text)| (name.clone(), text.clone())).collect(),
        gpus: gpus.into_iter().map(v1::Gpu::from).collect(),
        processes_error: reading.and_then(|reading| reading.processes_error.as_deref()).map(str::to_owned),
    }
}

impl From<GpuRecord> for v1::Gpu {
    fn from(gpu: GpuRecord) -> Self {
        Self {
            index: gpu.index,
            uuid: gpu.uuid,
            name: gpu.name,
            driver_version: gpu.driver_version,
            temperature_celsius: gpu.temperature_celsius,
            utilization_gpu_percent: gpu.utilization_gpu_percent,
            utilization_memory_percent: gpu.utilization_memory_percent,
            memory_total_mb: gpu.memory_total_mb,
            memory_used_mb: gpu.memory_used_mb,
            memory_free_mb: gpu.memory_free_mb,
            power_draw_watts: gpu.power_draw_watts,
            power_limit_watts: gpu.power_limit_watts,
            pcie_generation: gpu.pcie_generation,
            pcie_link_width: gpu.pcie_link_width,
            fan_speed_percent: gpu.fan_speed_percent,
            processes: gpu.processes.into_iter().map(v1::Process::from).collect(),
        }
    }
}

impl From<ProcessRecord> for v1::Process {
    fn from(process: ProcessRecord) -> Self {
        Self {
            pid: process.pid,
            gpu_index: process.gpu_index,
            process_type: process.process_type,
            sm_utilization: process.sm_utilization,
            memory_utilization: process.memory_utilization,
            encoder_utilization: process.encoder_utilization,
            decoder_utilization: process.decoder_utilization,
            fb_memory_mb: process.fb_memory_mb,
            command: process.command,
            node_name: process.node_name,
            cluster_id: process.cluster_id,
        }
    }
}
