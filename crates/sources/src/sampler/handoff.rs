//! The bounded hand-off of rows from workers to their taker; when it is full the oldest rows are dropped and
//! counted. Sampling never waits.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::rows::RowList;

/// Most emptied lists kept for reuse.
const SPARE_MAX: usize = 32;

/// Rows between workers and taker.
#[derive(Debug)]
pub(crate) struct Handoff {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    lists_max: usize,
    rows_dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    lists: VecDeque<(u64, RowList)>,
    spare: Vec<RowList>,
    /// Workers that may still hand over rows.
    workers: usize,
    sequence: u64,
}

impl Waiting {
    /// Whether it is empty, but may still receive rows.
    fn is_open(&mut self) -> bool {
        self.lists.is_empty() && self.workers > 0
    }
}

/// The result of a wait.
#[derive(Debug)]
pub(crate) enum HandoffTaken {
    /// The oldest rows, with their number in the order of arrival.
    Rows(u64, RowList),
    /// Nothing came in time.
    Nothing,
    /// Nothing will come any more.
    End,
}

impl Handoff {
    /// An empty hand-off without workers.
    pub(crate) fn new(lists_max: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            arrived: Condvar::new(),
            lists_max: lists_max.max(1),
            rows_dropped: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over rows if there are any, numbered in the order of arrival, and leaves an empty list for the
    /// next ones.
    pub(crate) fn give(&self, rows: &mut RowList) {
        if rows.len() == 0 {
            return;
        }
        let mut waiting = self.lock();
        if waiting.lists.len() >= self.lists_max
            && let Some((_, oldest)) = waiting.lists.pop_front()
        {
            self.rows_dropped.fetch_add(oldest.len() as u64, Ordering::Relaxed);
            waiting.spare.push(oldest);
        }
        waiting.sequence += 1;
        let sequence = waiting.sequence;
        let empty = rows.emptied(waiting.spare.pop());
        waiting.lists.push_back((sequence, std::mem::replace(rows, empty)));
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Takes back an emptied list.
    pub(crate) fn give_back(&self, rows: RowList) {
        let mut waiting = self.lock();
        if waiting.spare.len() < SPARE_MAX {
            waiting.spare.push(rows);
        }
    }

    /// One more worker may hand over rows.
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

    /// Waits until there are rows, or none will come any more.
    pub(crate) fn wait(&self, patience: Duration) {
        let _ready = self.arrived.wait_timeout_while(self.lock(), patience, Waiting::is_open);
    }

    /// The oldest rows; waits for some if necessary.
    pub(crate) fn take(&self, patience: Duration) -> HandoffTaken {
        let (mut waiting, _) = self
            .arrived
            .wait_timeout_while(self.lock(), patience, Waiting::is_open)
            .unwrap_or_else(PoisonError::into_inner);
        match waiting.lists.pop_front() {
            Some((sequence, rows)) => HandoffTaken::Rows(sequence, rows),
            None if waiting.workers == 0 => HandoffTaken::End,
            None => HandoffTaken::Nothing,
        }
    }

    /// Rows dropped because nobody took them in time.
    pub(crate) fn rows_dropped(&self) -> u64 {
        self.rows_dropped.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gpuvitals_core::{Identity, IdentityColumn, Origin, Table};

    use super::*;
    use crate::probe::{Driver, Reading};
    use crate::sampler::rows::{LocalColumns, RowTimes};
    use crate::sampler::state::WorkerState;

    fn worker() -> Arc<WorkerState> {
        let second = Duration::from_secs(1);
        Arc::new(WorkerState::new(Table::GpuEvents, Driver::Nvml, second, second))
    }

    fn rows(worker: &Arc<WorkerState>, time: i64) -> RowList {
        let gpu = Arc::new(Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
        let mut reading = Reading::default();
        reading.row(&gpu);
        let mut rows = RowList::new(Arc::clone(worker));
        let times = RowTimes { timestamp_ns: time, monotonic_ns: 0, read_us: 0 };
        rows.add(&gpu, &reading.rows()[0], times);
        rows
    }

    #[test]
    fn a_full_hand_off_drops_the_oldest_and_counts_it() {
        let (handoff, worker) = (Handoff::new(2), worker());
        for time in 1..=3 {
            let mut list = rows(&worker, time);
            handoff.give(&mut list);
            assert_eq!(list.len(), 0);
        }
        assert_eq!(handoff.rows_dropped(), 1);
        for expected in [2_i64, 3] {
            match handoff.take(Duration::ZERO) {
                HandoffTaken::Rows(sequence, rows) => {
                    let mut batches = rows.to_batches(LocalColumns::default(), &Origin::default(), sequence);
                    let batch = batches.next().unwrap();
                    assert_eq!(
                        (batch.timestamps()[0], batch.sequence()),
                        (expected, expected.unsigned_abs())
                    );
                }
                other => panic!("{other:?}"),
            }
        }
        handoff.joined();
        assert!(matches!(handoff.take(Duration::ZERO), HandoffTaken::Nothing));
    }

    #[test]
    fn the_end_comes_after_the_last_rows_of_the_last_worker() {
        let (handoff, worker) = (Handoff::new(2), worker());
        handoff.joined();
        handoff.give(&mut rows(&worker, 1));
        handoff.left();
        assert!(matches!(handoff.take(Duration::from_mins(1)), HandoffTaken::Rows(1, _)));
        assert!(matches!(handoff.take(Duration::from_mins(1)), HandoffTaken::End));
    }
}
