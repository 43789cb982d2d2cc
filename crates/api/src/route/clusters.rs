//! `/api/v1/gpu/…`: clusters whose GPU nodes are read from outside, as they are now.

use std::sync::Arc;

use axum::extract::{Path, State as Shared};
use axum::http::HeaderMap;
use gpuvitals_core::clusters::{
    ClusterSelection, ClusterSummary, ClusterView, NoCluster, NodeView, ProcessRecord, SelectedClusters,
};
use gpuvitals_listener::echo;
use gpuvitals_listener::parameter::ParameterError;
use serde::Deserialize;
use utoipa::IntoParams;

use super::answered::Answered;
use super::gpus::NoParams;
use crate::api::Api;
use crate::ask::{Ask, Body, Rendered, View};
use crate::dto::{ClusterInfo, ClusterNode};
use crate::error::{ApiError, ErrorBody};
use crate::parameter::{Asked, Named, given};

/// What may be asked of each list of a cluster.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ClusterParams {
    /// Only this cluster.
    #[param(example = "east")]
    cluster_id: Option<String>,
}

/// What may be asked of `GET /api/v1/gpu/processes`.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ProcessesParams {
    /// Only this cluster.
    #[param(example = "east")]
    cluster_id: Option<String>,
    /// Only nodes of this name.
    #[param(example = "node-07")]
    node_name: Option<String>,
}

/// A question for the clusters.
#[derive(Debug)]
pub(crate) struct ClustersAsk {
    of: ClusterSelection,
    what: ClustersQuestion,
}

/// What of them is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClustersQuestion {
    Clusters,
    Nodes,
    OneNode,
    Processes,
    Summary,
}

/// The clusters of the configuration, and which of their nodes are missing and why.
#[utoipa::path(
    get, path = "/api/v1/gpu/clusters", tag = "clusters", operation_id = "list_clusters",
    responses(
        (status = 200, description = "The clusters, in the order of the configuration.", body = Vec<ClusterInfo<'static>>,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn list(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(NoParams {}): Asked<NoParams>,
) -> Answered {
    api.answer(ClustersAsk { of: ClusterSelection::default(), what: ClustersQuestion::Clusters }, &headers)
        .await
}

/// The GPU nodes of all clusters or of one, with their GPUs and the processes on them.
#[utoipa::path(
    get, path = "/api/v1/gpu/nodes", tag = "clusters", operation_id = "list_nodes", params(ClusterParams),
    responses(
        (status = 200, description = "The nodes, by cluster and name.", body = Vec<ClusterNode<'static>>,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the cluster has no GPUs.", body = ErrorBody),
        (status = 404, description = "No such cluster.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn nodes(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<ClusterParams>,
) -> Answered {
    api.answer(ClustersAsk { of: params.selected(), what: ClustersQuestion::Nodes }, &headers).await
}

/// One GPU node of a cluster.
#[utoipa::path(
    get, path = "/api/v1/gpu/nodes/{cluster}/{node}", tag = "clusters", operation_id = "get_node",
    params(
        ("cluster" = String, Path, description = "Name of the cluster.", example = "east"),
        ("node" = String, Path, description = "Name of the node.", example = "node-07"),
    ),
    responses(
        (status = 200, description = "The node.", body = ClusterNode<'static>,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the cluster has no GPUs.", body = ErrorBody),
        (status = 404, description = "No such cluster or node.", body = ErrorBody),
        (status = 503, description = "Too busy, or the cluster does not tell its nodes; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn node_of_cluster(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    Asked(NoParams {}): Asked<NoParams>,
) -> Answered {
    let Path((cluster, node)) = path.map_err(ParameterError::from)?;
    let of = ClusterSelection { cluster: Some(cluster), node: Some(node) };
    api.answer(ClustersAsk { of, what: ClustersQuestion::OneNode }, &headers).await
}

/// One GPU node by its name. If several clusters have a node of this name, `cluster_id` says which is meant.
#[utoipa::path(
    get, path = "/api/v1/gpu/nodes/{node}", tag = "clusters", operation_id = "get_node_by_name",
    params(("node" = String, Path, description = "Name of the node.", example = "node-07"), ClusterParams),
    responses(
        (status = 200, description = "The node.", body = ClusterNode<'static>,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed or missing, or the cluster has no GPUs.", body = ErrorBody),
        (status = 404, description = "No such cluster or node.", body = ErrorBody),
        (status = 503, description = "Too busy, or a cluster does not tell its nodes; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn node(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Named(node): Named,
    Asked(params): Asked<ClusterParams>,
) -> Answered {
    let of = ClusterSelection { node: Some(node), ..params.selected() };
    api.answer(ClustersAsk { of, what: ClustersQuestion::OneNode }, &headers).await
}

/// The processes on the GPUs of all clusters, of one, or of one node.
#[utoipa::path(
    get, path = "/api/v1/gpu/processes", tag = "clusters", operation_id = "list_processes", params(ProcessesParams),
    responses(
        (status = 200, description = "The processes, by cluster and node.", body = Vec<ProcessRecord>,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the cluster has no GPUs.", body = ErrorBody),
        (status = 404, description = "No such cluster or node.", body = ErrorBody),
        (status = 503, description = "Too busy, or a cluster does not tell its nodes; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn processes(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<ProcessesParams>,
) -> Answered {
    let cluster = given(params.cluster_id.as_ref()).map(str::to_owned);
    let node = given(params.node_name.as_ref()).map(str::to_owned);
    api.answer(
        ClustersAsk { of: ClusterSelection { cluster, node }, what: ClustersQuestion::Processes },
        &headers,
    )
    .await
}

/// GPUs, memory and means of all clusters together, or of one.
#[utoipa::path(
    get, path = "/api/v1/gpu/summary", tag = "clusters", operation_id = "summarize_clusters", params(ClusterParams),
    responses(
        (status = 200, description = "The summary.", body = ClusterSummary,
         headers(("x-partial" = Option<String>, description = "What could not be read; missing if the answer is whole."))),
        (status = 400, description = "A parameter is not allowed, or the cluster has no GPUs.", body = ErrorBody),
        (status = 404, description = "No such cluster.", body = ErrorBody),
        (status = 503, description = "Too busy; try again.", body = ErrorBody),
    )
)]
pub(crate) async fn summary(
    Shared(api): Shared<Api>,
    headers: HeaderMap,
    Asked(params): Asked<ClusterParams>,
) -> Answered {
    api.answer(ClustersAsk { of: params.selected(), what: ClustersQuestion::Summary }, &headers).await
}

impl ClusterParams {
    fn selected(&self) -> ClusterSelection {
        ClusterSelection { cluster: given(self.cluster_id.as_ref()).map(str::to_owned), node: None }
    }
}

impl Ask for ClustersAsk {
    const OF_HISTORY: bool = false;

    async fn answer(self, view: View) -> Result<Rendered, ApiError> {
        let mut selected = self.of.among(&view.clusters).map_err(|why| self.refused(&why))?;
        if self.what == ClustersQuestion::OneNode && selected.nodes.len() > 1 {
            let allowed = "the cluster that is meant: several have a node of this name";
            return Err(ApiError::Missing { name: "cluster_id", allowed: allowed.into() });
        }
        let missing = std::mem::take(&mut selected.missing);
        view.render(missing, move |view, _| self.body(&selected, view.now_ns())).await
    }
}

/// A node with its cluster, as it is shown.
fn node_of((cluster, node): &(Arc<ClusterView>, Arc<NodeView>), now_ns: i64) -> ClusterNode<'_> {
    ClusterNode::of(cluster, node, now_ns)
}

impl ClustersAsk {
    fn refused(&self, why: &NoCluster) -> ApiError {
        let ClusterSelection { cluster, node } = &self.of;
        let name = |name: &Option<String>| echo(name.as_deref().unwrap_or_default());
        match why {
            NoCluster::Unknown => ApiError::UnknownCluster(name(cluster)),
            NoCluster::NoGpus => ApiError::NoGpus(name(cluster)),
            NoCluster::UnknownNode => ApiError::UnknownNode(name(node)),
            NoCluster::Hidden(missing) => ApiError::Incomplete { name: name(node), missing: missing.clone() },
        }
    }

    fn body(&self, selected: &SelectedClusters, now_ns: i64) -> Result<Body, ApiError> {
        let SelectedClusters { clusters, nodes, .. } = selected;
        let shown = |placed| node_of(placed, now_ns);
        // Ages change with every moment.
        let until_ns = now_ns;
        match self.what {
            ClustersQuestion::Clusters => {
                let all: Vec<_> = clusters.iter().map(|cluster| ClusterInfo::of(cluster, now_ns)).collect();
                Body::until(until_ns, &all)
            }
            ClustersQuestion::Nodes => Body::until(until_ns, &nodes.iter().map(shown).collect::<Vec<_>>()),
            ClustersQuestion::OneNode => Body::until(until_ns, &nodes.first().map(shown)),
            ClustersQuestion::Processes => {
                let readings = nodes.iter().filter_map(|(_, node)| node.reading.as_ref());
                Body::until(until_ns, &readings.flat_map(|reading| reading.processes()).collect::<Vec<_>>())
            }
            ClustersQuestion::Summary => Body::until(until_ns, &self.of.summary(selected)),
        }
    }
}
