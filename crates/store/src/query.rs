//! Answers to questions: rows in a range, and values by steps of time.

mod buckets;
mod fold;
mod grid;
mod labels;
mod range;
mod rolled;
mod stretches;
mod tally;

pub(crate) use buckets::buckets;
pub(crate) use range::range;
pub(crate) use tally::{Run, count_column};

/// Most rows held for comparison, and most rows up to the end of a page of rows.
pub const ROWS_MAX: u64 = 16_000_000;
