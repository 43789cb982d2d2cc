//! The incidents of jobs that this gateway keeps, who listens for requests, and how much comes in at once.

use std::sync::Arc;

use gpuvitals_core::causes;
use gpuvitals_flight::{JobError, JobIncidents};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, watch};

use crate::error::ApiError;

/// Most nodes that listen at the same time. They have nothing to do with the live streams of pages.
const FOLLOWERS_MAX: usize = 2_048;
/// Answers of nodes that come in at the same time; more wait.
const ARRIVALS_MAX: usize = 8;

/// What is kept, and what goes on around it.
#[derive(Debug)]
pub(crate) struct KeptJobs {
    /// The incidents.
    pub(crate) incidents: Arc<JobIncidents>,
    changed: watch::Sender<()>,
    followers: Arc<Semaphore>,
    arrivals: Semaphore,
}

impl KeptJobs {
    /// Of these incidents.
    pub(crate) fn of(incidents: Arc<JobIncidents>) -> Self {
        let (followers, arrivals) = (Arc::new(Semaphore::new(FOLLOWERS_MAX)), Semaphore::new(ARRIVALS_MAX));
        Self { incidents, changed: watch::Sender::new(()), followers, arrivals }
    }

    /// A place among those who listen.
    ///
    /// # Errors
    /// When all are taken.
    pub(crate) fn follower(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let permit = Arc::clone(&self.followers).try_acquire_owned();
        permit.map_err(|_| ApiError::Streams(FOLLOWERS_MAX))
    }

    /// A place among the answers that come in, when there is one.
    ///
    /// # Errors
    /// Never: places are given for as long as the gateway runs.
    pub(crate) async fn arrival(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        self.arrivals.acquire().await.map_err(|_| ApiError::Overloaded)
    }

    /// Wakes whoever waits for what changes.
    pub(crate) fn changed(&self) {
        self.changed.send_replace(());
    }

    /// What changes from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}

/// What comes of work that waits for the disk.
///
/// # Errors
/// Those of the work, and when it panics.
pub(crate) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, JobError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await.map_err(|_| ApiError::Crashed)?;
    if let Err(JobError::Disk(error)) = &done {
        tracing::warn!(error = causes(error), "incidents of jobs cannot be kept or read");
    }
    Ok(done?)
}
