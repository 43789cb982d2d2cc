//! The collector against a double of the API server, over real sockets.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod discovery;
mod execs;
mod scale;

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_clusters::{Cluster, ClusterList, ClusterSettings, Clusters, Kubernetes};
use gpuvitals_core::clusters::{ClusterState, ClusterView};
use gpuvitals_core::feed::Feed;
use gpuvitals_rig::cluster::{Double, SeenRequest, World};
use gpuvitals_settings::Section as _;
use serde_json::json;
use tokio::sync::watch;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster with defaults for everything but name and URL.
fn cluster_at(name: &str, api_url: &str) -> ClusterSettings {
    serde_json::from_value(json!({"name": name, "api_url": api_url})).unwrap()
}

/// A cluster of the double, read often.
fn settings(name: &str, double: &Double) -> ClusterSettings {
    ClusterSettings {
        ca_data: double.ca.clone(),
        poll_interval: Duration::from_millis(200),
        discovery_interval: Duration::from_millis(400),
        exec_deadline: Duration::from_secs(2),
        ..cluster_at(name, &double.url)
    }
}

/// A configuration of these clusters.
fn kubernetes(clusters: Vec<ClusterSettings>) -> Kubernetes {
    Kubernetes { clusters: ClusterList(clusters), ..Kubernetes::of(&[]).unwrap() }
}

fn start(clusters: Vec<ClusterSettings>) -> (Clusters, Feed) {
    Clusters::start(Cluster::checked(&kubernetes(clusters)).unwrap(), "tester")
}

/// One cluster over one double.
async fn watched(world: World) -> (Double, Clusters, Feed) {
    let double = Double::start(world).await;
    let (clusters, feed) = start(vec![settings("east", &double)]);
    (double, clusters, feed)
}

/// The view once it is as wanted.
async fn when(clusters: &Clusters, cluster: &str, wanted: impl Fn(&ClusterView) -> bool) -> Arc<ClusterView> {
    let mut views = clusters.watch(cluster).unwrap();
    let found = tokio::time::timeout(PATIENCE, views.wait_for(|view| wanted(view))).await;
    let Ok(view) = found else { panic!("still {:?}", clusters.watch(cluster).unwrap().borrow()) };
    Arc::clone(&view.unwrap())
}

async fn when_state(clusters: &Clusters, cluster: &str, state: ClusterState) -> Arc<ClusterView> {
    when(clusters, cluster, |view| view.state == state).await
}

/// Waits until the double has seen enough.
async fn when_seen(
    seen: &mut watch::Receiver<Vec<SeenRequest>>,
    wanted: impl Fn(&[SeenRequest]) -> bool,
) -> Vec<SeenRequest> {
    let found = tokio::time::timeout(PATIENCE, seen.wait_for(|all| wanted(all))).await;
    found.unwrap().unwrap().clone()
}
