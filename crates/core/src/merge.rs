//! Merging many batches into one: sorted, and rows with equal keys are one row.
//!
//! Parts are given oldest to newest. Rows with equal keys (GPU or host, `timestamp_ns`, the table's other key columns) join column by column:
//! null never overwrites a value; of two values the later arrival wins, which is the one in the later part,
//! and inside a part the one in the later row. In a table with a [version](Table::version) rows with equal keys do not join: the one
//! with the largest version stays. Schemas may differ: columns are matched by name, a missing
//! column is a column of nulls, narrower numbers are widened, text may be plain or dictionary-encoded.
//!
//! Method: each part's GPUs become integer ranks once (by dictionary value, not by row), a stable counting
//! sort by rank follows, and times and the rest of the key are sorted only within the GPUs that need it. The result is a permutation;
//! columns are gathered one by one, and run by run if the permutation has long runs, so that sorted parts are
//! copied. Output can be taken in chunks: memory is the parts, 24 bytes a row, and one chunk.

mod gather;
mod order;
mod overwritten;
mod schema;
mod sort;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;

use crate::Table;
use crate::batch::RowKeys;
use crate::history::QueryError;

use schema::UnifiedColumns;
use sort::Sorted;

pub use order::{MergeError, Order};
pub use overwritten::Overwritten;
pub use schema::{as_text, widen};

pub(crate) use order::Pick;

impl From<MergeError> for QueryError {
    fn from(error: MergeError) -> Self {
        Self::failed(error)
    }
}

/// The plan of a merge: the part and row of each result row. [`Merge::batch`] gathers the columns.
#[derive(Debug)]
pub struct Merge {
    columns: UnifiedColumns,
    sorted: Sorted,
}

impl Merge {
    /// Plans the merge of parts, oldest to newest.
    ///
    /// # Errors
    /// If a part lacks time or GPU, a column's types are incompatible, or there are 2^32 rows or more.
    pub fn plan(table: Table, parts: &[RecordBatch], order: Order) -> Result<Self, MergeError> {
        Self::plan_with(table, parts, &sort::subjects(table, parts)?, order)
    }

    /// As [`Merge::plan`], of parts whose GPUs or hosts are known.
    ///
    /// # Errors
    /// As [`Merge::plan`].
    pub fn plan_with(
        table: Table,
        parts: &[RecordBatch],
        keys: &[RowKeys],
        order: Order,
    ) -> Result<Self, MergeError> {
        let rows: usize = parts.iter().map(RecordBatch::num_rows).sum();
        if u32::try_from(rows).is_err() || u32::try_from(parts.len()).is_err() {
            return Err(MergeError::TooManyRows(rows));
        }
        let sorted = sort::sort(table, parts, keys, order)?;
        let columns = UnifiedColumns::unify(table, parts)?;
        Ok(Self { columns, sorted })
    }

    /// Columns of the result: time, identity, metrics in catalogue order, the rest by name.
    pub fn schema(&self) -> &SchemaRef {
        &self.columns.schema
    }

    /// Rows of the result.
    pub fn rows(&self) -> usize {
        self.sorted.picks.len()
    }

    /// The rows of the result that are made of rows with different values.
    pub fn overwritten(&self) -> Overwritten {
        Overwritten::of(&self.columns, &self.sorted)
    }

    /// The GPUs or hosts of the result by key, and the first row of each. Only of use in [`Order::GpuTime`].
    pub fn gpus(&self) -> Vec<(Arc<str>, usize)> {
        let mut gpus = Vec::new();
        let mut start = 0;
        for same in self.sorted.ranks.chunk_by(|a, b| a == b) {
            let key = same.first().and_then(|rank| self.sorted.keys.get(*rank as usize));
            gpus.extend(key.map(|key| (Arc::clone(key), start)));
            start += same.len();
        }
        gpus
    }

    /// Gathers rows of the result, all columns. The range is cut to the existing rows.
    ///
    /// # Errors
    /// If Arrow refuses the columns; planned parts are never refused.
    pub fn batch(&self, rows: Range<usize>) -> Result<RecordBatch, MergeError> {
        let end = rows.end.min(self.rows());
        let rows = rows.start.min(end)..end;
        let chunk = gather::Chunk::new(&self.sorted, rows.clone());
        let arrays: Result<Vec<ArrayRef>, MergeError> =
            self.columns.columns.iter().map(|column| chunk.column(column)).collect();
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.columns.schema), arrays?, &options)?)
    }
}

/// Merges parts, oldest to newest, into one batch; `None` if they have no row.
///
/// # Errors
/// As [`Merge::plan`].
pub fn merge(table: Table, parts: &[RecordBatch], order: Order) -> Result<Option<RecordBatch>, MergeError> {
    let plan = Merge::plan(table, parts, order)?;
    if plan.rows() == 0 {
        return Ok(None);
    }
    plan.batch(0..plan.rows()).map(Some)
}

/// The batch without the columns that hold nothing but nulls.
///
/// # Errors
/// When Arrow refuses the projection, which it does not.
pub fn without_empty(batch: &RecordBatch) -> Result<RecordBatch, MergeError> {
    use arrow_array::Array as _;
    let full: Vec<usize> = batch
        .columns()
        .iter()
        .enumerate()
        .filter(|(_, column)| column.logical_null_count() < column.len())
        .map(|(index, _)| index)
        .collect();
    if full.len() == batch.num_columns() { Ok(batch.clone()) } else { Ok(batch.project(&full)?) }
}
