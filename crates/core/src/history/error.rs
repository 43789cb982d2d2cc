//! A question is refused, or its answer fails.

use std::borrow::Cow;
use std::error::Error;

use crate::Table;

/// Most buckets a series may have: a day of seconds and some more.
pub const BUCKETS_MAX: u64 = 100_000;

/// A question without an answer. What cannot be read is in [`super::Part::missing`] of an answer instead.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The step is not positive or the end is before the start.
    #[error("the range from {start_ns} to {end_ns} with step {step_ns} is empty or endless")]
    Range {
        /// Start of the range, nanoseconds UTC since 1970.
        start_ns: i64,
        /// End of the range, nanoseconds UTC since 1970.
        end_ns: i64,
        /// Width of a step, nanoseconds.
        step_ns: i64,
    },
    /// More buckets than a series may have.
    #[error("{buckets} buckets are more than {max}; take a larger step or a shorter range")]
    TooManyBuckets {
        /// How many were asked for.
        buckets: u64,
        /// How many a series may have.
        max: u64,
    },
    /// More values than an answer may have.
    #[error(
        "the answer has more than {max} values; take fewer GPUs or metrics, a larger step or a shorter range"
    )]
    TooManyPoints {
        /// Bound on buckets × series.
        max: u64,
    },
    /// More values than are held at a time: in sketches and tracks, or to be compared.
    #[error(
        "more than {max} values would be in memory; take fewer GPUs or metrics, a shorter range, or no percentile, rate, increase or delta"
    )]
    TooManyValues {
        /// Bound on values held at a time.
        max: u64,
    },
    /// More rows than are held at a time.
    #[error(
        "{rows} rows are more than {max}; take a smaller limit, after instead of an offset, fewer GPUs or a shorter range"
    )]
    TooManyRows {
        /// Asked for, or to be compared.
        rows: u64,
        /// How many are held at a time.
        max: u64,
    },
    /// A metric of another table.
    #[error("{column} is no metric of {table}")]
    UnknownMetric {
        /// Column of the metric.
        column: &'static str,
        /// The table that was asked.
        table: Table,
    },
    /// The history does not keep the data asked for.
    #[error("this is not kept: {reason}")]
    NotKept {
        /// Why not, or what is.
        reason: Cow<'static, str>,
    },
    /// The history is elsewhere, and cannot be reached.
    #[error("{reason}")]
    Away {
        /// Which one, and why not.
        reason: Cow<'static, str>,
    },
    /// The history failed: a defect, or a disk.
    #[error("the history failed")]
    Failed(#[source] Box<dyn Error + Send + Sync>),
}

impl QueryError {
    /// A history that cannot be reached.
    pub fn away(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Away { reason: reason.into() }
    }

    /// A defect of the back end.
    pub fn failed(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Failed(source.into())
    }
}
