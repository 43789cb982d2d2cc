//! Prometheus remote write, 1.0 and 2.0: the families of a service, sent to a receiver at every interval.
//!
//! - **Samples** are the values of the families under the names and labels of `/metrics`, each with the time at which it was
//!   measured. A value that was sent is not sent again; a series that is no longer there is ended with Prometheus'
//!   staleness marker. A process that ends marks nothing: the next one goes on.
//! - **Requests wait** between the intervals and the receiver in an [`Outbox`], compressed, each as a frame.
//! - **The receiver** decides: 5xx, 429 and silence are tried again until the samples are too old, every other refusal drops
//!   the request. Which version it speaks is found out with the first request.
//!
//! The HTTP client comes from the program, which knows how certificates are checked.

mod counts;
mod message;
mod receiver;
mod series;
mod settings;
mod shared;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_core::figures::Family;
use gpuvitals_core::{causes, clock};
use gpuvitals_listener::Figures;
use gpuvitals_listener::client::CredentialError;
use gpuvitals_queue::link::Outbox;
use gpuvitals_queue::{ContentType, Frame};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use self::counts::Counts;
use self::receiver::{Receiver, pack};
use self::series::Tracker;
use self::shared::Shared;

pub use self::settings::RemoteWriteSettings;

/// Families, in parts of any size.
pub type FamilyParts = Box<dyn Iterator<Item = Vec<Family>>>;
/// Reads the families; none: they cannot be read now, and nothing is sent.
pub type ReadFamilies = Box<dyn Fn() -> Option<FamilyParts> + Send>;

/// Sends a service's families.
#[derive(Debug)]
pub struct RemoteWrite {
    shared: Arc<Shared>,
    /// Ends the looks at the families, after a last one.
    stop: CancellationToken,
    /// Ends the sending.
    give_up: CancellationToken,
    looking: AbortOnDropHandle<()>,
    sending: AbortOnDropHandle<()>,
}

impl RemoteWrite {
    /// Starts sending what `families` reads; `origin` is the node's name. Called inside the runtime that it is to run on.
    ///
    /// # Errors
    /// When a file of the settings cannot be used.
    pub fn start(
        settings: &RemoteWriteSettings,
        http: ureq::Agent,
        origin: &str,
        families: ReadFamilies,
    ) -> Result<Self, CredentialError> {
        // Said at the start, not with the first request.
        settings.headers()?;
        let outbox = Outbox::new(settings.queue_max.0);
        let shared = Arc::new(Shared { outbox, counts: Counts::default() });
        let (stop, give_up) = (CancellationToken::new(), CancellationToken::new());
        let receiver = Receiver::new(settings, http, Arc::clone(&shared));
        let sending = {
            let (shared, give_up) = (Arc::clone(&shared), give_up.clone());
            tokio::spawn(async move {
                let failed = |reason: &str| shared.counts.failed(reason);
                let ended = shared.outbox.send(&receiver, &give_up, failed).await;
                if let Err(error) = ended {
                    tracing::error!(error = causes(&error), "remote write has ended");
                }
            })
        };
        let tracker = Tracker::new(settings.external(origin), clock::now_ns() / 1_000_000);
        let looks = Looks {
            taker: Arc::new(Mutex::new(Taker { tracker, families })),
            shared: Arc::clone(&shared),
            interval: settings.interval,
        };
        let looking = tokio::spawn(looks.run(stop.clone()));
        tracing::info!(receiver = settings.shown_url(), "metrics are sent by remote write");
        let [looking, sending] = [looking, sending].map(AbortOnDropHandle::new);
        Ok(Self { shared, stop, give_up, looking, sending })
    }

    /// Its own figures.
    pub fn figures(&self) -> Figures {
        let shared = Arc::clone(&self.shared);
        Figures::new(move || shared.counts.families(shared.outbox.waiting(), shared.outbox.dropped()))
    }

    /// Takes the last values and sends what waits, at most for `grace`; what is left is dropped, and said.
    pub async fn finish(self, grace: Duration) {
        self.stop.cancel();
        let rest = async {
            ended(self.looking).await;
            self.shared.outbox.emptied().await;
        };
        let is_late = timeout(grace, rest).await.is_err();
        self.give_up.cancel();
        let left = self.shared.outbox.waiting();
        if is_late || left > 0 {
            tracing::warn!(
                samples = left,
                "samples were left that the receiver of remote write did not take in time"
            );
        }
        // A request on its way is not waited for.
        self.sending.abort();
    }
}

async fn ended(task: AbortOnDropHandle<()>) {
    if let Err(error) = task.await {
        tracing::error!(%error, "remote write ended by a panic");
    }
}

/// Looks at the families at every interval.
struct Looks {
    taker: Arc<Mutex<Taker>>,
    shared: Arc<Shared>,
    interval: Duration,
}

struct Taker {
    tracker: Tracker,
    families: ReadFamilies,
}

impl Looks {
    async fn run(self, stop: CancellationToken) {
        // Agents that start together do not send together.
        let first = Instant::now() + self.interval.mul_f64(fastrand::f64());
        let mut ticks = interval_at(first, self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            self.look().await;
        }
        self.look().await;
    }

    /// Queues the new values. They are read and written on a thread that may block.
    async fn look(&self) {
        let taker = Arc::clone(&self.taker);
        let taking =
            tokio::task::spawn_blocking(move || taker.lock().unwrap_or_else(PoisonError::into_inner).take());
        let (frames, out_of_order) = taking.await.unwrap_or_else(|error| {
            tracing::error!(%error, "reading the metrics for remote write ended by a panic");
            Default::default()
        });
        self.shared.counts.out_of_order(out_of_order);
        for frame in frames {
            let samples = frame.count;
            if let Err(error) = self.shared.outbox.push(frame).await {
                self.shared.counts.unqueued(samples);
                tracing::debug!(
                    samples,
                    error = causes(&error),
                    "samples found no place in the queue of remote write"
                );
            }
        }
    }
}

impl Taker {
    /// Frames of new samples, and the number of those out of order.
    fn take(&mut self) -> (Vec<Frame>, u64) {
        let Some(families) = (self.families)() else { return Default::default() };
        let mut frames = Vec::new();
        let out_of_order = self.tracker.take(families, clock::now_ns() / 1_000_000, &mut |request| {
            let samples = u32::try_from(request.timeseries.len()).unwrap_or(u32::MAX);
            // The queue of this process does not open it.
            frames.extend(pack(&request).map(|packed| Frame::new(ContentType::Batch, samples, packed)));
        });
        (frames, out_of_order)
    }
}
