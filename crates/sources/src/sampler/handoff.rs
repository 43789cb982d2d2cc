//! The hand-off from workers to whoever takes the batches: bounded; when it is full the oldest batch goes, counted.
//! Sampling never waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_core::Batch;

/// Batches between workers and taker.
#[derive(Debug)]
pub(crate) struct Handoff {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    batches_max: usize,
    rows_dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    batches: VecDeque<Batch>,
    /// Workers that may still hand something over.
    workers: usize,
    sequence: u64,
}

/// What a wait gave.
#[derive(Debug)]
pub(crate) enum Taken {
    /// The oldest batch.
    Batch(Batch),
    /// Nothing came in time.
    Nothing,
    /// Nothing will come any more.
    End,
}

impl Handoff {
    /// An empty hand-off for some workers.
    pub(crate) fn new(workers: usize, batches_max: usize) -> Self {
        Self {
            waiting: Mutex::new(Waiting { workers, ..Waiting::default() }),
            arrived: Condvar::new(),
            batches_max: batches_max.max(1),
            rows_dropped: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a batch over and numbers it in the order of arrival.
    pub(crate) fn give(&self, mut batch: Batch) {
        let mut waiting = self.lock();
        if waiting.batches.len() >= self.batches_max
            && let Some(oldest) = waiting.batches.pop_front()
        {
            self.rows_dropped.fetch_add(oldest.rows() as u64, Ordering::Relaxed);
        }
        waiting.sequence += 1;
        batch.sequence = waiting.sequence;
        waiting.batches.push_back(batch);
        drop(waiting);
        self.arrived.notify_one();
    }

    /// One more worker may hand something over.
    pub(crate) fn joined(&self) {
        self.lock().workers += 1;
    }

    /// One worker has ended.
    pub(crate) fn left(&self) {
        let mut waiting = self.lock();
        waiting.workers = waiting.workers.saturating_sub(1);
        drop(waiting);
        self.arrived.notify_all();
    }

    /// The oldest batch, waiting for one if need be.
    pub(crate) fn take(&self, patience: Duration) -> Taken {
        let (mut waiting, _) = self
            .arrived
            .wait_timeout_while(self.lock(), patience, |w| w.batches.is_empty() && w.workers > 0)
            .unwrap_or_else(PoisonError::into_inner);
        match waiting.batches.pop_front() {
            Some(batch) => Taken::Batch(batch),
            None if waiting.workers == 0 => Taken::End,
            None => Taken::Nothing,
        }
    }

    /// Rows dropped because nobody took them in time.
    pub(crate) fn rows_dropped(&self) -> u64 {
        self.rows_dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, Origin, Table};

    use super::*;

    fn batch(time: i64) -> Batch {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let id = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
        builder.row(time, id);
        builder.finish(Origin::default(), 0).unwrap()
    }

    #[test]
    fn a_full_hand_off_drops_the_oldest_and_counts_it() {
        let handoff = Handoff::new(1, 2);
        (1..=3).for_each(|time| handoff.give(batch(time)));
        assert_eq!(handoff.rows_dropped(), 1);
        let times: Vec<_> = (0..2)
            .map(|_| match handoff.take(Duration::ZERO) {
                Taken::Batch(batch) => (batch.timestamps()[0], batch.sequence),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(times, [(2, 2), (3, 3)]);
        assert!(matches!(handoff.take(Duration::ZERO), Taken::Nothing));
    }

    #[test]
    fn the_end_comes_after_the_last_batch_of_the_last_worker() {
        let handoff = Handoff::new(1, 2);
        handoff.give(batch(1));
        handoff.left();
        assert!(matches!(handoff.take(Duration::from_mins(1)), Taken::Batch(_)));
        assert!(matches!(handoff.take(Duration::from_mins(1)), Taken::End));
    }
}
