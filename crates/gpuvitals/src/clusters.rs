//! Clusters that are read from outside: their readings go into the queue, their present views to the gateway.

mod figures;

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_clusters::{Cluster, Clusters, Kubernetes};
use gpuvitals_core::clusters::ClusterView;
use gpuvitals_core::figures::Family;
use gpuvitals_core::{Health, clock};
use gpuvitals_queue::link::AnyProducer;

use crate::failure::{Exit, Failure};
use crate::pipe::SidePipe;

/// The clusters at work, and the pipe of their rows.
#[derive(Debug)]
pub(crate) struct ClusterReaders {
    clusters: Clusters,
    pipe: SidePipe,
}

/// As [`ClusterReaders::end`], if there are any.
pub(crate) async fn end(clusters: Option<&ClusterReaders>, patience: Duration) {
    if let Some(clusters) = clusters {
        clusters.end(patience).await;
    }
}

impl ClusterReaders {
    /// Reads the clusters of the settings from now on; their rows go through the producer, `node` names this process in them.
    /// None: there are no clusters.
    ///
    /// # Errors
    /// If one cannot be read as configured, or the producer cannot be made.
    pub(crate) fn start(
        settings: &Kubernetes,
        node: &str,
        producer: impl FnOnce() -> Result<AnyProducer, Failure>,
    ) -> Result<Option<Arc<Self>>, Failure> {
        if settings.clusters.0.is_empty() {
            return Ok(None);
        }
        let checked = Cluster::checked(settings)
            .map_err(|e| Failure::caused(Exit::Config, "configuration: kubernetes.clusters", e))?;
        let producer = producer()?;
        let (clusters, feed) = Clusters::start(checked, node);
        Ok(Some(Arc::new(Self { clusters, pipe: SidePipe::of_readings("rows of clusters", feed, producer) })))
    }

    /// The clusters as they are now.
    pub(crate) fn views(&self) -> Vec<Arc<ClusterView>> {
        self.clusters.clusters()
    }

    /// Whether the queue takes their rows.
    pub(crate) fn queue(&self) -> Health {
        self.pipe.queue()
    }

    /// Figures of the clusters, and of their rows on the way to the queue.
    pub(crate) fn families(&self) -> Vec<Family> {
        let mut families = figures::of_views(&self.views(), clock::now_ns());
        families.extend(
            self.pipe.families(["gpuvitals_cluster_rows_total", "gpuvitals_cluster_rows_lost_total"]),
        );
        families
    }

    /// Ends the readings, and publishes the rows of those that have ended; what the queue does not take in this time is left.
    async fn end(&self, patience: Duration) {
        self.clusters.stop().await;
        self.pipe.end(patience).await;
    }
}
