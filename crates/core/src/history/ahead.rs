//! Rows whose time has not come: their clock is ahead of ours.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::Batch;
use crate::batch::RowKeys;

/// Most bytes of columns that wait. Beyond them the rows furthest ahead never become the latest.
const BYTES_MAX: usize = 32 << 20;
/// Of the rows of a GPU that are as far ahead as this many steps, one a step waits: a clock that stays an hour ahead costs as
/// many rows, and its latest values are older by a step at most.
const STEPS: i64 = 64;

/// Rows that wait for their time.
#[derive(Debug, Default)]
pub(super) struct RowsAhead {
    /// By the earliest time in them, and in the order in which they came.
    waiting: BTreeMap<(i64, u64), Batch>,
    came: u64,
    bytes: usize,
    /// The time of the last row of each GPU that waits.
    last: HashMap<Arc<str>, i64, RandomState>,
}

impl RowsAhead {
    /// The earliest time that a row waits for.
    pub(super) fn next_ns(&self) -> Option<i64> {
        self.waiting.first_key_value().map(|((time_ns, _), _)| *time_ns)
    }

    /// Batches that wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Keeps those rows of a batch that are later than `limit_ns`, of `gpus_max` GPUs at most: those of others never become the
    /// latest. `keys` are those of the batch.
    pub(super) fn hold(
        &mut self,
        batch: &Batch,
        keys: &RowKeys,
        (now_ns, limit_ns): (i64, i64),
        gpus_max: usize,
    ) {
        let times = batch.timestamps();
        let mut kept = Vec::with_capacity(times.len());
        for (&time, &id) in times.iter().zip(&keys.ids) {
            let key = keys.keys.get(id as usize).filter(|_| time > limit_ns);
            let is_kept = key.is_some_and(|key| {
                if self.last.len() >= gpus_max && !self.last.contains_key(key) {
                    return false;
                }
                let step = time.saturating_sub(now_ns) / STEPS;
                self.last.get(key).is_none_or(|last| time.abs_diff(*last) >= step.unsigned_abs())
            });
            if let Some(key) = key.filter(|_| is_kept) {
                self.last.insert(Arc::clone(key), time);
            }
            kept.push(is_kept);
        }
        self.wait(batch.filter(&kept));
        while self.bytes > BYTES_MAX
            && let Some(((first, _), batch)) = self.waiting.pop_last()
        {
            self.bytes -= bytes(&batch);
            self.last.retain(|_, time| *time < first);
        }
    }

    fn wait(&mut self, batch: Option<Batch>) {
        let Some(mut batch) = batch else { return };
        batch.forget_wire();
        let Some(first) = batch.timestamps().iter().min().copied() else { return };
        self.bytes += bytes(&batch);
        self.came += 1;
        self.waiting.insert((first, self.came), batch);
    }

    /// The rows whose time has come, in the order of time.
    pub(super) fn due(&mut self, now_ns: i64) -> Vec<Batch> {
        let mut due = Vec::new();
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now_ns) {
            let batch = first.remove();
            self.bytes -= bytes(&batch);
            let is_due: Vec<bool> = batch.timestamps().iter().map(|time| *time <= now_ns).collect();
            let is_early: Vec<bool> = is_due.iter().map(|is_due| !is_due).collect();
            due.extend(batch.filter(&is_due));
            self.wait(batch.filter(&is_early));
        }
        if !due.is_empty() {
            self.last.retain(|_, time| *time > now_ns);
        }
        due
    }
}

fn bytes(batch: &Batch) -> usize {
    batch.records().get_array_memory_size()
}
