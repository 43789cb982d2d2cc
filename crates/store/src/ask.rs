//! Questions to the store, and its answers.

use std::sync::Arc;

use gpuvitals_core::{Batch, MetricId};

use crate::merge::MergeError;

/// Rows of some GPUs in a range of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeQuery {
    /// Keys of the GPUs; empty: all.
    pub gpus: Vec<Arc<str>>,
    /// First instant, inclusive, nanoseconds UTC since 1970; none: from the beginning.
    pub start_ns: Option<i64>,
    /// Last instant, inclusive; none: to the end.
    pub end_ns: Option<i64>,
    /// Columns wanted (catalogue columns and extras); none: all. Rows without any value in them are kept.
    pub metrics: Option<Vec<String>>,
    /// Most rows to return.
    pub limit: usize,
    /// Rows to pass over first, in the order asked.
    pub offset: usize,
    /// Newest rows first instead of oldest first.
    pub newest_first: bool,
}

impl RangeQuery {
    /// The `limit` rows at one end of a GPU's history.
    pub(crate) fn end_of(gpu: &Arc<str>, limit: usize, newest_first: bool) -> Self {
        let gpus = vec![Arc::clone(gpu)];
        Self { gpus, start_ns: None, end_ns: None, metrics: None, limit, offset: 0, newest_first }
    }
}

/// Answer to a [`RangeQuery`].
#[derive(Debug, Clone)]
pub struct Rows {
    /// Rows merged by key, by timestamp in the requested order, then by GPU key; none if no row matches.
    pub batch: Option<Batch>,
    /// How many rows match in all, before limit and offset.
    pub total: usize,
    /// What could not be read, in words; empty: the answer is whole.
    pub partial: Vec<String>,
}

/// Rows at one end of a GPU's history.
#[derive(Debug, Clone)]
pub struct EndRows {
    /// Rows merged by key, in the requested order; none if there are none.
    pub batch: Option<Batch>,
    /// What could not be read, in words; empty: the answer is whole.
    pub partial: Vec<String>,
    /// Whether no file was read for it.
    pub from_memory: bool,
}

/// Values by aligned steps of time.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketQuery {
    /// Keys of the GPUs; empty: all.
    pub gpus: Vec<Arc<str>>,
    /// Metrics wanted.
    pub metrics: Vec<MetricId>,
    /// First instant, inclusive, nanoseconds UTC since 1970.
    pub start_ns: i64,
    /// Last instant, inclusive.
    pub end_ns: i64,
    /// Width of a bucket in nanoseconds; buckets begin at its multiples.
    pub step_ns: i64,
    /// Aggregates of each bucket.
    pub aggregates: Vec<Aggregate>,
    /// The values that form one series.
    pub group_by: GroupBy,
}

/// An aggregate of the values of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Aggregate {
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// Mean of the values.
    Mean,
    /// Exact 99th percentile (nearest rank).
    P99,
    /// The newest.
    Last,
    /// How many.
    Count,
}

/// The values that form one series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupBy {
    /// One series per GPU; the group is its key.
    Gpu,
    /// One per node.
    Node,
    /// One per model.
    Model,
    /// One for all.
    All,
}

/// Answer to a [`BucketQuery`].
#[derive(Debug, Clone, PartialEq)]
pub struct Buckets {
    /// Start of each bucket, nanoseconds UTC since 1970, multiples of the step, without gaps.
    pub times_ns: Vec<i64>,
    /// One per metric, aggregate and group that has a value.
    pub series: Vec<BucketSeries>,
    /// What could not be read, in words; empty: the answer is whole.
    pub partial: Vec<String>,
}

/// One line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketSeries {
    /// Metric.
    pub metric: MetricId,
    /// The aggregate.
    pub aggregate: Aggregate,
    /// Key of the GPU, name of the node or model, or `all`.
    pub group: Arc<str>,
    /// One per bucket, in the column unit; none if no value was read.
    pub values: Vec<Option<f64>>,
}

/// A question without an answer. Unreadable files are in `partial` of the answer instead.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The step is not positive or the end is before the start.
    #[error("the range from {start_ns} to {end_ns} with step {step_ns} is empty or endless")]
    Range {
        /// Start, nanoseconds.
        start_ns: i64,
        /// End, nanoseconds.
        end_ns: i64,
        /// Step, nanoseconds.
        step_ns: i64,
    },
    /// More buckets than a series may have.
    #[error("{buckets} buckets are more than {max}; take a larger step or a shorter range")]
    TooManyBuckets {
        /// Asked for.
        buckets: u64,
        /// Bound.
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
    /// A single bucket has more values than are held at a time.
    #[error("one bucket has more than {max} values; take fewer GPUs, a smaller step, or no 99th percentile")]
    TooManyValues {
        /// Bound on values held at a time.
        max: u64,
    },
    /// More rows than are held at a time.
    #[error(
        "{rows} rows are more than {max}; take a smaller limit and offset, fewer GPUs or a shorter range"
    )]
    TooManyRows {
        /// Asked for, or to be compared.
        rows: u64,
        /// Bound.
        max: u64,
    },
    /// A metric that GPUs do not have.
    #[error("{column} is no metric of GPUs")]
    UnknownMetric {
        /// Its column.
        column: &'static str,
    },
    /// Rows that should fit together did not: a defect of the store.
    #[error("merging rows")]
    Merge(#[from] MergeError),
    /// Columns that should fit together did not: a defect of the store.
    #[error("joining the columns of the answer")]
    Columns(#[from] arrow_schema::ArrowError),
    /// The joined columns are not a batch: a defect of the store.
    #[error("forming the answer")]
    Batch(#[from] gpuvitals_core::batch::BatchError),
}
