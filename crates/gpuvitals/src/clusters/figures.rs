//! Figures of clusters that are read from outside.

use std::sync::Arc;

use gpuvitals_core::clusters::{ClusterState, ClusterView, NodeState, NodeView};
use gpuvitals_core::figures::{Family, Kind, Labels, Number};

use crate::node_labels;

/// Of the clusters as they are.
pub(super) fn of_views(clusters: &[Arc<ClusterView>], now_ns: i64) -> Vec<Family> {
    let gauge = |name: &'static str, help: &'static str| Family::new(name, Kind::Gauge, help);
    let mut state = gauge("gpuvitals_cluster_state", "1 for the state of a cluster, 0 for the others.");
    let mut nodes = gauge("gpuvitals_cluster_nodes", "GPU nodes of a cluster, by their state.");
    let mut gpus = gauge("gpuvitals_cluster_gpus", "GPUs of a cluster that were read.");
    let mut newest = gauge(
        "gpuvitals_cluster_newest_reading_age_seconds",
        "Age of the newest reading of a node of a cluster.",
    );
    let mut oldest = gauge(
        "gpuvitals_cluster_oldest_reading_age_seconds",
        "Age of the oldest reading of a node of a cluster that is shown.",
    );
    let mut info = Family::new(
        "gpuvitals_node_info",
        Kind::Info,
        "A GPU node of a cluster, with the labels that are kept.",
    );
    for cluster in clusters {
        let of = |more: Option<(&'static str, &str)>| -> Labels {
            let more = more.map(|(name, text)| (name, text.to_owned()));
            std::iter::once(("cluster", cluster.name.to_string())).chain(more).collect()
        };
        for it in ClusterState::ALL {
            state = state.with(of(Some(("state", it.name()))), Number::from(cluster.state == it));
        }
        for it in NodeState::ALL {
            let count = cluster.nodes.iter().filter(|node| node.state == it).count();
            nodes = nodes.with(of(Some(("state", it.name()))), Number::from(count));
        }
        gpus = gpus.with(of(None), Number::from(cluster.gpus_read()));
        let ages = || cluster.nodes.iter().filter_map(|node| node.age_ns(now_ns));
        if let (Some(least), Some(most)) = (ages().min(), ages().max()) {
            newest = newest.with(of(None), seconds(least));
            oldest = oldest.with(of(None), seconds(most));
        }
        for node in &cluster.nodes {
            info = info.with(about(cluster, node), Number::Int(1));
        }
    }
    vec![state, nodes, gpus, newest, oldest, info]
}

fn seconds(ns: i64) -> Number {
    Number::F64(std::time::Duration::from_nanos(ns.unsigned_abs()).as_secs_f64())
}

/// Cluster, node and vendor, and the labels of the node under names that Prometheus takes.
fn about(cluster: &ClusterView, node: &NodeView) -> Labels {
    let mut labels = vec![
        ("cluster", cluster.name.to_string()),
        ("node", node.name.to_string()),
        ("vendor", node.vendor.to_owned()),
    ];
    node_labels::extend(&mut labels, &node.labels);
    labels
}
