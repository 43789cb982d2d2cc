//! What can be asked of rows that were kept, and the answers: without a word about who keeps them.
//!
//! A [`History`] is a store in a directory, a database, another gpuvitals, or several of these together. Every answer
//! is a [`Part`]: what the history knows, and what it could not read. Answers of several histories can be put together.

mod ahead;
mod buckets;
mod changes;
mod fleet;
mod live;
mod query;
mod rows;
mod selector;
pub mod spelling;
pub mod tally;
mod track;

use std::fmt;
use std::sync::Arc;

pub use buckets::{Buckets, Cell, Measured, TimeSteps, UnlikeBuckets};
pub use changes::ChangeFeed;
pub use fleet::{ExtraValue, Fleet, GpuState, LatestValue, NoGpu};
pub use live::{FleetBounds, LiveFleet};
pub use query::{
    Aggregate, BUCKETS_MAX, BucketQuery, BucketSeries, COUNTS_MAX, GroupColumn, GroupName, POINTS_MAX,
    QueryError, RowPlace, Rows, RowsQuery,
};
pub(crate) use rows::each_page;
pub use rows::{BucketsInParts, buckets_of_rows};
pub use selector::{
    MATCHERS_MAX, Matcher, PATTERNS_SIZE_MAX, Pattern, PatternError, PatternRoom, Selector, TextTest,
    TooManyMatchers,
};
pub use track::Track;

use crate::ports::Answer;
use crate::usage::{GpuUse, UseQuery, use_of_history};
use crate::{Batch, Health};

/// An answer, and what is not in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Part<T> {
    /// Everything that could be read.
    pub answer: T,
    /// What could not be read, in words; empty: the answer is whole.
    pub missing: Vec<String>,
}

impl<T> Part<T> {
    /// An answer that lacks nothing.
    pub fn whole(answer: T) -> Self {
        Self { answer, missing: Vec::new() }
    }
}

/// The outcome of a question.
pub type Answered<'a, T> = Answer<'a, Result<Part<T>, QueryError>>;

/// Kept rows, to be asked. Answers take no thread of the caller's runtime, and every history bounds how many it works on
/// at a time. Dropping an answer before it is there ends the work on it soon.
pub trait History: Send + Sync + fmt::Debug {
    /// Changes with every visible change: the same question has the same answer until then.
    fn version(&self) -> u64;

    /// Latest state of all GPUs.
    fn fleet(&self) -> Answered<'_, Arc<Fleet>>;

    /// Rows of a range of time, a page at a time.
    fn rows(&self, query: RowsQuery) -> Answered<'_, Rows>;

    /// Values by steps of time.
    fn buckets(&self, query: BucketQuery) -> Answered<'_, Buckets>;

    /// The use of each GPU by each of its holders, by GPU and holder. A history that keeps no sums adds up rows.
    fn usage(&self, query: UseQuery) -> Answered<'_, Vec<GpuUse>> {
        Box::pin(use_of_history(self, query))
    }

    /// Rows as they become visible, from now on.
    fn changes(&self) -> Box<dyn Changes>;

    /// How it does.
    fn health(&self) -> Health;

    /// Counts and sizes.
    fn stats(&self) -> HistoryStats;
}

/// Counts and sizes of a history.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistoryStats {
    /// Rows on a disk, if it counts them.
    pub rows_on_disk: Option<u64>,
    /// Rows in memory, if it counts them; some may be on a disk as well.
    pub rows_in_memory: Option<u64>,
    /// Everything that it counts, under names of its own: a JSON object.
    pub own: serde_json::Value,
}

/// Rows as they become visible.
pub trait Changes: Send {
    /// The next change; none when the history has ended. Dropping the answer before it is there loses nothing.
    fn next(&mut self) -> Answer<'_, Option<Change>>;
}

/// A change of what is visible.
#[derive(Debug, Clone)]
pub enum Change {
    /// Rows that became visible together.
    Rows(Arc<[Batch]>),
    /// This many changes were lost because the reader was too slow.
    Missed(u64),
}
