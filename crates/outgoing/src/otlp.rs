//! Traces and metrics over OTLP, off unless an endpoint is named.
//!
//! Spans go through the SDK's batch processor and its thread. Metrics are the families of `/metrics`,
//! converted and sent by a thread of their own when they are due. A receiver that is away or slow holds up
//! only these two threads.

mod attributes;
mod convert;
mod counts;
mod encoded;
mod environment;
mod error;
mod receiver;
mod resource;
mod settings;
mod spans;
mod transport;

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gpuvitals_core::figures::Family;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use self::counts::OtlpCounts;
use self::receiver::OtlpReceiver;
use self::resource::SCOPE;
use self::transport::Transport;
use crate::families::ReadFamilies;
use crate::sending::{Outgoing, Sender, Terms};

pub use self::environment::{environment, unread};
pub use self::error::OtlpError;
pub use self::settings::OtlpSettings;

/// Time limit of the end for each signal; data not sent then is dropped and reported.
const LAST_PATIENCE: Duration = Duration::from_millis(2_500);
/// How much longer the thread of the metrics may take to end.
const THREAD_PATIENCE: Duration = Duration::from_millis(500);

/// Sends a service's spans and metrics.
#[derive(Debug)]
pub struct OtlpExporter {
    counts: Arc<OtlpCounts>,
    /// What reads the families that go out as metrics; none yet at the start.
    families: Arc<OnceLock<ReadFamilies>>,
    /// What sends the metrics, if they are wanted.
    metrics: Option<Arc<Sender<OtlpReceiver>>>,
    provider: Option<SdkTracerProvider>,
    stop: CancellationToken,
    /// Disconnects when the thread has ended.
    ended: Mutex<Receiver<()>>,
}

impl OtlpExporter {
    /// Starts sending for a service, with the program's client for HTTP if the settings want one. Returns the tracer as well, if
    /// traces are wanted.
    ///
    /// # Errors
    /// When headers or authorities cannot be read, or no thread can be started.
    pub fn start(
        settings: &OtlpSettings,
        http: Option<ureq::Agent>,
        service: &str,
        node: &str,
    ) -> Result<(Self, Option<SdkTracer>), OtlpError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| OtlpError::Thread { what: "the runtime of the OTLP exporter", source })?;
        // The connection of gRPC, of spans too, lives on this runtime.
        let inside = runtime.enter();
        let transport = Transport::new(settings, http)?;
        let resource = resource::of(settings, service, node);
        let counts = Arc::<OtlpCounts>::default();
        let families = Arc::<OnceLock<ReadFamilies>>::default();
        let metrics = settings.metrics.then(|| {
            let terms = Terms { interval: settings.interval, queue_max: settings.queue_max.0, max_age: None };
            let (counts, resource) = (Arc::clone(&counts), convert::resource(&resource));
            let receiver = OtlpReceiver::new(transport.clone(), settings.timeout, counts, resource);
            let families = Arc::clone(&families);
            Outgoing::start(
                receiver,
                terms,
                ReadFamilies::new(move || families.get().and_then(ReadFamilies::read)),
            )
        });
        drop(inside);
        let provider =
            settings.traces.then(|| spans::provider(settings, &transport, resource, &counts)).transpose()?;
        let tracer = provider.as_ref().map(|provider| provider.tracer(SCOPE));
        let sender = metrics.as_ref().map(Outgoing::sender);
        let stop = CancellationToken::new();
        let ended = run(runtime, metrics, stop.clone())?;
        let ended = Mutex::new(ended);
        Ok((Self { counts, families, metrics: sender, provider, stop, ended }, tracer))
    }

    /// From now on these families go out as metrics. A later call changes nothing: a process has one service.
    pub fn show(&self, families: ReadFamilies) {
        let _shown_before = self.families.set(families);
    }

    /// What became of its spans and points, as families of metrics.
    pub fn families(&self) -> Vec<Family> {
        self.counts.families(self.metrics.as_ref().map_or(0, |metrics| metrics.waiting()))
    }

    /// Sends the rest: spans, then metrics, each for some seconds at most. What is left is dropped, and said.
    pub fn finish(&self) {
        if let Some(provider) = &self.provider
            && let Err(error) = provider.shutdown_with_timeout(LAST_PATIENCE)
        {
            tracing::warn!(reason = %error, "spans were left that the receiver of OTLP did not take");
        }
        self.stop.cancel();
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        // The thread has said what was left.
        let _late = ended.recv_timeout(LAST_PATIENCE + THREAD_PATIENCE);
    }
}

/// Drives the connection and the metrics on a thread of their own, until `stop`. What is returned disconnects at its end.
fn run(
    runtime: Runtime,
    metrics: Option<Outgoing<OtlpReceiver>>,
    stop: CancellationToken,
) -> Result<Receiver<()>, OtlpError> {
    let (end, ended) = sync_channel(0);
    let run = move || {
        let _end: SyncSender<()> = end;
        runtime.block_on(async {
            stop.cancelled().await;
            if let Some(metrics) = metrics {
                metrics.finish(LAST_PATIENCE).await;
            }
        });
        // Nobody waits for families that cannot be read.
        runtime.shutdown_background();
    };
    std::thread::Builder::new()
        .name("otlp".to_owned())
        .spawn(run)
        .map_err(|source| OtlpError::Thread { what: "the thread otlp", source })?;
    Ok(ended)
}
