//! Questions to a history, and the answers.

use std::borrow::Cow;
use std::sync::Arc;

use super::error::QueryError;
use super::{Selector, TimeSteps};
use crate::batch::RowKeys;
use crate::{Batch, IdentityColumn, MetricId, Table};

/// Most buckets × series of an answer: 10,000 GPUs with three aggregates of one metric over an hour by the minute.
pub const POINTS_MAX: u64 = 2_000_000;
/// Most counts (8 bytes each) that the sketches and tracks of an answer hold.
pub const COUNTS_MAX: u64 = 32_000_000;

/// Rows of a table in a range of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowsQuery {
    /// The table whose rows are asked for.
    pub table: Table,
    /// Keys of the GPUs (in a table without GPUs: names of the nodes); empty: all.
    pub gpus: Vec<Arc<str>>,
    /// Which of their rows.
    pub selector: Selector,
    /// First instant, inclusive, nanoseconds UTC since 1970; none: from the beginning.
    pub start_ns: Option<i64>,
    /// Last instant, inclusive; none: to the end.
    pub end_ns: Option<i64>,
    /// Columns wanted (catalogue columns and extras); none: all. Rows without any value in them are kept.
    pub metrics: Option<Vec<String>>,
    /// Most rows to return.
    pub limit: usize,
    /// Only rows behind this place in the order asked: that of the last row of the page before.
    pub after: Option<RowPlace>,
    /// Rows to pass over first, in the order asked.
    pub offset: usize,
    /// Newest rows first instead of oldest first.
    pub newest_first: bool,
    /// Whether [`Rows::total`] is wanted. Without it, the rows at an end of a GPU's history are cheaper.
    pub with_total: bool,
    /// Between these instants, both inclusive, a sweep may give rows of `gpu_usage` by the day, as [`DayRows`](crate::usage::DayRows) are;
    /// none: all as they are.
    pub days_within: Option<(i64, i64)>,
}

impl RowsQuery {
    /// The oldest rows of a table.
    pub fn of(table: Table, limit: usize) -> Self {
        Self {
            table,
            gpus: Vec::new(),
            selector: Selector::default(),
            start_ns: None,
            end_ns: None,
            metrics: None,
            limit,
            after: None,
            offset: 0,
            newest_first: false,
            with_total: false,
            days_within: None,
        }
    }
}

/// Place of a row among all rows of its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowPlace {
    /// Its time, nanoseconds UTC since 1970.
    pub timestamp_ns: i64,
    /// The rest of its key, as [`RowKeys::whole`] writes it.
    pub key: Arc<str>,
}

/// Answer to a [`RowsQuery`].
#[derive(Debug, Clone, Default)]
pub struct Rows {
    /// Rows merged by key, by timestamp in the requested order, then by key; none if no row matches.
    pub batch: Option<Batch>,
    /// How many rows match in all, wherever the page begins and ends; none unless asked for.
    pub total: Option<usize>,
}

impl Rows {
    /// Place of the last row, behind which the next page begins; none without rows.
    pub fn end(&self) -> Option<RowPlace> {
        self.place(self.batch.as_ref()?.rows().checked_sub(1)?)
    }

    /// Place of a row of the page; none if it has fewer rows.
    pub fn place(&self, row: usize) -> Option<RowPlace> {
        let batch = self.batch.as_ref()?;
        let timestamp_ns = *batch.timestamps().get(row)?;
        let keys = RowKeys::whole(&batch.records().slice(row, 1), batch.table()).ok()?;
        let key = keys.keys.get(*keys.ids.first()? as usize)?;
        Some(RowPlace { timestamp_ns, key: Arc::clone(key) })
    }
}

/// Values by aligned steps of time.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketQuery {
    /// The table of the metrics.
    pub table: Table,
    /// Keys of the GPUs (in a table without GPUs: names of the nodes); empty: all.
    pub gpus: Vec<Arc<str>>,
    /// Which of their rows.
    pub selector: Selector,
    /// Metrics asked for, all of the table.
    pub metrics: Vec<MetricId>,
    /// First instant, inclusive, nanoseconds UTC since 1970.
    pub start_ns: i64,
    /// Last instant, inclusive.
    pub end_ns: i64,
    /// Width of a bucket in nanoseconds.
    pub step_ns: i64,
    /// Buckets begin at the multiples of their width plus this.
    pub phase_ns: i64,
    /// Aggregates of each bucket.
    pub aggregates: Vec<Aggregate>,
    /// Rows whose texts in these columns are equal form one series; without a column all rows do.
    pub group_by: Vec<GroupColumn>,
}

impl BucketQuery {
    /// Means of all rows of a table as one series, by the multiples of the step.
    pub fn of(table: Table, metrics: Vec<MetricId>, start_ns: i64, end_ns: i64, step_ns: i64) -> Self {
        Self {
            table,
            gpus: Vec::new(),
            selector: Selector::default(),
            metrics,
            start_ns,
            end_ns,
            step_ns,
            phase_ns: 0,
            aggregates: vec![Aggregate::Mean],
            group_by: Vec::new(),
        }
    }

    /// The steps.
    ///
    /// # Errors
    /// As [`TimeSteps::new`].
    pub fn steps(&self) -> Result<TimeSteps, QueryError> {
        TimeSteps::new(self.start_ns, self.end_ns, self.step_ns, self.phase_ns)
    }

    /// Checks that the metrics are the table's.
    ///
    /// # Errors
    /// The first that is not.
    pub fn check_metrics(&self) -> Result<(), QueryError> {
        match self.metrics.iter().find(|metric| metric.metric().table != self.table) {
            None => Ok(()),
            Some(metric) => {
                Err(QueryError::UnknownMetric { column: metric.metric().column, table: self.table })
            }
        }
    }
}

/// An aggregate of the values of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Aggregate {
    /// The smallest value.
    Min,
    /// The largest value.
    Max,
    /// Mean of the values.
    Mean,
    /// The value that at least so many per cent of the values do not exceed, by nearest rank: exact where it is the smallest
    /// or the largest value, within 1 % of the value elsewhere.
    Quantile(u8),
    /// The newest value; of several that were taken at once the largest.
    Last,
    /// How many values there are.
    Count,
    /// [`Aggregate::Increase`] divided by the seconds between the two values that it is the difference of. None if the step has one
    /// value and no step before has one. Of several GPUs the sum.
    Rate,
    /// By how much a counter grew: of each GPU the last value less the last value of its previous step with a value (in the
    /// first such step: less the first value), and the value before each fall, because a counter that falls has begun
    /// anew at 0. Of several GPUs the sum.
    Increase,
    /// As [`Aggregate::Increase`], of a gauge: a fall is a fall.
    Delta,
}

impl Aggregate {
    /// The median: half of the values do not exceed it.
    pub const P50: Self = Self::Quantile(50);
    /// The 90th percentile.
    pub const P90: Self = Self::Quantile(90);
    /// The 99th percentile.
    pub const P99: Self = Self::Quantile(99);

    /// Its name: `min`, `max`, `mean`, `last`, `count`, `rate`, `increase`, `delta`, and `p0` to `p100`.
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::Quantile(percent) => return Cow::Owned(format!("p{percent}")),
            Self::Last => "last",
            Self::Count => "count",
            Self::Rate => "rate",
            Self::Increase => "increase",
            Self::Delta => "delta",
        })
    }

    /// The aggregate of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        let all = [
            Self::Min,
            Self::Max,
            Self::Mean,
            Self::Last,
            Self::Count,
            Self::Rate,
            Self::Increase,
            Self::Delta,
        ];
        let percent = || name.strip_prefix('p')?.parse().ok().filter(|percent| *percent <= 100);
        all.into_iter().find(|one| one.name() == name).or_else(|| percent().map(Self::Quantile))
    }

    /// Whether a value that is there twice changes nothing.
    pub fn is_extreme(self) -> bool {
        matches!(self, Self::Min | Self::Max | Self::Last)
    }

    /// Whether it is made of a sketch.
    pub fn needs_sketch(self) -> bool {
        matches!(self, Self::Quantile(_))
    }

    /// Whether it is made of tracks, one a GPU.
    pub fn needs_tracks(self) -> bool {
        matches!(self, Self::Rate | Self::Increase | Self::Delta)
    }
}

/// A column by which rows form series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupColumn {
    /// The key of the GPU (in a table without GPUs: the name of the node).
    Gpu,
    /// An identity column.
    Identity(IdentityColumn),
}

impl GroupColumn {
    /// Its name: `gpu`, or that of the identity column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Identity(column) => column.name(),
        }
    }

    /// The column of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        let identity = || IdentityColumn::by_name(name).map(Self::Identity);
        if name == Self::Gpu.name() { Some(Self::Gpu) } else { identity() }
    }
}

/// The texts of a group in the columns asked for; none: its rows have no text there.
pub type GroupName = Arc<[Option<Arc<str>>]>;

/// One line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct BucketSeries {
    /// The metric whose values were aggregated.
    pub metric: MetricId,
    /// How the values of a bucket became one.
    pub aggregate: Aggregate,
    /// What its rows have in common.
    pub group: GroupName,
    /// One per bucket, in the column unit; none if no value was read.
    pub values: Vec<Option<f64>>,
}
