//! All rows of a question, in no order: for sums, to which it is all the same.

use std::sync::Arc;

use super::error::QueryError;
use crate::Batch;

/// Most rows that are given by pages, of which each is put in order: 4,000 GPUs with ten holders an hour over a day.
pub const SWEPT_ROWS_MAX: usize = 1_000_000;

/// Takes rows, some at a time, and on several threads at once. An error ends the sweep.
pub type TakeRows = Arc<dyn Fn(&Batch) -> Result<(), QueryError> + Send + Sync>;

pub(super) fn too_many_rows() -> QueryError {
    let max = SWEPT_ROWS_MAX as u64;
    QueryError::TooManyRows { rows: max.saturating_add(1), max }
}
