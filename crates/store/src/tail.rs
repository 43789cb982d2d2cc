//! The rows that are in the log but not yet in files.
//!
//! Batches are small (a node's rows of one second). Each is merged and sorted by GPU and time, and sixteen of about one
//! size are folded into one, until a chunk has [`SEALED_ROWS`]. So a row is copied four times at most, there are few
//! chunks to search, and their columns and dictionaries are not paid for per batch.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use gpuvitals_core::Table;
use gpuvitals_core::batch::timestamps;

use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::merge::{Merge, MergeError, Order, Overwritten};

/// How many chunks of about one size are folded into one.
const FOLD: usize = 16;
/// Rows of a chunk that is not folded any more. With [`FOLD`] it bounds a chunk to 65,536 rows, the limit of
/// wire frames.
pub(crate) const SEALED_ROWS: usize = 4_096;

/// Some rows of the tail, merged, by GPU and time.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) table: Table,
    /// The rows. Columns as in `gpuvitals_core::Batch`.
    pub(crate) records: RecordBatch,
    /// The GPUs (or hosts) with rows here, by key, and the first row of each.
    pub(crate) gpus: Vec<(Arc<str>, usize)>,
    /// Earliest time, nanoseconds UTC since 1970.
    pub(crate) min_timestamp_ns: i64,
    /// Latest time, inclusive.
    pub(crate) max_timestamp_ns: i64,
}

impl Chunk {
    /// Merges rows, oldest to newest, of which `keys` are the GPUs or hosts. With them come those of which values were
    /// overwritten.
    ///
    /// # Errors
    /// When columns of the same name do not fit together.
    pub(crate) fn merged(
        table: Table,
        parts: &[RecordBatch],
        keys: &[RowKeys],
    ) -> Result<(Self, Overwritten), MergeError> {
        let plan = Merge::plan_with(table, parts, keys, Order::GpuTime)?;
        Ok((Self::sorted(table, plan.batch(0..plan.rows())?, plan.gpus()), plan.overwritten()))
    }

    /// A chunk of rows that are merged and sorted by GPU and time; `gpus` has the first row of each.
    pub(crate) fn sorted(table: Table, records: RecordBatch, gpus: Vec<(Arc<str>, usize)>) -> Self {
        let (min_timestamp_ns, max_timestamp_ns) = span(&records);
        Self { table, records, gpus, min_timestamp_ns, max_timestamp_ns }
    }

    /// The keys of its rows.
    fn keys(&self) -> RowKeys {
        let ends = self.gpus.iter().skip(1).map(|(_, start)| *start).chain([self.records.num_rows()]);
        let mut ids = Vec::with_capacity(self.records.num_rows());
        for (id, end) in (0_u32..).zip(ends) {
            ids.resize(end, id);
        }
        RowKeys { ids, keys: self.gpus.iter().map(|(key, _)| Arc::clone(key)).collect() }
    }

    /// The rows of a GPU, if it has any.
    pub(crate) fn rows_of(&self, key: &str) -> Option<Range<usize>> {
        let at = self.gpus.binary_search_by(|(k, _)| k.as_ref().cmp(key)).ok()?;
        let (_, start) = self.gpus.get(at)?;
        let end = self.gpus.get(at + 1).map_or(self.records.num_rows(), |(_, start)| *start);
        Some(*start..end)
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

/// A tail under construction.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Per table, oldest first.
    chunks: BTreeMap<Table, Vec<Arc<Chunk>>>,
    /// Rows that came; merging may have made them fewer.
    pub(crate) rows: usize,
    /// [`weight`] of what is held: folded rows have room for each other's columns.
    pub(crate) bytes: usize,
    /// Number of the oldest log record in it; 0: none.
    pub(crate) first_sequence: u64,
    /// Number of the newest log record in it or before it; 0: none.
    pub(crate) last_sequence: u64,
    /// Memory permits held, in units of the store's semaphore.
    pub(crate) permits: usize,
}

impl Tail {
    /// Whether it has no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The chunks so far, those of a table oldest first.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        self.chunks.values().flatten()
    }

    /// The chunks of a table, oldest first.
    pub(crate) fn of(&self, table: Table) -> &[Arc<Chunk>] {
        self.chunks.get(&table).map_or(&[], Vec::as_slice)
    }

    /// Adds rows that came in one batch, and the number of their log record. Returns what was overwritten where rows were put
    /// together.
    ///
    /// # Errors
    /// When columns of the same name do not fit together; then nothing is lost, they stay apart.
    pub(crate) fn push(&mut self, chunk: Chunk, sequence: u64) -> Result<Overwritten, MergeError> {
        if self.chunks.is_empty() {
            self.first_sequence = sequence;
        }
        self.last_sequence = sequence;
        self.rows += chunk.records.num_rows();
        self.bytes += weight(&chunk.records);
        let table = chunk.table;
        self.chunks.entry(table).or_default().push(Arc::new(chunk));
        self.fold(table)
    }

    fn fold(&mut self, table: Table) -> Result<Overwritten, MergeError> {
        let mut overwritten = Overwritten::default();
        let Some(chunks) = self.chunks.get_mut(&table) else { return Ok(overwritten) };
        let mut bound = FOLD;
        while bound <= SEALED_ROWS {
            let small = |chunk: &&Arc<Chunk>| chunk.records.num_rows() < bound;
            let run = chunks.iter().rev().take_while(small).count();
            if run >= FOLD {
                let first = chunks.len() - run;
                let (parts, keys): (Vec<RecordBatch>, Vec<RowKeys>) =
                    chunks.iter().skip(first).map(|chunk| (chunk.records.clone(), chunk.keys())).unzip();
                let (merged, more) = Chunk::merged(table, &parts, &keys)?;
                overwritten.add(more);
                let before: usize = parts.iter().map(weight).sum();
                self.bytes = self.bytes.saturating_sub(before).saturating_add(weight(&merged.records));
                chunks.truncate(first);
                chunks.push(Arc::new(merged));
            }
            bound *= FOLD;
        }
        Ok(overwritten)
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::batch::Value;
    use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, Origin, catalogue};

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
        let keys = RowKeys::of(batch.records(), Table::GpuEvents).unwrap();
        let (chunk, _) = Chunk::merged(Table::GpuEvents, &[batch.records().clone()], &[keys]).unwrap();
        tail.push(chunk, 1).unwrap();
    }

    fn times(tail: &Tail, key: &str) -> Vec<i64> {
        let mut found = Vec::new();
        for chunk in tail.chunks() {
            let times = timestamps(&chunk.records);
            found.extend(chunk.rows_of(key).into_iter().flat_map(|rows| times[rows].to_vec()));
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
        assert!(tail.chunks().count() < 3 * FOLD, "{} chunks", tail.chunks().count());
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
