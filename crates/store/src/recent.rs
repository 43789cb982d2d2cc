//! What stays in memory of the rows that are in files: the newest of each GPU.
//!
//! Every flush adds the rows that go to files, and of each GPU the newest
//! [`StoreConfig::recent_rows`](crate::StoreConfig::recent_rows) stay. Each GPU has a *floor*: all its rows in files from
//! that time on are here. So a query for the newest rows needs no file if enough of them are above the floor, and a late
//! row below it changes no answer from memory. A GPU that is queried and has no held rows is read from the files.
//!
//! If there is not room for all, GPUs that were queried longest ago leave first. GPUs that were never queried are held
//! only while there is room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use foldhash::fast::RandomState;
use gpuvitals_core::history::Rows;
use gpuvitals_core::{Table, causes};

use crate::manifest::FileEntry;
use crate::tail::{Chunk, weight};
use gpuvitals_core::batch::timestamps;
use gpuvitals_core::merge::{Merge, MergeError, Order, merge, without_empty};

/// Bytes that a column of one GPU takes beside its values: the array, its buffers and what the allocator adds. Of a few rows
/// it is many times the values.
const COLUMN_BYTES: usize = 256;

/// The newest rows in files of some GPUs.
#[derive(Debug)]
pub(crate) struct Recent {
    /// Rows of a GPU that are held at most.
    pub(crate) rows_max: usize,
    bytes_max: usize,
    state: Mutex<RecentState>,
}

type Gpus = HashMap<Arc<str>, NewestRows, RandomState>;

#[derive(Debug, Default)]
struct RecentState {
    gpus: Gpus,
    /// Flushes whose rows are taken in.
    flushes: u64,
    /// Queries so far.
    asked: u64,
}

/// A GPU's newest rows in files.
#[derive(Debug, Clone)]
pub(crate) struct NewestRows {
    /// The rows, if there are any.
    pub(crate) chunk: Option<Arc<Chunk>>,
    /// All rows in files from this time on are among them.
    pub(crate) floor_ns: i64,
    /// Number of the last query for it; 0: never.
    asked: u64,
}

impl NewestRows {
    /// The newest of these rows, oldest arrival first, from a floor on.
    fn newest(
        key: &Arc<str>,
        parts: &[RecordBatch],
        floor_ns: i64,
        rows_max: usize,
    ) -> Result<Self, MergeError> {
        let none = Self { chunk: None, floor_ns, asked: 0 };
        let Some(rows) = merge(Table::GpuEvents, parts, Order::GpuTime)? else { return Ok(none) };
        let times = timestamps(&rows);
        let above = times.partition_point(|time| *time < floor_ns);
        let first = above.max(times.len().saturating_sub(rows_max));
        let floor_ns = times.get(first).copied().filter(|_| first > above).unwrap_or(floor_ns);
        let rows = without_empty(&rows.slice(first, rows.num_rows() - first))?;
        let chunk = (rows.num_rows() > 0)
            .then(|| Arc::new(Chunk::sorted(Table::GpuEvents, rows, vec![(Arc::clone(key), 0)])));
        Ok(Self { chunk, floor_ns, ..none })
    }

    /// Adds its rows that are now in files.
    ///
    /// # Errors
    /// When columns do not fit together.
    fn take_in(self, key: &Arc<str>, fresh: RecordBatch, rows_max: usize) -> Result<Self, MergeError> {
        let held = self.chunk.iter().map(|chunk| chunk.records.clone());
        let parts: Vec<RecordBatch> = held.chain([fresh]).collect();
        Ok(Self { asked: self.asked, ..Self::newest(key, &parts, self.floor_ns, rows_max)? })
    }

    fn bytes(&self) -> usize {
        self.chunk
            .as_ref()
            .map_or(0, |chunk| weight(&chunk.records) + COLUMN_BYTES * chunk.records.num_columns())
    }
}

impl Recent {
    pub(crate) fn new(rows_max: usize, bytes_max: usize) -> Self {
        Self { rows_max, bytes_max, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, RecentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The held rows of a GPU, if they belong to a snapshot after so many flushes.
    pub(crate) fn held(&self, key: &str, flushes: u64) -> Option<NewestRows> {
        let mut state = self.lock();
        state.asked += 1;
        let asked = state.asked;
        let held = state.gpus.get_mut(key)?;
        held.asked = asked;
        let held = held.clone();
        (state.flushes == flushes).then_some(held)
    }

    /// Keeps the newest rows of a GPU, read from the files of a snapshot after so many flushes.
    ///
    /// # Errors
    /// When columns do not fit together.
    pub(crate) fn keep(&self, key: &Arc<str>, rows: &Rows, flushes: u64) -> Result<NewestRows, MergeError> {
        let batch = rows.batch.iter().map(|batch| batch.records().clone());
        let mut held = NewestRows::newest(key, &batch.collect::<Vec<_>>(), i64::MIN, self.rows_max)?;
        if let Some(chunk) = held.chunk.as_ref().filter(|chunk| rows.total > Some(chunk.records.num_rows())) {
            held.floor_ns = chunk.min_timestamp_ns;
        }
        let mut state = self.lock();
        held.asked = state.asked;
        if state.flushes == flushes {
            state.gpus.insert(Arc::clone(key), held.clone());
            self.make_room(&mut state);
        }
        Ok(held)
    }

    /// Takes in the rows of a flush. `before` are the files before it.
    pub(crate) fn flushed(&self, tail: &[Arc<Chunk>], before: &[Arc<FileEntry>]) {
        // Until this is done questions go to the files: a copy would double the memory with every flush.
        let mut gpus = std::mem::take(&mut self.lock().gpus);
        if let Err(error) = self.take_in(&mut gpus, tail, before) {
            // The files have the rows.
            tracing::warn!(error = causes(&error), "rows of a flush do not stay in memory");
            gpus.clear();
        }
        let mut state = self.lock();
        state.gpus = gpus;
        state.flushes += 1;
        self.make_room(&mut state);
    }

    fn take_in(
        &self,
        gpus: &mut Gpus,
        tail: &[Arc<Chunk>],
        before: &[Arc<FileEntry>],
    ) -> Result<(), MergeError> {
        let parts: Vec<RecordBatch> = tail.iter().map(|chunk| chunk.records.clone()).collect();
        let plan = Merge::plan(Table::GpuEvents, &parts, Order::GpuTime)?;
        let starts = plan.gpus();
        let ends = starts.iter().skip(1).map(|(_, start)| *start).chain([plan.rows()]);
        let rows = starts.iter().zip(ends).map(|((key, start), end)| (key, *start..end));
        let (known, new): (Vec<_>, Vec<_>) = rows.partition(|(key, _)| gpus.contains_key(*key));
        for (key, rows) in known {
            if let Some(held) = gpus.remove(key) {
                gpus.insert(Arc::clone(key), held.take_in(key, plan.batch(rows)?, self.rows_max)?);
            }
        }
        // GPUs that were never queried, as long as there is room.
        let mut bytes: usize = gpus.values().map(NewestRows::bytes).sum();
        for (key, rows) in new {
            if bytes > self.bytes_max {
                break;
            }
            let has_key = |file: &&Arc<FileEntry>| {
                file.table == Table::GpuEvents && *file.min_key <= **key && **key <= *file.max_key
            };
            let newest_ns = before.iter().filter(has_key).map(|file| file.max_timestamp_ns).max();
            let floor_ns = newest_ns.map_or(i64::MIN, |newest_ns| newest_ns.saturating_add(1));
            let held = NewestRows { chunk: None, floor_ns, asked: 0 };
            let held = held.take_in(key, plan.batch(rows)?, self.rows_max)?;
            bytes += held.bytes();
            gpus.insert(Arc::clone(key), held);
        }
        Ok(())
    }

    fn make_room(&self, state: &mut RecentState) {
        let mut bytes: usize = state.gpus.values().map(NewestRows::bytes).sum();
        if bytes <= self.bytes_max {
            return;
        }
        let mut oldest: Vec<(u64, Arc<str>)> =
            state.gpus.iter().map(|(key, held)| (held.asked, Arc::clone(key))).collect();
        oldest.sort_unstable();
        for (_, key) in oldest {
            if bytes <= self.bytes_max {
                return;
            }
            bytes -= state.gpus.remove(&key).map_or(0, |held| held.bytes());
        }
    }

    /// Rows held, and bytes of their columns.
    pub(crate) fn size(&self) -> (usize, usize) {
        let state = self.lock();
        let rows = state.gpus.values().filter_map(|held| Some(held.chunk.as_ref()?.records.num_rows()));
        (rows.sum(), state.gpus.values().map(NewestRows::bytes).sum())
    }
}
