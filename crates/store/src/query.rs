//! Answers to questions: rows in a range, and values by steps of time.

mod buckets;
mod fold;
mod grid;
mod range;
mod tally;

pub(crate) use buckets::buckets;
pub(crate) use range::range;

/// Most rows held for comparison, and most rows up to the end of a page of rows.
pub const ROWS_MAX: u64 = 16_000_000;
