//! The clusters and nodes that a question is about.

use std::sync::Arc;

use super::{ClusterView, NodeView};

/// Which clusters and nodes are asked: all, unless named.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterSelection {
    /// Only this cluster.
    pub cluster: Option<String>,
    /// Only nodes of this name.
    pub node: Option<String>,
}

/// What a question is about, as it is now.
#[derive(Debug, Clone)]
pub struct SelectedClusters {
    /// The clusters that it is about.
    pub clusters: Vec<Arc<ClusterView>>,
    /// The nodes, each with its cluster.
    pub nodes: Vec<(Arc<ClusterView>, Arc<NodeView>)>,
    /// What an answer about them lacks and why, for people.
    pub missing: Vec<String>,
}

/// Why a question is about nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoCluster {
    /// No cluster of the configuration has this name.
    #[error("no cluster has this name")]
    Unknown,
    /// It has no GPUs, by configuration.
    #[error("the cluster has no GPUs by configuration (has_gpu: false)")]
    NoGpus,
    /// No GPU node has this name.
    #[error("no GPU node has this name")]
    UnknownNode,
    /// No known GPU node has this name, and not all clusters tell theirs: these and why.
    #[error("no known GPU node has this name; what could not be read: {}", .0.join("; "))]
    Hidden(Vec<String>),
}

impl ClusterSelection {
    /// Selects among all clusters of the configuration.
    ///
    /// # Errors
    /// If a named cluster or node is not among them, or the named cluster has no GPUs.
    pub fn among(&self, all: &[Arc<ClusterView>]) -> Result<SelectedClusters, NoCluster> {
        let clusters = match &self.cluster {
            None => all.to_vec(),
            Some(name) => {
                let found = all.iter().find(|cluster| *cluster.name == **name).ok_or(NoCluster::Unknown)?;
                if !found.has_gpu {
                    return Err(NoCluster::NoGpus);
                }
                vec![Arc::clone(found)]
            }
        };
        // Who names a node knows of it, and is told why nothing of it is there.
        let is_asked = |cluster: &ClusterView, node: &NodeView| match &self.node {
            None => cluster.shows(node),
            Some(name) => *node.name == **name,
        };
        let nodes: Vec<_> = clusters
            .iter()
            .flat_map(|cluster| cluster.nodes.iter().map(move |node| (Arc::clone(cluster), Arc::clone(node))))
            .filter(|(cluster, node)| is_asked(cluster, node))
            .collect();
        let missing = match &self.node {
            None => clusters.iter().flat_map(|cluster| cluster.missing()).collect(),
            Some(_) => nodes.iter().flat_map(|(cluster, node)| cluster.missing_of(node)).collect(),
        };
        if self.node.is_some() && nodes.is_empty() {
            let hides = |cluster: &&Arc<ClusterView>| cluster.state.hides_nodes();
            let hidden: Vec<String> = clusters.iter().filter(hides).flat_map(|it| it.missing()).collect();
            return Err(if hidden.is_empty() { NoCluster::UnknownNode } else { NoCluster::Hidden(hidden) });
        }
        Ok(SelectedClusters { clusters, nodes, missing })
    }

    /// The summary of what is selected.
    pub fn summary(&self, selected: &SelectedClusters) -> super::ClusterSummary {
        let summary = super::ClusterSummary::of(selected.nodes.iter().map(|(_, node)| node.as_ref()));
        super::ClusterSummary { cluster_id: self.cluster.clone(), ..summary }
    }
}
