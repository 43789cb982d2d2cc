//! Traces and metrics over OTLP, off unless an endpoint is named.
//!
//! Spans go through the SDK's batch processor and its thread. Metrics are the families of `/metrics`,
//! converted and sent by a thread of their own when they are due. A receiver that is away or slow holds up
//! only these two threads. A process has one exporter, as it has one log.

mod attributes;
mod convert;
mod counts;
mod environment;
mod metrics;
mod resource;
mod settings;
mod shown;
mod spans;
mod transport;

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gpuvitals_core::figures::Family;
use gpuvitals_listener::Figures;
use gpuvitals_queue::link::Outbox;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;

use counts::{Counts, Signal};
use shown::{SCOPE, Shown};
use transport::Transport;

pub(crate) use environment::{environment, unread};
pub(crate) use settings::Otlp;
pub(crate) use shown::Parts;

/// Time limit of the end for each signal; data not sent then is dropped and reported.
const LAST_PATIENCE: Duration = Duration::from_millis(2_500);

static EXPORTER: OnceLock<Exporter> = OnceLock::new();

struct Exporter {
    counts: Arc<Counts>,
    /// Metrics that wait.
    outbox: Arc<Outbox>,
    figures: Shown,
    provider: Option<SdkTracerProvider>,
    stop: CancellationToken,
    /// Disconnects when the metrics thread has ended.
    ended: Mutex<Receiver<()>>,
}

/// Starts exporting for a service, if the settings name an endpoint. Returns the tracer, if traces are wanted.
///
/// # Errors
/// When headers or authorities cannot be read, or no thread can be started.
pub(crate) fn start(settings: &Otlp, service: &str, node: &str) -> Result<Option<SdkTracer>, Failure> {
    if settings.endpoint.is_empty() {
        return Ok(None);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::io("cannot start the runtime of the OTLP exporter", e))?;
    let (transport, outbox) = {
        let _inside = runtime.enter();
        (Transport::new(settings)?, Arc::new(Outbox::new(settings.queue_max.0)))
    };
    let resource = resource::of(settings, service, node);
    let counts = Arc::<Counts>::default();
    let figures = Shown::default();
    let metrics = settings.metrics.then(|| metrics::Exporter {
        receiver: metrics::Receiver {
            transport: transport.clone(),
            timeout: settings.timeout,
            counts: Arc::clone(&counts),
            signal: Signal::new("metrics"),
        },
        outbox: Arc::clone(&outbox),
        resource: convert::resource(&resource),
        figures: Arc::clone(&figures),
        interval: settings.interval,
    });
    let provider =
        settings.traces.then(|| spans::provider(settings, &transport, resource, &counts)).transpose()?;
    let tracer = provider.as_ref().map(|provider| provider.tracer(SCOPE));
    let stop = CancellationToken::new();
    let (end, ended) = sync_channel(0);
    let stopped = stop.clone();
    let run = move || {
        let _end: std::sync::mpsc::SyncSender<()> = end;
        // The connection of gRPC, of spans too, lives on this runtime.
        runtime.block_on(async {
            match metrics {
                Some(metrics) => metrics.run(stopped).await,
                None => stopped.cancelled().await,
            }
        });
    };
    std::thread::Builder::new()
        .name("otlp".to_owned())
        .spawn(run)
        .map_err(|e| Failure::io("cannot start the thread otlp", e))?;
    // A process has one service.
    let _started_before =
        EXPORTER.set(Exporter { counts, outbox, figures, provider, stop, ended: Mutex::new(ended) });
    Ok(tracer)
}

/// From now on these figures go out as metrics.
pub(crate) fn show(figures: Figures) {
    show_parts(move || Box::new(std::iter::once(figures.read())));
}

/// From now on these families go out as metrics, a part at a time.
pub(crate) fn show_parts(read: impl Fn() -> Parts + Send + Sync + 'static) {
    if let Some(exporter) = EXPORTER.get() {
        *exporter.figures.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(read));
    }
}

/// Figures of the exporter itself; none if nothing is exported.
pub(crate) fn families() -> Vec<Family> {
    EXPORTER.get().map(|exporter| exporter.counts.families(&exporter.outbox)).unwrap_or_default()
}

/// Sends the rest: spans, then metrics, each within [`LAST_PATIENCE`].
pub(crate) fn finish() {
    let Some(exporter) = EXPORTER.get() else { return };
    if let Some(provider) = &exporter.provider
        && let Err(error) = provider.shutdown_with_timeout(LAST_PATIENCE)
    {
        tracing::warn!(reason = %error, "spans were left that the receiver of OTLP did not take");
    }
    exporter.stop.cancel();
    let ended = exporter.ended.lock().unwrap_or_else(PoisonError::into_inner);
    if ended.recv_timeout(LAST_PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        let points = exporter.outbox.waiting();
        tracing::warn!(points, "data points were left that the receiver of OTLP did not take in time");
    }
}
