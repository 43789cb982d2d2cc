//! Clusters that are read from outside: their readings go into the queue, their present views to the gateway.

mod figures;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_clusters::{Cluster, Clusters, Kubernetes};
use gpuvitals_core::clusters::ClusterView;
use gpuvitals_core::figures::Family;
use gpuvitals_core::{Health, Status, causes, clock};
use gpuvitals_queue::link::AnyProducer;
use gpuvitals_remote::ClusterViews;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::failure::{Exit, Failure};
use crate::pipe::{self, Format, Progress, Terms};

/// The clusters at work, and the pipe of their rows.
#[derive(Debug)]
pub(crate) struct ClusterReaders {
    clusters: Clusters,
    progress: Arc<Progress>,
    give_up: CancellationToken,
    /// Ends with the pipe.
    pipe: tokio::sync::Mutex<JoinHandle<()>>,
    /// Why the pipe has ended before its time.
    broken: Arc<Mutex<Option<Health>>>,
}

/// The clusters as gRPC asks for them.
pub(crate) fn views_of(clusters: Option<&Arc<ClusterReaders>>) -> ClusterViews {
    let clusters = clusters.cloned();
    Arc::new(move || clusters.as_ref().map(|clusters| clusters.views()).unwrap_or_default())
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
        let progress = Arc::new(Progress::new());
        let [stop, give_up] = [(); 2].map(|()| CancellationToken::new());
        let terms = Terms { format: Format::Batch, rate: None, stop, give_up: give_up.clone() };
        let running = pipe::start(feed, vec![producer], &progress, terms);
        let broken = Arc::new(Mutex::new(None));
        let breaks = Arc::clone(&broken);
        let pipe = tokio::spawn(async move {
            let Err(error) = running.await.unwrap_or(Err(pipe::PipeError::Panicked)) else { return };
            let reason = format!("rows of clusters are published no more: {}", causes(&error));
            tracing::error!(reason, "clusters are shown as they are, without history");
            let health = Health { status: Status::Degraded, reason, since_ns: clock::now_ns() };
            *breaks.lock().unwrap_or_else(PoisonError::into_inner) = Some(health);
        });
        Ok(Some(Arc::new(Self { clusters, progress, give_up, pipe: tokio::sync::Mutex::new(pipe), broken })))
    }

    /// The clusters as they are now.
    pub(crate) fn views(&self) -> Vec<Arc<ClusterView>> {
        self.clusters.clusters()
    }

    /// Whether the queue takes their rows.
    pub(crate) fn queue(&self) -> Health {
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner).clone();
        broken.unwrap_or_else(|| self.progress.queue())
    }

    /// Figures of the clusters, and of their rows on the way to the queue.
    pub(crate) fn families(&self) -> Vec<Family> {
        let mut families = figures::of_views(&self.views(), clock::now_ns());
        families.extend(figures::of_rows(self.clusters.counts(), self.progress.counts()));
        families
    }

    /// Ends the readings, and publishes the rows of those that have ended; what the queue does not take in this time is left.
    pub(crate) async fn end(&self, patience: Duration) {
        self.clusters.stop().await;
        let mut pipe = self.pipe.lock().await;
        if !pipe.is_finished() && tokio::time::timeout(patience, &mut *pipe).await.is_err() {
            tracing::warn!("the queue does not take the last rows of the clusters");
            self.give_up.cancel();
            // It counts what is left, and ends.
            let _ended = (&mut *pipe).await;
        }
    }
}
