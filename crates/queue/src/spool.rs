//! Between a node and a queue that may be away: what the queue does not take is kept, within a limit, and sent when it is
//! back.
//!
//! ```text
//!                          ┌──────────── at most 32 under way ────────────┐
//! frame ── hand_over ──────┤                                              ├── producer ── queue
//!                          └── kept, oldest first ── at most 16 under way ┘
//! ```
//!
//! While the queue takes what comes, nothing is kept. A frame that it does not take, or that finds 32 before it, is
//! kept; while the queue is away so is all that comes, and one kept frame is tried ever more rarely, at least every 30 s, and
//! each time one that comes. When one is taken the queue is back: what comes goes to it directly, and beside that what was
//! kept, oldest first.
//!
//! **Refusals.** A frame that is too large for the queue is dropped, counted. Any other refusal may be meant for all, as that of
//! a wrong token, or for this frame. The frame is a suspect then: those behind it are sent, and it is tried again every 15
//! seconds. If the queue took another frame between two refusals of it, that is a strike; after eight strikes it is dropped,
//! counted as refused. So a queue that refuses all costs no frame anything. It counts as away after two refusals. At most 128
//! frames or 4 MiB are suspects, held in memory even while they lie on the disk; once there are so many, what is kept waits until
//! one of them is settled. After a restart they are frames like the others.
//!
//! **Misses.** A frame that only ever meets timeouts or failures, while others tried in between are taken, is a suspect after
//! four of these. It is never given up for that: it is tried every 15 seconds until it is taken or the limit is reached.
//!
//! **Where.** With a directory in a log there, in its segments of up to 16 MiB; without one, or while its disk fails, in memory,
//! at most [`MEMORY_MAX`]. Beyond the limit the oldest go, counted. One process has a directory.
//!
//! **How safe.** A kept frame is written, and synced within five seconds: it outlives the death of the process at
//! once, and a power cut after that. A log whose sync failed is opened anew, within five minutes at most; what its
//! disk lost then is counted as unreadable, and what memory held leaves it when it is synced. What was neither taken
//! nor kept when the process was killed is lost: the frames under way. How far the queue has taken what was kept is
//! noted every 64 frames, so that a few of them are sent again after a kill.
//!
//! **Repeats.** Every frame carries its producer's stamp, on the disk too, and is sent again with the same one: the queue
//! recognises what it had taken already. It remembers 128 numbers of a producer, so numbers must not come much later than those
//! after them. Hence a producer id for what is kept before it is tried, and one for what is tried at once, which is
//! replaced whenever that fails; and no frame is sent that is 64 or more ahead of one that is not settled. Only a suspect is
//! left behind: one that was refused was not taken, and one whose answer was lost four times may be stored twice. A number
//! that has become too old is replaced by one that is the same at every try.
//!
//! Never waits: handing over, sampling and scraping go on however the queue and the disk are.

mod backlog;
mod record;
mod sending;
mod shelf;
mod suspects;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_log::LogError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::frame::{Frame, Millis};
use crate::service::{Clock, Producer};
use backlog::Backlog;
use sending::Sending;

/// Bytes of frames that are kept in memory at most.
pub const MEMORY_MAX: u64 = 8 << 20;
/// Smallest limit of a spool on disk: two segments are kept free of it.
pub const LIMIT_MIN: u64 = 8 << 20;
/// Frames that are handed over and not looked at yet. Whoever looks never waits, so that a handful is enough.
const ARRIVALS_MAX: usize = 256;

/// How to spool.
#[derive(Clone, Debug)]
pub struct SpoolConfig {
    /// Directory of what is kept; none: memory only.
    pub directory: Option<PathBuf>,
    /// Bytes that are kept on the disk at most, [`LIMIT_MIN`] at least. In memory [`MEMORY_MAX`] holds as well.
    pub limit: u64,
    /// How long a publish may take before the frame counts as not taken.
    pub patience: Duration,
}

impl Default for SpoolConfig {
    fn default() -> Self {
        Self { directory: None, limit: 256 << 20, patience: Duration::from_secs(10) }
    }
}

/// A spool that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// A limit that leaves no room.
    #[error("spool limit of {limit} bytes, {LIMIT_MIN} is the least")]
    Limit {
        /// As asked.
        limit: u64,
    },
    /// Another process has the directory.
    #[error("spool directory {} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The directory cannot be made or locked.
    #[error("open spool directory {}", directory.display())]
    Directory {
        /// Which.
        directory: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// What lies there cannot be read.
    #[error("open spool in {}", directory.display())]
    Log {
        /// Where.
        directory: PathBuf,
        /// What the log said.
        #[source]
        source: LogError,
    },
}

/// Frames, and the messages in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Frames.
    pub frames: u64,
    /// Messages (rows).
    pub messages: u64,
}

impl Amount {
    fn add(&mut self, messages: u32) {
        self.frames += 1;
        self.messages += u64::from(messages);
    }

    fn remove(&mut self, messages: u32) {
        self.frames = self.frames.saturating_sub(1);
        self.messages = self.messages.saturating_sub(u64::from(messages));
    }
}

/// The queue takes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Away {
    /// Since when.
    pub since: Millis,
    /// What it, or the way to it, said last.
    pub reason: Arc<str>,
}

/// How a spool does. Counts are since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpoolStats {
    /// Since when and why the queue takes nothing; none while it does.
    pub away: Option<Away>,
    /// What is kept now.
    pub kept: Amount,
    /// Bytes of that.
    pub kept_bytes: u64,
    /// Bytes of that which no disk holds (yet).
    pub memory_bytes: u64,
    /// What the queue took, repeats that it recognised among it.
    pub taken: Amount,
    /// What of that had been kept before.
    pub resent: Amount,
    /// What was dropped because the limit was reached.
    pub dropped: Amount,
    /// What the queue will never take: frames that are too large for it, or that it refused again and again while it took
    /// others.
    pub refused: Amount,
    /// What was kept and could not be read any more.
    pub unreadable: Amount,
}

/// Hands frames to a queue that may be away.
#[derive(Debug)]
pub struct Spool {
    arrivals: mpsc::Sender<Frame>,
    turned_away: TurnedAway,
    stats: watch::Receiver<SpoolStats>,
    /// None once it was told to end.
    task: Mutex<Option<Task>>,
}

/// What sends, and how it is told for how long it may still do so.
#[derive(Debug)]
struct Task {
    stop: oneshot::Sender<Duration>,
    done: AbortOnDropHandle<()>,
}

/// What found no place among the arrivals.
#[derive(Debug, Default)]
struct TurnedAway {
    frames: AtomicU64,
    messages: AtomicU64,
}

impl TurnedAway {
    fn added_to(&self, mut stats: SpoolStats) -> SpoolStats {
        stats.dropped.frames += self.frames.load(Ordering::Relaxed);
        stats.dropped.messages += self.messages.load(Ordering::Relaxed);
        stats
    }
}

impl Spool {
    /// Opens a spool in front of a producer, and sends what an earlier process kept in its directory. Blocks while it reads the
    /// directory; to be called within a runtime.
    ///
    /// # Errors
    /// When the directory cannot be used, or another process has it.
    pub fn open<P: Producer + 'static>(
        producer: P,
        config: &SpoolConfig,
        clock: Clock,
    ) -> Result<Self, SpoolError> {
        let backlog = match &config.directory {
            Some(directory) => Backlog::in_directory(directory, config.limit)?,
            None => Backlog::in_memory(config.limit),
        };
        let (arrivals, arriving) = mpsc::channel(ARRIVALS_MAX);
        let (stop, stopped) = oneshot::channel();
        let (sending, stats) = Sending::new(producer, backlog, config.patience, clock);
        let done = AbortOnDropHandle::new(tokio::spawn(sending.run(arriving, stopped)));
        let task = Mutex::new(Some(Task { stop, done }));
        Ok(Self { arrivals, turned_away: TurnedAway::default(), stats, task })
    }

    /// Hands a frame over. Never waits; what becomes of it is counted. A stamp that it has is replaced.
    pub fn hand_over(&self, frame: Frame) {
        let messages = u64::from(frame.count);
        if self.arrivals.try_send(frame).is_err() {
            self.turned_away.frames.fetch_add(1, Ordering::Relaxed);
            self.turned_away.messages.fetch_add(messages, Ordering::Relaxed);
        }
    }

    /// How it does now.
    pub fn stats(&self) -> SpoolStats {
        let stats = self.stats.borrow().clone();
        self.turned_away.added_to(stats)
    }

    /// The stats as they change; what was turned away at [`Spool::hand_over`] is not among them.
    pub fn watch(&self) -> watch::Receiver<SpoolStats> {
        self.stats.clone()
    }

    /// Sends what was handed over, for so long at most, and keeps the rest in the directory. What can be kept nowhere, as
    /// everything without a directory, is counted as dropped then.
    pub async fn finish(&self, grace: Duration) -> SpoolStats {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Task { stop, done }) = task {
            // Who does not listen any more has ended already.
            let _ended = stop.send(grace);
            if let Err(error) = done.await {
                tracing::error!(%error, "the spool ended by a panic");
            }
        }
        self.stats()
    }
}
