//! The rows that are in the log but not yet in files.
//!
//! Batches are small (a node's rows of one second) and are folded as they come: sixteen of about one size
//! become one, sorted by GPU and time, until a chunk has [`SEALED_ROWS`]. So a row is copied three times at
//! most, there are few chunks to search, and their columns and dictionaries are not paid for per batch.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use gpuvitals_core::batch::TIMESTAMP_COLUMN;

use crate::merge::{self, MergeError, Order, RowKeys};

/// How many chunks of about one size are folded into one.
const FOLD: usize = 16;
/// Rows of a chunk that is not folded any more. With [`FOLD`] it bounds a chunk to 65,536 rows, the limit of
/// wire frames.
pub(crate) const SEALED_ROWS: usize = 4_096;

/// The rows of a GPU in a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Positions<'a> {
    /// Side by side, by time, no time twice.
    Range(Range<usize>),
    /// Here and there, in order of arrival.
    Rows(&'a [u32]),
}

impl Positions<'_> {
    /// How many rows these are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Range(rows) => rows.len(),
            Self::Rows(rows) => rows.len(),
        }
    }
}

/// Some rows of the tail with an index by GPU.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// The rows. Columns as in `gpuvitals_core::Batch`.
    pub(crate) records: RecordBatch,
    /// The GPUs with rows here, by key, and their beginning: row number if `rows` is none, else index in it.
    pub(crate) gpus: Vec<(Arc<str>, u32)>,
    /// Row numbers by GPU, and by arrival within a GPU; none: the rows themselves are sorted by GPU and time,
    /// merged.
    pub(crate) rows: Option<Vec<u32>>,
    /// Earliest time, nanoseconds UTC since 1970.
    pub(crate) min_timestamp_ns: i64,
    /// Latest time.
    pub(crate) max_timestamp_ns: i64,
}

impl Chunk {
    /// The rows of a GPU, if it has any.
    pub(crate) fn positions(&self, key: &str) -> Option<Positions<'_>> {
        let at = self.gpus.binary_search_by(|(k, _)| k.as_ref().cmp(key)).ok()?;
        let start = self.gpus.get(at).map(|(_, start)| *start as usize)?;
        let end = self.gpus.get(at + 1).map_or(self.records.num_rows(), |(_, start)| *start as usize);
        match &self.rows {
            None => Some(Positions::Range(start..end)),
            Some(rows) => rows.get(start..end).map(Positions::Rows),
        }
    }

    /// A chunk of rows as they came, with the number of each row's GPU and the keys of these numbers.
    pub(crate) fn arrived(records: RecordBatch, keys: &RowKeys) -> Self {
        let mut by_text: Vec<u32> = (0..u32::try_from(keys.keys.len()).unwrap_or(u32::MAX)).collect();
        let text = |id: u32| keys.keys.get(id as usize);
        by_text.sort_unstable_by(|a, b| text(*a).cmp(&text(*b)));
        let mut rank_of = vec![0_u32; keys.keys.len()];
        let mut counts: Vec<u32> = Vec::with_capacity(by_text.len());
        let mut names: Vec<Arc<str>> = Vec::with_capacity(by_text.len());
        for id in by_text {
            let Some(name) = text(id) else { continue };
            if names.last() != Some(name) {
                names.push(Arc::clone(name));
                counts.push(0);
            }
            if let Some(rank) = rank_of.get_mut(id as usize) {
                *rank = u32::try_from(names.len() - 1).unwrap_or(u32::MAX);
            }
        }
        let rank = |id: u32| rank_of.get(id as usize).map_or(0, |rank| *rank as usize);
        for &id in &keys.ids {
            if let Some(count) = counts.get_mut(rank(id)) {
                *count += 1;
            }
        }
        let (mut gpus, mut next, mut total) = (Vec::with_capacity(names.len()), Vec::new(), 0);
        for (name, count) in names.into_iter().zip(counts) {
            next.push(total);
            if count > 0 {
                gpus.push((name, total));
            }
            total += count;
        }
        let mut rows = vec![0_u32; keys.ids.len()];
        for (row, &id) in (0_u32..).zip(&keys.ids) {
            if let Some(next) = next.get_mut(rank(id)) {
                if let Some(slot) = rows.get_mut(*next as usize) {
                    *slot = row;
                }
                *next += 1;
            }
        }
        let (min_timestamp_ns, max_timestamp_ns) = span(&records);
        Self { records, gpus, rows: Some(rows), min_timestamp_ns, max_timestamp_ns }
    }

    /// A chunk of rows sorted by GPU and time, merged.
    pub(crate) fn sorted(records: RecordBatch, keys: &RowKeys) -> Self {
        let mut gpus: Vec<(Arc<str>, u32)> = Vec::new();
        let mut last = None;
        for (row, &id) in (0_u32..).zip(&keys.ids) {
            if last != Some(id) {
                last = Some(id);
                if let Some(key) =
                    keys.keys.get(id as usize).filter(|key| gpus.last().is_none_or(|(k, _)| k != *key))
                {
                    gpus.push((Arc::clone(key), row));
                }
            }
        }
        let (min_timestamp_ns, max_timestamp_ns) = span(&records);
        Self { records, gpus, rows: None, min_timestamp_ns, max_timestamp_ns }
    }
}

/// Earliest and latest time of some rows.
pub(crate) fn span(records: &RecordBatch) -> (i64, i64) {
    let times = timestamps(records);
    let (mut min, mut max) = (i64::MAX, i64::MIN);
    for &time in times {
        min = min.min(time);
        max = max.max(time);
    }
    (min, max)
}

/// Times of the rows.
pub(crate) fn timestamps(records: &RecordBatch) -> &[i64] {
    records
        .column_by_name(TIMESTAMP_COLUMN)
        .and_then(|column| column.as_primitive_opt::<Int64Type>())
        .map_or(&[], |column| column.values())
}

/// Bytes that rows take in memory once they are folded: their columns, without the slack of small allocations.
pub(crate) fn weight(records: &RecordBatch) -> usize {
    let rows = records.num_rows();
    let column = |column: &dyn Array| {
        let texts = column
            .as_dictionary_opt::<Int32Type>()
            .and_then(|column| column.values().as_string_opt::<i32>())
            .map_or(0, |texts| texts.value_data().len());
        let width = match column.data_type() {
            DataType::Int64 | DataType::Float64 => 8,
            _ => 4,
        };
        rows * width + rows / 8 + texts
    };
    records.columns().iter().map(|array| column(array.as_ref())).sum()
}

/// The tail at one version, oldest arrival first: if two chunks have the same key, the later wins.
#[derive(Debug, Clone, Default)]
pub(crate) struct TailSnapshot {
    /// The chunks.
    pub(crate) chunks: Vec<Arc<Chunk>>,
}

/// A tail under construction.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    chunks: Vec<Arc<Chunk>>,
    /// Rows that came; merging may have made them fewer.
    pub(crate) rows: usize,
    /// [`weight`] of the held rows: folded rows have room for each other's columns.
    pub(crate) bytes: usize,
    /// Number of the newest log record in it; 0: none.
    pub(crate) last_sequence: u64,
    /// Memory permits held, in units of the store's semaphore.
    pub(crate) permits: usize,
}

impl Tail {
    /// Whether it has no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The chunks so far, oldest first.
    pub(crate) fn chunks(&self) -> &[Arc<Chunk>] {
        &self.chunks
    }

    /// Adds rows that came in one batch.
    ///
    /// # Errors
    /// When columns of the same name do not fit together; then nothing is lost, they stay apart.
    pub(crate) fn push(&mut self, chunk: Chunk) -> Result<(), MergeError> {
        self.rows += chunk.records.num_rows();
        self.bytes += weight(&chunk.records);
        self.chunks.push(Arc::new(chunk));
        self.fold()
    }

    fn fold(&mut self) -> Result<(), MergeError> {
        let mut bound = FOLD;
        while bound <= SEALED_ROWS {
            let small = |chunk: &&Arc<Chunk>| chunk.records.num_rows() < bound;
            let run = self.chunks.iter().rev().take_while(small).count();
            if run >= FOLD {
                let first = self.chunks.len() - run;
                let parts: Vec<RecordBatch> =
                    self.chunks.iter().skip(first).map(|chunk| chunk.records.clone()).collect();
                let plan = merge::Merge::plan(&parts, Order::GpuTime)?;
                let merged = plan.batch(0..plan.rows())?;
                let keys = RowKeys::of(&merged).map_err(|row| MergeError::Nobody { part: 0, row: row.0 })?;
                let before: usize = parts.iter().map(weight).sum();
                self.bytes = self.bytes.saturating_sub(before).saturating_add(weight(&merged));
                self.chunks.truncate(first);
                self.chunks.push(Arc::new(Chunk::sorted(merged, &keys)));
            }
            bound *= FOLD;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::batch::Value;
    use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, Origin, Table, catalogue};

    use super::*;

    fn push(tail: &mut Tail, gpus: &[&str], time: i64) {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let power = catalogue::by_column("power_w").unwrap();
        for gpu in gpus {
            let identity = builder.intern(&Identity::default().with(IdentityColumn::Uuid, gpu).unwrap());
            let row = builder.row(time, identity);
            builder.set(row, power, Value::Float(100.0)).unwrap();
        }
        let batch = builder.finish(Origin::default(), 0).unwrap();
        let keys = RowKeys::of(batch.records()).unwrap();
        tail.push(Chunk::arrived(batch.records().clone(), &keys)).unwrap();
    }

    fn times(tail: &Tail, key: &str) -> Vec<i64> {
        let mut found = Vec::new();
        for chunk in tail.chunks() {
            let times = timestamps(&chunk.records);
            match chunk.positions(key) {
                None => {}
                Some(Positions::Range(range)) => found.extend_from_slice(&times[range]),
                Some(Positions::Rows(rows)) => found.extend(rows.iter().map(|&row| times[row as usize])),
            }
        }
        found
    }

    #[test]
    fn one_gpu_is_found_in_folded_and_unfolded_chunks() {
        let mut tail = Tail::default();
        for time in 0..1_000 {
            push(&mut tail, &["b", "a", "c"], time);
        }
        assert_eq!(tail.rows, 3_000);
        assert!(tail.chunks().len() < 3 * FOLD, "{} chunks", tail.chunks().len());
        for key in ["a", "b", "c"] {
            assert_eq!(times(&tail, key), (0..1_000).collect::<Vec<_>>());
        }
        assert_eq!(times(&tail, "d"), Vec::<i64>::new());
    }

    #[test]
    fn the_same_rows_again_are_joined_when_folded() {
        let mut tail = Tail::default();
        for _ in 0..FOLD {
            push(&mut tail, &["a", "b"], 7);
        }
        assert_eq!((times(&tail, "a"), times(&tail, "b")), (vec![7], vec![7]));
    }
}
