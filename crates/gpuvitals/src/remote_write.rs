//! Remote write as the program starts it, and the GPUs of a history for those who send figures.

use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

use gpuvitals_core::catalogue::Series;
use gpuvitals_core::figures::Family;
use gpuvitals_core::history::{History, Part};
use gpuvitals_core::{causes, clock};
use gpuvitals_exposition::FleetExposition;
use gpuvitals_listener::Figures;
use gpuvitals_outgoing::{ReadFamilies, RemoteWrite, RemoteWriteSettings};
use tokio::runtime::Handle;
use tokio_util::task::AbortOnDropHandle;

use crate::client::http_client;
use crate::failure::Failure;
use crate::telemetry;

/// Longest wait for the state of the fleet.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process has one service, and that one sender.
static OWN: OnceLock<Figures> = OnceLock::new();

/// Starts sending what `read` reads, if the settings name a receiver; `node` is this machine.
///
/// # Errors
/// When a file of the settings cannot be used.
pub(crate) fn start(
    settings: &RemoteWriteSettings,
    node: &str,
    runtime: &Handle,
    read: ReadFamilies,
) -> Result<Option<RemoteWrite>, Failure> {
    let _inside = runtime.enter();
    start_inside(settings, node, read)
}

/// The same inside a runtime.
///
/// # Errors
/// When a file of the settings cannot be used.
pub(crate) fn start_inside(
    settings: &RemoteWriteSettings,
    node: &str,
    read: ReadFamilies,
) -> Result<Option<RemoteWrite>, Failure> {
    if !settings.is_on() {
        return Ok(None);
    }
    let http = http_client(settings.has_tls(), &settings.access(), settings.timeout)
        .map_err(|failure| failure.in_setting("remote_write"))?;
    let sender = RemoteWrite::start(settings, http, node, read)?;
    let _started_before = OWN.set(sender.figures());
    Ok(Some(sender))
}

/// Figures of all that sends: remote write, and OTLP.
pub(crate) fn beside() -> Vec<Family> {
    let mut families = telemetry::families();
    families.extend(OWN.get().map(Figures::read).unwrap_or_default());
    families
}

/// The latest values of the GPUs of a history, as families.
#[derive(Debug, Clone)]
pub(crate) struct FleetFigures {
    history: Arc<dyn History>,
    runtime: Handle,
    exposition: Arc<FleetExposition>,
}

#[cfg_attr(not(feature = "services"), expect(dead_code, reason = "a node alone has no history"))]
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
