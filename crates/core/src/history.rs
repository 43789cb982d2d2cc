//! What can be asked of rows that were kept, and the answers: without a word about who keeps them.
//!
//! A [`History`] is a store in a directory, a database, another gpuvitals, or several of these together. Every answer
//! is a [`Part`]: what the history knows, and what it could not read. Answers of several histories can be put together.

mod ahead;
mod as_of;
mod asked;
mod buckets;
mod by_rows;
mod changes;
mod error;
mod fleet;
mod live;
mod part;
mod query;
mod rows;
mod selector;
pub mod spelling;
mod steps;
mod sweep;
pub mod tally;
mod track;

pub use as_of::{AsOf, fleet_as_of};
pub use asked::{
    History, HistoryStats, batch_jobs, check_use, check_uses, job_steps, job_texts, use_of_history,
    use_of_rows,
};
pub use buckets::{Buckets, Cell, Measured, UnlikeBuckets};
pub use by_rows::all_holdings;
pub use changes::ChangeFeed;
pub use error::{BUCKETS_MAX, QueryError};
pub use fleet::{ExtraValue, Fleet, GpuState, LatestValue, NoGpu};
pub use live::{FleetBounds, LiveFleet};
pub use part::{Answered, Change, Changes, Part};
pub use query::{
    Aggregate, BucketQuery, BucketSeries, COUNTS_MAX, GroupColumn, GroupName, POINTS_MAX, RowPlace, Rows,
    RowsQuery,
};
pub use rows::{BucketsInParts, buckets_of_rows};
pub use selector::{
    MATCHERS_MAX, Matcher, PATTERNS_SIZE_MAX, Pattern, PatternError, PatternRoom, Selector, TextTest,
    TooManyMatchers,
};
pub use steps::TimeSteps;
pub use sweep::{SWEPT_ROWS_MAX, TakeRows};
pub use track::Track;
