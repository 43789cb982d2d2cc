//! Batches that somebody makes, on their way into a pipe.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use crate::Batch;
use crate::ports::{Poll, Source};

/// Batches that wait at most: of clusters two rounds of 200 nodes with GPUs, details and processes; some 25 MB.
const BATCHES_MAX: usize = 1_024;
/// How long a poll waits, so that a stop is noticed.
const POLL_PATIENCE: Duration = Duration::from_millis(100);

/// The batches of an [`Outlet`] as a source, which ends with the last outlet. If nobody takes them, new batches are dropped and
/// counted.
#[derive(Debug)]
pub struct Feed {
    batches: Receiver<Batch>,
    counts: Arc<FeedCounts>,
}

/// Counts of rows since the start.
#[derive(Debug, Default)]
pub struct FeedCounts {
    rows: AtomicU64,
    dropped: AtomicU64,
}

impl FeedCounts {
    /// Rows handed to the pipe.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Rows dropped because the pipe did not take them in time.
    pub fn rows_dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The end of those who make them.
#[derive(Debug, Clone)]
pub struct Outlet {
    batches: SyncSender<Batch>,
    counts: Arc<FeedCounts>,
}

/// Both ends of a new feed, empty.
pub fn open() -> (Outlet, Feed) {
    let (sender, receiver) = sync_channel(BATCHES_MAX);
    let counts = Arc::new(FeedCounts::default());
    (Outlet { batches: sender, counts: Arc::clone(&counts) }, Feed { batches: receiver, counts })
}

impl Outlet {
    /// Hands over a batch, or drops it. Never waits.
    pub fn give(&self, batch: Batch) {
        let rows = u64::try_from(batch.rows()).unwrap_or_default();
        match self.batches.try_send(batch) {
            Ok(()) => self.counts.rows.fetch_add(rows, Ordering::Relaxed),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.counts.dropped.fetch_add(rows, Ordering::Relaxed)
            }
        };
    }
}

impl Feed {
    /// Counts of what goes through it.
    pub fn counts(&self) -> &Arc<FeedCounts> {
        &self.counts
    }

    /// What is waiting.
    pub fn rest(&mut self) -> Vec<Batch> {
        self.batches.try_iter().collect()
    }
}

impl Source for Feed {
    type Error = Infallible;

    fn poll(&mut self, now_ns: i64) -> Result<Poll, Self::Error> {
        Ok(match self.batches.recv_timeout(POLL_PATIENCE) {
            Ok(batch) => Poll::Ready(batch),
            Err(RecvTimeoutError::Timeout) => Poll::NotBefore(now_ns),
            Err(RecvTimeoutError::Disconnected) => Poll::End,
        })
    }
}
