//! The GPUs of a history, for those who send figures.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use gpuvitals_core::catalogue::Series;
use gpuvitals_core::figures::Family;
use gpuvitals_core::history::{History, Part};
use gpuvitals_core::{causes, clock};
use gpuvitals_exposition::FleetExposition;
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

/// Longest wait for the state of the fleet.
const PATIENCE: Duration = Duration::from_secs(10);

/// The latest values of the GPUs of a history, as families.
#[derive(Debug, Clone)]
pub(crate) struct FleetFigures {
    history: Arc<dyn History>,
    runtime: Handle,
    exposition: Arc<FleetExposition>,
}

impl FleetFigures {
    /// Of a history that is asked on this runtime.
    pub(crate) fn new(history: Arc<dyn History>, runtime: Handle) -> Self {
        Self { history, runtime, exposition: Arc::new(FleetExposition::new(Series::Standard)) }
    }

    /// As they stand now, in parts of some GPUs each; none if the history does not answer, or not all of it. Blocks its thread,
    /// which is none of the runtime's.
    pub(crate) fn read(&self) -> Option<impl Iterator<Item = Vec<Family>> + use<>> {
        let (tell, told) = mpsc::sync_channel(1);
        let history = Arc::clone(&self.history);
        let _asking = AbortOnDropHandle::new(self.runtime.spawn(async move {
            // Nobody may wait any more.
            let _unheard = tell.send(history.fleet().await);
        }));
        match told.recv_timeout(PATIENCE) {
            Ok(Ok(Part { answer, missing })) if missing.is_empty() => {
                Some(Arc::clone(&self.exposition).parts(answer, clock::now_ns()))
            }
            Ok(Ok(Part { missing, .. })) => {
                tracing::debug!(
                    missing = missing.join("; "),
                    "the state of the GPUs is not whole and not sent"
                );
                None
            }
            Ok(Err(error)) => {
                tracing::debug!(error = causes(&error), "the state of the GPUs is not known and not sent");
                None
            }
            Err(_) => {
                tracing::debug!("the state of the GPUs is not there in time and not sent");
                None
            }
        }
    }
}
