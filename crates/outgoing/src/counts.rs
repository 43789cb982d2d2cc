//! What becomes of the samples, counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::verdict::{Standing, Verdict};

/// Counts of one receiver. Each protocol shows them under names of its own.
#[derive(Debug, Default)]
pub(crate) struct ReceiverCounts {
    /// Samples that the receiver took.
    pub(crate) taken: AtomicU64,
    /// Samples that it left out of requests that it took.
    pub(crate) left_out: AtomicU64,
    /// Samples that it refused.
    pub(crate) refused: AtomicU64,
    /// Samples that waited for too long.
    pub(crate) too_old: AtomicU64,
    /// Samples that found no place in the queue, or lost it to newer ones.
    pub(crate) no_room: AtomicU64,
    /// Samples that are older than one of their series that was sent.
    pub(crate) out_of_order: AtomicU64,
    /// Requests to the receiver.
    pub(crate) requests: AtomicU64,
    /// Bytes of their bodies.
    pub(crate) bytes: AtomicU64,
    /// Requests that have to be sent again.
    pub(crate) postponed: AtomicU64,
    /// Requests with refused samples.
    pub(crate) refusals: AtomicU64,
    standing: Mutex<Standing>,
}

/// Adds to a count.
pub(crate) fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

/// A count as it is now.
pub(crate) fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

impl ReceiverCounts {
    /// A request goes out with a body of so many bytes.
    pub(crate) fn goes_out(&self, bytes: usize) {
        add(&self.requests, 1);
        add(&self.bytes, bytes.try_into().unwrap_or(u64::MAX));
    }

    /// What became of a request with so many samples. Returns how the receiver stood before.
    pub(crate) fn answered(&self, samples: u64, verdict: &Verdict) -> Standing {
        match *verdict {
            Verdict::Taken { left_out } => {
                add(&self.taken, samples.saturating_sub(left_out));
                add(&self.left_out, left_out);
            }
            Verdict::Refused { samples: refused, .. } => {
                add(&self.taken, samples.saturating_sub(refused));
                add(&self.refused, refused);
                add(&self.refusals, 1);
            }
            Verdict::Later { .. } => add(&self.postponed, 1),
        }
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *standing;
        *standing = before.after(verdict);
        before
    }

    /// How the receiver stands.
    pub(crate) fn standing(&self) -> Standing {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
