//! Clusters, their GPU nodes, and nvidia-smi run in driver pods through the Kubernetes API.
//!
//! For clusters on which nothing may be installed. [`Clusters::start`] runs one task for each [`Cluster`]. It lists the GPU
//! nodes and the driver pods, and runs the tool in each pod with the dialect that a node's own agent uses: a pod is another
//! [`Tool`](gpuvitals_sources::machine::Tool). Readings become the present [`ClusterView`]s, and batches for a pipe
//! ([`Feed`]).
//!
//! Limits: one exec in flight for each node, [`Cluster::parallel`] for each cluster, a deadline and an output bound for
//! each exec. A cluster that does not answer delays only itself.

mod config;
mod discovery;
mod error;
mod exec;
mod labels;
mod node;
mod session;
mod settings;
mod watcher;

use std::sync::Arc;

use gpuvitals_core::clusters::ClusterView;
use gpuvitals_core::feed::{self, Feed};
use gpuvitals_core::{Origin, clock};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub use config::{Cluster, ClusterSettings, ClusterToken, ConfigError};
pub use settings::{ClusterList, Kubernetes};

/// The clusters, read at their intervals until [`Clusters::stop`].
#[derive(Debug)]
pub struct Clusters {
    views: Vec<watch::Receiver<Arc<ClusterView>>>,
    cancel: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
}

impl Clusters {
    /// Starts a task for each cluster that has GPUs. `node` names this process in the batches it makes. Must be called
    /// in a runtime.
    pub fn start(clusters: Vec<Cluster>, node: &str) -> (Self, Feed) {
        let origin = Origin { node: Arc::from(node), started_ns: clock::now_ns() };
        let (outlet, feed) = feed::open();
        let cancel = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let mut views = Vec::with_capacity(clusters.len());
        for cluster in clusters {
            let has_gpu = cluster.has_gpu;
            let watcher =
                watcher::Watcher::new(cluster, origin.clone(), outlet.clone(), cancel.child_token());
            views.push(watcher.view());
            if has_gpu {
                tasks.spawn(watcher.run());
            }
        }
        (Self { views, cancel, tasks: Mutex::new(tasks) }, feed)
    }

    /// All clusters as they are now, in the order of the configuration. Never waits.
    pub fn clusters(&self) -> Vec<Arc<ClusterView>> {
        self.views.iter().map(|view| Arc::clone(&view.borrow())).collect()
    }

    /// A cluster and its changes; none if no cluster has this name.
    pub fn watch(&self, cluster: &str) -> Option<watch::Receiver<Arc<ClusterView>>> {
        self.views.iter().find(|view| *view.borrow().name == *cluster).cloned()
    }

    /// Ends all tasks, and with them the feed. Readings in flight are abandoned; nvidia-smi itself may go on running in its
    /// pod until it ends. The views stay as they were.
    pub async fn stop(&self) {
        self.cancel.cancel();
        let mut tasks = self.tasks.lock().await;
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "the task of a cluster has ended with a bug");
            }
        }
    }
}

impl Drop for Clusters {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
