//! Answers to questions: rows in a range, and values by steps of time.

mod buckets;
mod fold;
mod grid;
mod range;
mod tally;

pub(crate) use buckets::buckets;
pub(crate) use range::range;

/// Most buckets × series of an answer: 10,000 GPUs with three aggregates of one metric over an hour by the minute.
pub const POINTS_MAX: u64 = 2_000_000;
/// Most values held at a time for percentiles (4 or 8 bytes each). A longer range is answered piece by piece; only a
/// single bucket with more values is refused.
pub const VALUES_MAX: u64 = 32_000_000;
/// Most rows held for comparison, and most rows up to the end of a page of rows.
pub const ROWS_MAX: u64 = 16_000_000;
