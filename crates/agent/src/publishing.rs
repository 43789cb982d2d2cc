//! Publishes rows of the GPUs and the host to a queue, if the settings name one.
//!
//! Rows wait until they fill a frame, or for the publishing interval at most, and go through a spool: a queue that is away or
//! does not answer holds up neither sampling nor scrapes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_analysis::outgoing::Outgoing;
use gpuvitals_core::catalogue::Table;
use gpuvitals_core::clock::Moment;
use gpuvitals_core::figures::{Family, Kind};
use gpuvitals_core::usage::Sharing;
use gpuvitals_core::{Batch, causes, wire};
use gpuvitals_exposition::JobMeters;
use gpuvitals_queue::link::{AnyProducer, Client, Credentials, MessageQueue, Scheme};
use gpuvitals_queue::{ContentType, Frame, Producer, PublishError, QueueClock, Receipt};
use tokio::runtime::Handle;

use crate::spool::{Spool, SpoolStats};
use crate::{AgentError, AgentSettings};

/// Rows that make a frame; more of them compress hardly better.
const FRAME_ROWS: usize = 500;
/// Rows from which on a scrape takes no more: as many as the sampler itself keeps for a reader that hangs.
const WAITING_ROWS_MAX: usize = 32_768;

/// The way to the queue.
#[derive(Debug)]
pub(crate) struct Publisher {
    spool: Spool,
    queue: String,
    interval_ns: i64,
    unwritable: AtomicU64,
}

impl Publisher {
    /// By the settings; none if they name no queue.
    ///
    /// # Errors
    /// If the client for the queue cannot be created, or the spool's directory cannot be used.
    pub(crate) fn open(
        settings: &AgentSettings,
        queue: &MessageQueue,
        runtime: &Handle,
    ) -> Result<Option<Self>, AgentError> {
        if queue.address.scheme == Scheme::InProcess {
            return Ok(None);
        }
        let producer = ReloadingProducer::new(queue)?;
        let directory = settings.spool_dir().map(std::path::Path::to_path_buf);
        let opening = Spool::open(producer, directory, settings.spool_max.0);
        let spool = runtime.block_on(opening)?;
        tracing::info!(queue = %queue.address, topic = queue.topic, "rows are published");
        Ok(Some(Self {
            spool,
            queue: queue.address.to_string(),
            interval_ns: i64::try_from(settings.publish_interval.as_nanos()).unwrap_or(i64::MAX),
            unwritable: AtomicU64::new(0),
        }))
    }

    /// Publishes batches, those of a table joined where possible.
    pub(crate) fn publish_all(&self, batches: &[Batch]) {
        for table in Table::ALL {
            let of_table: Vec<Batch> =
                batches.iter().filter(|batch| batch.table() == table).cloned().collect();
            match Batch::concat(&of_table) {
                Some(whole) => self.publish(&whole),
                None => of_table.iter().for_each(|batch| self.publish(batch)),
            }
        }
    }

    fn publish(&self, batch: &Batch) {
        let rows = u32::try_from(batch.rows()).unwrap_or(u32::MAX);
        match wire::encode(batch) {
            Ok(payload) => self.spool.hand_over(Frame::new(ContentType::Batch, rows, payload)),
            Err(error) => {
                self.unwritable.fetch_add(rows.into(), Ordering::Relaxed);
                tracing::error!(rows, error = causes(&error), "rows cannot be published");
            }
        }
    }

    /// Sends waiting rows, at most for `grace`, and keeps the rest if the spool can.
    pub(crate) async fn finish(&self, grace: Duration) {
        let SpoolStats { kept, dropped, .. } = self.spool.finish(grace).await;
        if kept > 0 {
            tracing::info!(rows = kept, "rows are spooled for the next start");
        }
        if dropped > 0 {
            tracing::warn!(rows = dropped, "rows were dropped on their way to the queue");
        }
    }

    /// Why the spool stores nothing more on its disk, if so.
    pub(crate) fn spool_failed(&self) -> Option<Arc<str>> {
        self.spool.stats().failed
    }

    /// A line about a queue that takes nothing, or a spool that stores nothing.
    pub(crate) fn ailment(&self, clock: &QueueClock) -> Option<String> {
        let stats = self.spool.stats();
        let away = stats.away.map(|away| {
            let seconds = clock.now().since(away.since).as_secs();
            let (queue, reason, kept) = (&self.queue, away.reason, stats.kept);
            format!("the queue {queue} has taken nothing for {seconds} s ({reason}); {kept} rows are kept")
        });
        let failed = stats.failed.map(|reason| format!("the spool is in memory until a restart ({reason})"));
        let lines: Vec<_> = away.into_iter().chain(failed).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    /// What became of its rows, as families of metrics.
    pub(crate) fn families(&self) -> Vec<Family> {
        let stats = self.spool.stats();
        let dropped = [
            ("limit", stats.dropped),
            ("refused", stats.dead),
            ("unwritable", self.unwritable.load(Ordering::Relaxed)),
        ];
        vec![
            Family::gauge(
                "gpuvitals_queue_up",
                "Whether the queue took the last frame that was tried.",
                stats.away.is_none(),
            ),
            Family::counter("gpuvitals_published_rows_total", "Rows that the queue took.", stats.taken),
            Family::counter(
                "gpuvitals_published_frames_total",
                "Frames that the queue took.",
                stats.taken_frames,
            ),
            Family::gauge("gpuvitals_spool_rows", "Rows that are spooled.", stats.kept),
            Family::gauge("gpuvitals_spool_bytes", "Bytes that are spooled.", stats.kept_bytes),
            Family::new(
                "gpuvitals_publish_dropped_rows_total",
                Kind::Counter,
                "Rows that were not published, by reason.",
            )
            .by("reason", dropped),
        ]
    }
}

/// A producer that reads the token's file again whenever the queue denies access, and logs the remedy.
struct ReloadingProducer {
    queue: MessageQueue,
    /// The access of the producer, and the producer.
    current: Mutex<(Credentials, Arc<AnyProducer>)>,
}

impl ReloadingProducer {
    fn new(queue: &MessageQueue) -> Result<Self, AgentError> {
        let access = queue.access()?;
        let producer = Arc::new(Self::producer(queue, &access)?);
        Ok(Self { queue: queue.clone(), current: Mutex::new((access, producer)) })
    }

    fn producer(queue: &MessageQueue, access: &Credentials) -> Result<AnyProducer, AgentError> {
        Ok(Client::new(queue.address.clone(), access.clone()).producer(queue.topic.as_str())?)
    }

    fn current(&self) -> MutexGuard<'_, (Credentials, Arc<AnyProducer>)> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A producer with another token than the denied one, if there is one by now.
    fn renewed(&self, denied: &Arc<AnyProducer>) -> Result<Option<Arc<AnyProducer>>, AgentError> {
        let token = self.queue.token()?;
        let mut current = self.current();
        let (access, producer) = &mut *current;
        if access.token != token {
            *access = Credentials { token, ..access.clone() };
            *producer = Arc::new(Self::producer(&self.queue, access)?);
            tracing::info!(queue = %self.queue.address, "the token was read again");
        }
        Ok(Some(Arc::clone(producer)).filter(|producer| !Arc::ptr_eq(producer, denied)))
    }
}

impl Producer for ReloadingProducer {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        let producer = Arc::clone(&self.current().1);
        let outcome = producer.publish(frame.clone()).await;
        let Err(PublishError::Denied { reason }) = outcome else { return outcome };
        let denied = |reason: &str, way_in: String| PublishError::Denied {
            reason: format!("{reason}; {way_in}").into(),
        };
        match self.renewed(&producer) {
            Ok(None) => Err(denied(&reason, self.queue.way_in())),
            Ok(Some(producer)) => producer.publish(frame).await,
            Err(error) => Err(denied(&reason, causes(&error))),
        }
    }
}

/// Rows that wait for more of them.
#[derive(Debug)]
pub(crate) struct WaitingRows {
    outgoing: Outgoing,
    /// What the holders of the GPUs have used so far.
    meters: JobMeters,
    interval_ns: i64,
    batches: Vec<Batch>,
    rows: usize,
    /// When the first of them came, monotonic.
    since_ns: i64,
}

impl WaitingRows {
    /// None yet, of GPUs of which some may be shared.
    pub(crate) fn new(publisher: &Publisher, sharing: Arc<dyn Sharing>) -> Self {
        let (outgoing, interval_ns) = (Outgoing::accounting(sharing), publisher.interval_ns);
        let meters = JobMeters::default();
        Self { outgoing, meters, interval_ns, batches: Vec::new(), rows: 0, since_ns: 0 }
    }

    /// Takes rows of the sampler.
    pub(crate) fn take(&mut self, batch: Batch, now: Moment) {
        for batch in self.outgoing.take(batch) {
            if self.batches.is_empty() {
                self.since_ns = now.mono_ns;
            }
            if batch.table() == Table::GpuUsage {
                self.meters.take(&batch);
            }
            self.rows += batch.rows();
            self.batches.push(batch);
        }
    }

    /// What the holders of the GPUs have used so far, as families of metrics.
    pub(crate) fn families(&self) -> Vec<Family> {
        self.meters.families()
    }

    /// Whether far more rows wait than make a frame.
    pub(crate) fn is_full(&self) -> bool {
        self.rows >= WAITING_ROWS_MAX
    }

    /// All of them if they are enough, or the first has waited for long enough; else none.
    pub(crate) fn due(&mut self, now: Moment) -> Vec<Batch> {
        let is_old = now.mono_ns - self.since_ns >= self.interval_ns;
        if self.rows >= FRAME_ROWS || is_old { self.all() } else { Vec::new() }
    }

    /// All of them, and what the holders of the GPUs have used in the end: no row comes any more.
    pub(crate) fn last(&mut self) -> Vec<Batch> {
        self.batches.extend(self.outgoing.finish());
        self.all()
    }

    /// All of them.
    pub(crate) fn all(&mut self) -> Vec<Batch> {
        self.rows = 0;
        std::mem::take(&mut self.batches)
    }
}
