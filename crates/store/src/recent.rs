//! Rows of files that stay in memory: the newest of each GPU.
//!
//! With every flush the rows that go to files join those already held, and the newest
//! [`StoreConfig::recent_rows`](crate::StoreConfig::recent_rows) of each GPU stay. Each GPU has a *floor*:
//! all its rows from that time on are here or in the tail. So a query for the newest rows needs no file if
//! enough of them are above the floor, and a late row below it changes no answer from memory. A GPU without
//! held rows has its floor above all its rows in files.
//!
//! If there is not room for all, GPUs that were queried longest ago leave first; of those never queried,
//! those without new rows, and then the latest comers. A GPU that is queried and has too few held rows is
//! read from the files at the next flush.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{RecordBatch, UInt32Array};
use arrow_select::take::take_record_batch;
use foldhash::fast::RandomState;
use gpuvitals_core::causes;

use crate::ask::Rows;
use crate::fleet::Fleet;
use crate::merge::{Merge, MergeError, Order, RowKeys, without_empty};
use crate::tail::{Chunk, Positions, TailSnapshot, timestamps, weight};

/// GPUs whose rows share one chunk: columns that only some GPUs have are paid for within it.
const CHUNK_GPUS: usize = 64;
/// GPUs that are read from files with one flush at most.
pub(crate) const FILLS_MAX: usize = 64;

/// How much may be held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Rows of a GPU.
    pub(crate) rows: usize,
    /// Bytes of columns of all GPUs.
    pub(crate) bytes: usize,
}

/// The newest rows in files as they stood after one flush.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    chunks: Vec<Arc<Chunk>>,
    gpus: HashMap<Arc<str>, Past, RandomState>,
    /// Rows held.
    pub(crate) rows: usize,
    /// Bytes of their columns.
    pub(crate) bytes: usize,
    /// Number of the last question of before.
    asked_before: u64,
}

/// A GPU's rows in files.
#[derive(Debug, Default)]
struct Past {
    /// All rows from this time on are held, or in the tail.
    floor_ns: i64,
    /// Time of the newest.
    newest_ns: i64,
    /// Number of the last question for it; 0: never.
    asked: AtomicU64,
    /// The chunk that holds them.
    chunk: Option<usize>,
}

impl Past {
    fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Nothing is held.
    fn leave(&mut self) {
        (self.floor_ns, self.chunk) = (self.newest_ns.saturating_add(1), None);
    }
}

/// The newest rows of a GPU, read from the files of before a flush.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(crate) key: Arc<str>,
    pub(crate) rows: Rows,
}

/// Rows of a GPU in a piece of the merge.
struct Stay {
    key: Arc<str>,
    rows: Range<usize>,
}

impl Recent {
    /// Nothing held; the rows in files are no newer than in the fleet.
    pub(crate) fn of(fleet: &Fleet) -> Self {
        let past = |newest_ns: i64| {
            let mut past = Past { newest_ns, ..Past::default() };
            past.leave();
            past
        };
        let gpus = fleet.gpus.iter().map(|gpu| (Arc::clone(&gpu.key), past(gpu.last_seen_ns))).collect();
        Self { gpus, ..Self::default() }
    }

    /// The held rows of a GPU, and the time from which on they are complete. `question` is the number of the
    /// query, later ones have higher numbers.
    pub(crate) fn of_gpu(&self, key: &str, tail: &TailSnapshot, question: u64) -> (TailSnapshot, i64) {
        let past = self.gpus.get(key);
        if let Some(past) = past {
            past.asked.fetch_max(question, Ordering::Relaxed);
        }
        let held = past.and_then(|past| self.chunks.get(past.chunk?)).cloned();
        let chunks = held.into_iter().chain(tail.chunks.iter().cloned()).collect();
        (TailSnapshot { chunks }, past.map_or(i64::MIN, |past| past.floor_ns))
    }

    /// GPUs that were asked for since the last flush and of which fewer rows are held than may be, the last asked for first.
    pub(crate) fn wanted(&self, rows: usize) -> Vec<Arc<str>> {
        let lacks = |key: &str, past: &Past| {
            let held = past.chunk.and_then(|chunk| self.chunks.get(chunk)?.positions(key));
            past.floor_ns > i64::MIN && held.map_or(0, |held| held.len()) < rows
        };
        let asked = self.gpus.iter().filter(|(_, past)| past.asked() > self.asked_before);
        let mut wanted: Vec<(&Arc<str>, u64)> =
            asked.filter(|(key, past)| lacks(key, past)).map(|(key, past)| (key, past.asked())).collect();
        wanted.sort_unstable_by_key(|(_, asked)| Reverse(*asked));
        wanted.into_iter().take(FILLS_MAX).map(|(key, _)| Arc::clone(key)).collect()
    }

    /// The rows held once these rows are in files too.
    pub(crate) fn renewed(&self, tail: &[Arc<Chunk>], fills: Vec<Fill>, limits: Limits) -> Self {
        let mut next = Self { gpus: self.pasts(), ..Self::default() };
        next.asked_before = self.gpus.values().map(Past::asked).max().unwrap_or(0).max(self.asked_before);
        let mut parts = Vec::with_capacity(fills.len() + self.chunks.len() + tail.len());
        for Fill { key, rows } in fills {
            let Some(past) = next.gpus.get_mut(&key) else { continue };
            let Some(batch) = rows.batch else { continue };
            let oldest = batch.timestamps().iter().min().copied().unwrap_or(i64::MIN);
            let floor = if rows.total > batch.rows() { oldest } else { i64::MIN };
            past.floor_ns = past.floor_ns.min(floor);
            parts.push(batch.records().clone());
        }
        let fresh = next.see(tail);
        parts.extend(self.chunks.iter().chain(tail).map(|chunk| chunk.records.clone()));
        if let Err(error) = next.hold(&parts, limits, &fresh) {
            // Columns of one name that do not fit together; the files have the rows.
            tracing::warn!(error = causes(&error), "no rows of files are held in memory");
            (next.chunks, next.rows, next.bytes) = (Vec::new(), 0, 0);
            next.gpus.values_mut().for_each(Past::leave);
        }
        next
    }

    fn pasts(&self) -> HashMap<Arc<str>, Past, RandomState> {
        let copy = |past: &Past| Past {
            floor_ns: past.floor_ns,
            newest_ns: past.newest_ns,
            asked: past.asked().into(),
            chunk: past.chunk,
        };
        self.gpus.iter().map(|(key, past)| (Arc::clone(key), copy(past))).collect()
    }

    /// Notes the GPUs of the rows that go to files, and the newest time of each.
    fn see(&mut self, tail: &[Arc<Chunk>]) -> HashSet<Arc<str>, RandomState> {
        let mut fresh = HashSet::default();
        for chunk in tail {
            let times = timestamps(&chunk.records);
            for (key, _) in &chunk.gpus {
                let Some(positions) = chunk.positions(key) else { continue };
                let newest = match positions {
                    Positions::Range(rows) => times.get(rows).and_then(|times| times.last()).copied(),
                    Positions::Rows(rows) => {
                        rows.iter().filter_map(|&row| times.get(row as usize)).max().copied()
                    }
                };
                let new = || Past { floor_ns: i64::MIN, newest_ns: i64::MIN, ..Past::default() };
                let past = self.gpus.entry(Arc::clone(key)).or_insert_with(new);
                past.newest_ns = past.newest_ns.max(newest.unwrap_or(i64::MIN));
                fresh.insert(Arc::clone(key));
            }
        }
        fresh
    }

    /// Holds of each GPU the newest rows above its floor.
    fn hold(
        &mut self,
        parts: &[RecordBatch],
        limits: Limits,
        fresh: &HashSet<Arc<str>, RandomState>,
    ) -> Result<(), MergeError> {
        let plan = Merge::plan(parts, Order::GpuTime)?;
        let mut held = Vec::new();
        for range in plan.gpu_ranges(CHUNK_GPUS) {
            let piece = plan.batch(range)?;
            let stays = self.newest(&piece, limits.rows)?;
            held.extend(Held::cut(&piece, stays)?);
        }
        let leaving = self.leaving(&held, limits.bytes, fresh);
        self.gpus.values_mut().for_each(|past| past.chunk = None);
        for Held { records, mut stays } in held {
            stays.retain(|stay| !leaving.contains(&stay.key));
            let Some(Held { records, stays }) = Held::cut(&records, stays)? else { continue };
            for stay in &stays {
                self.gpus
                    .get_mut(&stay.key)
                    .into_iter()
                    .for_each(|past| past.chunk = Some(self.chunks.len()));
            }
            self.rows += records.num_rows();
            self.bytes += weight(&records);
            let keys = RowKeys::of(&records).map_err(|row| MergeError::Nobody { part: 0, row: row.0 })?;
            self.chunks.push(Arc::new(Chunk::sorted(records, &keys)));
        }
        self.gpus.values_mut().filter(|past| past.chunk.is_none()).for_each(Past::leave);
        Ok(())
    }

    /// The rows of a piece that stay, and the resulting floors. A piece is sorted by GPU and time.
    fn newest(&mut self, piece: &RecordBatch, rows_max: usize) -> Result<Vec<Stay>, MergeError> {
        let RowKeys { ids, keys } =
            RowKeys::of(piece).map_err(|row| MergeError::Nobody { part: 0, row: row.0 })?;
        let (times, key) = (timestamps(piece), |id: &u32| keys.get(*id as usize));
        let (mut stays, mut end) = (Vec::new(), 0);
        for run in ids.chunk_by(|a, b| a == b || key(a) == key(b)) {
            let start = end;
            end += run.len();
            let Some(key) = run.first().and_then(key) else { continue };
            let Some(past) = self.gpus.get_mut(key) else { continue };
            let run = times.get(start..end).unwrap_or(&[]);
            let above = run.partition_point(|time| *time < past.floor_ns);
            let first = above.max(run.len().saturating_sub(rows_max));
            if let Some(&time) = run.get(first).filter(|_| first > above) {
                past.floor_ns = time;
            }
            stays.push(Stay { key: Arc::clone(key), rows: start + first..end });
        }
        Ok(stays)
    }

    /// GPUs without room.
    fn leaving(
        &self,
        held: &[Held],
        bytes_max: usize,
        fresh: &HashSet<Arc<str>, RandomState>,
    ) -> HashSet<Arc<str>, RandomState> {
        let mut all: Vec<(&Arc<str>, &Past, usize)> = Vec::new();
        for Held { records, stays } in held {
            let bytes = |rows: usize| weight(records) * rows / records.num_rows().max(1);
            let sized = |stay: &Stay| bytes(stay.rows.len());
            all.extend(
                stays.iter().filter_map(|stay| Some((&stay.key, self.gpus.get(&stay.key)?, sized(stay)))),
            );
        }
        all.sort_by_key(|(key, past, _)| {
            (Reverse(past.asked()), !fresh.contains(*key), past.chunk.is_none(), Arc::clone(key))
        });
        let mut taken = 0;
        let fits = |(_, _, bytes): &&(&Arc<str>, &Past, usize)| {
            taken += bytes;
            taken <= bytes_max
        };
        let staying = all.iter().take_while(fits).count();
        all.into_iter().skip(staying).map(|(key, _, _)| Arc::clone(key)).collect()
    }
}

/// Rows of some GPUs, by GPU and time.
struct Held {
    records: RecordBatch,
    stays: Vec<Stay>,
}

impl Held {
    /// Only those rows; none if there are none.
    fn cut(records: &RecordBatch, stays: Vec<Stay>) -> Result<Option<Self>, MergeError> {
        let rows: usize = stays.iter().map(|stay| stay.rows.len()).sum();
        if rows == 0 {
            return Ok(None);
        }
        if rows == records.num_rows() {
            return Ok(Some(Self { records: without_empty(records)?, stays }));
        }
        let numbers = stays.iter().flat_map(|stay| stay.rows.clone());
        let numbers = UInt32Array::from_iter_values(numbers.filter_map(|row| u32::try_from(row).ok()));
        let mut start = 0;
        let place = |Stay { key, rows }: Stay| {
            let from = start;
            start += rows.len();
            Stay { key, rows: from..start }
        };
        let stays = stays.into_iter().filter(|stay| !stay.rows.is_empty()).map(place).collect();
        Ok(Some(Self { records: without_empty(&take_record_batch(records, &numbers)?)?, stays }))
    }
}
