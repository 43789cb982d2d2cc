//! The spool between a node and a queue that may be away: a queue of one topic in a directory (or in memory),
//! and a forwarder that publishes from it.
//!
//! Rows are written to the spool first and leave it when the upstream queue has taken them, oldest first: a
//! spool that filled up while the queue was away drains before new rows. At its bound the oldest rows are
//! dropped, counted. A frame that the upstream queue refuses for good (too large, malformed) becomes a dead
//! letter of the spool.
//!
//! The disk holds at most the limit: [`config`] divides it between frames, dead letters, and additional
//! segments of the log. When the log can store nothing more (a failed sync, a disk that does not answer), the
//! spool continues in memory; the directory's rows are sent after the next start.
//!
//! Every frame is stamped when it is handed over, and the stamp is stored with it. A frame that is sent again
//! after a crash carries the same stamp, so that the upstream queue recognises a repeat.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::FusedFuture as _;
use gpuvitals_core::causes;
use gpuvitals_queue::link::{ENDLESS_LEASE, Event, Forwarded, Patience, Sender, Stamps, forward};
use gpuvitals_queue::{
    ConsumerOptions, Drain, Frame, FrameDurability, InProcessConsumer, Millis, OpenError, Producer, Queue,
    QueueClock, QueueConfig, SubscribeError, WhenFull,
};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Bytes of frames that are kept in memory at most.
const MEMORY_MAX: u64 = 8 << 20;
/// Smallest limit of a spool on disk.
pub(crate) const LIMIT_MIN: u64 = 8 << 20;
/// Segments of the log that fit into the limit, and their longest length.
const SEGMENTS: u64 = 32;
const SEGMENT_LEN_MAX: u64 = 16 << 20;
/// Segments that the log may have in addition to twice its contents: four of slack, one in use, a spare, two of
/// checkpoints, and those written until the next checkpoint lets the moved ones go.
const SEGMENTS_BESIDE: u64 = 12;
/// Frames that are handed over and not written yet.
const ARRIVALS_MAX: usize = 256;
/// Frames under way to the queue upstream.
const WINDOW: usize = 8;
/// Rows that are read ahead of those under way, about.
const ROWS_AHEAD: u32 = 32_768;
/// How long the disk may take to answer.
const DISK_LIMIT: Duration = Duration::from_secs(30);
/// How long the disk is waited for at the end.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);
/// How often the end looks whether everything is sent.
const LOOK: Duration = Duration::from_millis(50);
/// Time between two syncs of written frames.
const SYNC_PAUSE: Duration = Duration::from_secs(1);
/// Name of the spool's topic, and of the group that the forwarder is.
const TOPIC: &str = "spool";
const GROUP: &str = "upstream";

/// A spool that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// Its queue cannot be opened.
    #[error("open the spool")]
    Open(#[source] OpenError),
    /// The forwarder's group cannot be stored.
    #[error("subscribe to the spool")]
    Subscribe(#[source] SubscribeError),
}

/// The queue upstream takes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Away {
    /// When an attempt failed for the first time after the last frame that was taken.
    pub since: Millis,
    /// Why the last attempt failed.
    pub reason: Arc<str>,
}

/// How a spool is doing. Totals count from the start, those of the spool's queue from when it was opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpoolStats {
    /// Since when and why the queue upstream takes nothing; none while it does.
    pub away: Option<Away>,
    /// Why the spool's log stores nothing more; none while it does.
    pub failed: Option<Arc<str>>,
    /// Rows that are kept now.
    pub kept: u64,
    /// Bytes of these.
    pub kept_bytes: u64,
    /// Rows that the queue upstream took.
    pub taken: u64,
    /// Frames that the queue upstream took.
    pub taken_frames: u64,
    /// Rows that were dropped: at the limit, or because nothing could be written.
    pub dropped: u64,
    /// Rows that became dead letters of the spool.
    pub dead: u64,
}

/// State shared by the task and the handle.
#[derive(Debug)]
struct Shared {
    clock: QueueClock,
    /// The spool's queue: the one in the directory, or the one in memory that replaced it.
    queue: Mutex<Queue>,
    /// Changes whenever a frame was written, tried or settled.
    away: watch::Sender<Option<Away>>,
    failed: Mutex<Option<Arc<str>>>,
    taken: AtomicU64,
    taken_frames: AtomicU64,
    /// Rows that found no place among the arrivals, or were left in memory at the end.
    lost: AtomicU64,
    /// The queue is closed, and its contents are lost.
    is_over: AtomicBool,
}

/// Where frames wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpoolPlace {
    Memory,
    Disk,
}

/// Hands frames to a queue upstream that may be away.
#[derive(Debug)]
pub(crate) struct Spool {
    stamps: Stamps,
    /// None once it was closed.
    arrivals: Mutex<Option<mpsc::Sender<Frame>>>,
    shared: Arc<Shared>,
    /// Nothing more is sent.
    give_up: CancellationToken,
    /// None once it was closed.
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

impl Spool {
    /// Opens the spool in a directory, or in memory, and forwards its frames.
    ///
    /// # Errors
    /// If the directory cannot be used, or another process has it.
    pub(crate) async fn open(
        producer: impl Producer + 'static,
        directory: Option<PathBuf>,
        limit: u64,
    ) -> Result<Self, SpoolError> {
        let clock = QueueClock::system();
        let place = if directory.is_some() { SpoolPlace::Disk } else { SpoolPlace::Memory };
        let queue = match directory {
            Some(directory) => {
                let opened = Queue::open(directory, config(limit), clock).await;
                let (queue, opened) = opened.map_err(SpoolError::Open)?;
                for damage in opened.damage {
                    tracing::error!(damage, "some spooled rows are damaged and lost");
                }
                if opened.messages > 0 {
                    tracing::info!(rows = opened.messages, "rows that were spooled before are sent");
                }
                queue
            }
            None => in_memory(limit, clock),
        };
        Self::around(producer, queue, place, clock).await
    }

    async fn around(
        producer: impl Producer + 'static,
        queue: Queue,
        place: SpoolPlace,
        clock: QueueClock,
    ) -> Result<Self, SpoolError> {
        let consumer = subscribe(&queue).await.map_err(SpoolError::Subscribe)?;
        let (arrivals, arriving) = mpsc::channel(ARRIVALS_MAX);
        let give_up = CancellationToken::new();
        let shared = Arc::new(Shared {
            clock,
            queue: Mutex::new(queue),
            away: watch::Sender::new(None),
            failed: Mutex::default(),
            taken: AtomicU64::new(0),
            taken_frames: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let give_up_too = give_up.clone();
        let running = Running {
            producer,
            shared: Arc::clone(&shared),
            arriving,
            held: None,
            place,
            give_up: give_up_too,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(running.run(consumer)));
        let (arrivals, task) = (Mutex::new(Some(arrivals)), Mutex::new(Some(task)));
        Ok(Self { stamps: Stamps::new(), arrivals, shared, give_up, task })
    }

    /// Hands a frame over, without waiting.
    pub(crate) fn hand_over(&self, frame: Frame) {
        let (rows, frame) = (frame.count, self.stamps.stamp(frame));
        let arrivals = lock(&self.arrivals);
        if arrivals.as_ref().is_none_or(|arrivals| arrivals.try_send(frame).is_err()) {
            self.shared.lost(rows);
        }
    }

    /// How it is doing.
    pub(crate) fn stats(&self) -> SpoolStats {
        self.shared.stats()
    }

    /// Sends the handed-over frames, at most for `grace`. The rest stays in the directory; in memory it is
    /// dropped, counted.
    pub(crate) async fn finish(&self, grace: Duration) -> SpoolStats {
        // It ends by itself once everything is sent.
        drop(lock(&self.arrivals).take());
        let task = lock(&self.task).take();
        if let Some(mut task) = task {
            let ended = if let Ok(ended) = timeout(grace, &mut task).await {
                ended
            } else {
                self.give_up.cancel();
                task.await
            };
            if let Err(error) = ended {
                tracing::error!(%error, "the spool ended by a panic");
            }
        }
        self.stats()
    }
}

/// The spool's queue in a directory, such that the disk holds at most `limit` bytes: the log may have twice
/// the bytes of its contents, before it moves records together, and some additional segments.
fn config(limit: u64) -> QueueConfig {
    let segment_len = (limit / SEGMENTS).min(SEGMENT_LEN_MAX);
    let held = limit.saturating_sub(SEGMENTS_BESIDE * segment_len) / 2;
    let max_dead_bytes = held / 8;
    QueueConfig {
        max_bytes: held - max_dead_bytes,
        max_dead_bytes,
        segment_len: u32::try_from(segment_len).unwrap_or(u32::MAX),
        spare_segments: 1,
        durability: FrameDurability::Written,
        sync_every: SYNC_PAUSE,
        memory_max: 1 << 20,
        unwritten_max: u32::try_from(MEMORY_MAX).unwrap_or(u32::MAX),
        ..both()
    }
}

/// Settings common to disk and memory.
fn both() -> QueueConfig {
    QueueConfig {
        max_messages: 1 << 40,
        when_full: WhenFull::DropOldest,
        ack_timeout: ENDLESS_LEASE,
        max_lease: ENDLESS_LEASE,
        drain: Drain::Return,
        drain_timeout: CLOSE_LIMIT,
        ..QueueConfig::default()
    }
}

fn in_memory(limit: u64, clock: QueueClock) -> Queue {
    let held = limit.min(MEMORY_MAX);
    let config = QueueConfig { max_bytes: held - held / 8, max_dead_bytes: held / 8, ..both() };
    Queue::in_process(config, clock)
}

async fn subscribe(queue: &Queue) -> Result<InProcessConsumer, SubscribeError> {
    let max_in_flight = NonZeroU32::MIN.saturating_add(ROWS_AHEAD);
    queue.subscribe(TOPIC, GROUP, &ConsumerOptions { max_in_flight, ..ConsumerOptions::default() }).await
}

impl Shared {
    fn queue(&self) -> Queue {
        lock(&self.queue).clone()
    }

    fn stats(&self) -> SpoolStats {
        let mut stats = SpoolStats {
            away: self.away.borrow().clone(),
            failed: lock(&self.failed).clone(),
            taken: self.taken.load(Ordering::Relaxed),
            taken_frames: self.taken_frames.load(Ordering::Relaxed),
            dropped: self.lost.load(Ordering::Relaxed),
            ..SpoolStats::default()
        };
        // Before the first frame the topic does not exist.
        if let Ok(topic) = self.queue().topic_stats(TOPIC) {
            if !self.is_over.load(Ordering::Relaxed) {
                (stats.kept, stats.kept_bytes) = (topic.messages, topic.bytes);
            }
            stats.dropped += topic.dropped;
            stats.dead = topic.dead;
        }
        stats
    }

    fn lost(&self, rows: u32) {
        self.lost.fetch_add(rows.into(), Ordering::Relaxed);
    }

    fn observe(&self, event: &Forwarded<'_>) {
        match event {
            Forwarded::Taken(rows) => {
                self.taken.fetch_add((*rows).into(), Ordering::Relaxed);
                self.taken_frames.fetch_add(1, Ordering::Relaxed);
                self.is_back();
            }
            Forwarded::Failed(error) => self.is_away(causes(error).into()),
            Forwarded::Refused(rows, error) => {
                tracing::warn!(
                    rows,
                    error = causes(error),
                    "the queue will never take a frame; it is a dead letter of the spool"
                );
                self.is_back();
            }
        }
    }

    fn is_away(&self, reason: Arc<str>) {
        self.away.send_modify(|away| {
            let since = away.as_ref().map(|away| away.since);
            if since.is_none() {
                tracing::warn!(%reason, "the queue takes nothing; rows are kept");
            }
            *away = Some(Away { since: since.unwrap_or_else(|| self.clock.now()), reason });
        });
    }

    fn is_back(&self) {
        if let Some(away) = self.away.send_replace(None) {
            let (away_seconds, rows_kept) = (self.clock.now().since(away.since).as_secs(), self.stats().kept);
            tracing::info!(away_seconds, rows_kept, "the queue takes frames again");
        }
    }

    async fn is_empty(&self) {
        let mut events = self.away.subscribe();
        // A frame that becomes a dead letter, or is lost on disk, leaves without an event.
        while self.stats().kept > 0 && !matches!(timeout(LOOK, events.changed()).await, Ok(Err(_))) {}
    }
}

/// The task that writes and forwards.
struct Running<P> {
    producer: P,
    shared: Arc<Shared>,
    arriving: mpsc::Receiver<Frame>,
    /// The frame that is being written.
    held: Option<Frame>,
    place: SpoolPlace,
    give_up: CancellationToken,
}

impl<P: Producer> Running<P> {
    async fn run(mut self, consumer: InProcessConsumer) {
        let mut consumer = Some(consumer);
        while let Some(current) = consumer.take() {
            let Err(reason) = self.serve(current).await else { break };
            tracing::error!(
                reason = &*reason,
                "the spool stores nothing more; rows are kept in memory, and what lies in the directory is sent after the next \
                 start"
            );
            *lock(&self.shared.failed) = Some(reason);
            let queue = in_memory(MEMORY_MAX, self.shared.clock);
            let failed = std::mem::replace(&mut *lock(&self.shared.queue), queue.clone());
            // Not closed: a disk that does not answer would hold up the end.
            std::mem::forget(failed);
            self.place = SpoolPlace::Memory;
            consumer = subscribe(&queue).await.ok();
            self.shared.away.send_modify(|_| ());
        }
        self.close().await;
    }

    /// Writes and forwards until everything that was handed over is sent, or it must give up.
    ///
    /// # Errors
    /// The reason why the spool's queue is no longer usable.
    async fn serve(&mut self, consumer: InProcessConsumer) -> Result<(), Arc<str>> {
        let Self { producer, shared, arriving, held, give_up, .. } = self;
        let (queue, end) = (shared.queue(), CancellationToken::new());
        let forwarding = forward(consumer, &*producer, WINDOW, &end, |event| shared.observe(event));
        let mut forwarding = pin!(forwarding.fuse());
        let working = async {
            write(&queue, arriving, held, shared).await?;
            shared.is_empty().await;
            Ok(())
        };
        let outcome = tokio::select! {
            () = give_up.cancelled() => Ok(()),
            reason = queue.failed() => Err(reason),
            outcome = working => outcome,
            ended = &mut forwarding => Err(format!("forwarding ended: {ended:?}").into()),
        };
        end.cancel();
        if !forwarding.is_terminated() {
            let _left = forwarding.await;
        }
        outcome
    }

    /// Closes the queue, and counts the rows lost with it.
    async fn close(mut self) {
        let queue = self.shared.queue();
        match timeout(CLOSE_LIMIT, queue.shutdown()).await {
            Ok(report) if self.place == SpoolPlace::Memory => {
                let left = report.left.iter().map(|(_, rows)| *rows).sum();
                self.shared.lost.fetch_add(left, Ordering::Relaxed);
                self.shared.is_over.store(true, Ordering::Relaxed);
            }
            Ok(_) => {}
            Err(_) => {
                tracing::error!("the disk of the spool does not answer; what it has not written is lost");
                std::mem::forget(queue);
            }
        }
        let held = self.held.take();
        for frame in held.into_iter().chain(std::iter::from_fn(|| self.arriving.try_recv().ok())) {
            self.shared.lost(frame.count);
        }
    }
}

/// Writes arriving frames to the spool, until nothing more comes.
///
/// # Errors
/// The disk does not answer.
async fn write(
    queue: &Queue,
    arriving: &mut mpsc::Receiver<Frame>,
    held: &mut Option<Frame>,
    shared: &Shared,
) -> Result<(), Arc<str>> {
    let producer = queue.producer(TOPIC);
    let mut sender = Sender::new(&producer, 1, Patience::Passing);
    loop {
        if held.is_none() {
            *held = arriving.recv().await;
        }
        let Some(frame) = held.clone() else { return Ok(()) };
        let rows = frame.count;
        sender.send((), frame);
        loop {
            let event = timeout(DISK_LIMIT, sender.event()).await;
            match event.map_err(|_| format!("no answer from the disk within {DISK_LIMIT:?}"))? {
                Event::Taken { .. } => break,
                // The queue logs the reason.
                Event::Failed(_) => {}
                Event::Refused { error, .. } => {
                    tracing::error!(rows, error = causes(&error), "rows cannot be spooled");
                    shared.lost(rows);
                    break;
                }
            }
        }
        *held = None;
        shared.away.send_modify(|_| ());
    }
}

/// A panic under a lock is a bug that ends the task elsewhere.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
