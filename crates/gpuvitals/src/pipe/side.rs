//! A pipe beside the main one: rows that a part of this process makes, on their way to the queue.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gpuvitals_core::feed::{self, Feed, FeedCounts, Outlet};
use gpuvitals_core::figures::{Family, Kind, Labels, Number};
use gpuvitals_core::{Health, Status, causes, clock};
use gpuvitals_queue::link::AnyProducer;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::progress::Progress;
use super::sources::Sampled;
use super::start::start;
use super::terms::{Counted, Format, PipeError, Terms};

/// Names of the figures of the rows that findings make, see [`SidePipe::families`].
pub(crate) const FINDING_ROWS: [&str; 2] =
    ["gpuvitals_finding_rows_total", "gpuvitals_finding_rows_lost_total"];

/// The worst health of a queue and its pipes. They usually share one cause, so it is reported once.
pub(crate) fn worst(queue: Health, pipes: impl Iterator<Item = Health>) -> Health {
    pipes.fold(queue, |worst, pipe| if pipe.status > worst.status { pipe } else { worst })
}

/// A pipe of rows that this process makes itself, beside the rows of its source.
#[derive(Debug)]
pub(crate) struct SidePipe {
    what: &'static str,
    fed: Arc<FeedCounts>,
    progress: Arc<Progress>,
    stop: CancellationToken,
    give_up: CancellationToken,
    /// Ends with the pipe.
    running: tokio::sync::Mutex<JoinHandle<()>>,
    /// Why the pipe has ended before its time.
    broken: Arc<OnceLock<Health>>,
}

impl SidePipe {
    /// That of findings, with the end to put their rows into.
    pub(crate) fn of_findings(producer: AnyProducer) -> (Outlet, Arc<Self>) {
        let (outlet, feed) = feed::open();
        let fed = Arc::clone(feed.counts());
        (outlet, Arc::new(Self::start("rows of findings", fed, feed, producer)))
    }

    /// Publishes what comes out of a feed, with the rows that are made from them; `what` names the rows for people.
    pub(crate) fn of_readings(what: &'static str, feed: Feed, producer: AnyProducer) -> Self {
        let fed = Arc::clone(feed.counts());
        Self::start(what, fed, Sampled::new(feed), producer)
    }

    fn start(
        what: &'static str,
        fed: Arc<FeedCounts>,
        source: impl Counted + 'static,
        producer: AnyProducer,
    ) -> Self {
        let progress = Arc::new(Progress::new());
        let [stop, give_up] = [(); 2].map(|()| CancellationToken::new());
        let terms = Terms { format: Format::Batch, rate: None, stop: stop.clone(), give_up: give_up.clone() };
        let running = start(source, vec![producer], &progress, terms);
        let broken = Arc::new(OnceLock::new());
        let breaks = Arc::clone(&broken);
        let running = tokio::spawn(async move {
            let Err(error) = running.await.unwrap_or(Err(PipeError::Panicked)) else { return };
            let reason = format!("stopped publishing {what}: {}", causes(&error));
            tracing::error!(reason, "these rows are not kept");
            let health = Health { status: Status::Degraded, reason, since_ns: clock::now_ns() };
            let _ends_once = breaks.set(health);
        });
        Self { what, fed, progress, stop, give_up, running: tokio::sync::Mutex::new(running), broken }
    }

    /// Whether the queue takes its rows.
    pub(crate) fn queue(&self) -> Health {
        self.broken.get().cloned().unwrap_or_else(|| self.progress.queue())
    }

    /// How many of its rows the queue took.
    pub(crate) fn rows(&self) -> u64 {
        self.progress.counts().rows
    }

    /// Rows that the queue took, under the first name, and rows that it does not get, under the second.
    pub(crate) fn families(&self, [taken, lost]: [&'static str; 2]) -> [Family; 2] {
        let sent = self.progress.counts();
        let reasons = [("dropped_row", self.fed.rows_dropped()), ("not_sent", sent.left)];
        let what = self.what;
        [
            Family::new(taken, Kind::Counter, format!("Number of {what} that the queue took."))
                .with(Labels::new(), Number::from(sent.rows)),
            Family::new(
                lost,
                Kind::Counter,
                format!("Number of {what} that the queue does not get: too many waited for it, or it took none until the end."),
            )
            .by("reason", reasons),
        ]
    }

    /// Publishes what is waiting, and ends; what the queue does not take in this time is left.
    pub(crate) async fn end(&self, patience: Duration) {
        self.stop.cancel();
        let mut running = self.running.lock().await;
        if !running.is_finished() && tokio::time::timeout(patience, &mut *running).await.is_err() {
            tracing::warn!("the queue does not take the last {}", self.what);
            self.give_up.cancel();
            // It counts what is left, and ends.
            let _ended = (&mut *running).await;
        }
    }
}
