//! The use of GPUs by their holders: energy, and time held, busy, idle and throttled. One rule, wherever they appear.
//!
//! Between two rows of a GPU that are no gap apart ([`Pace`](crate::integral::Pace), with a look at the rows behind), energy is that of [`crate::energy`], and the state of the earlier
//! row lasts until the later one. Energy and time between two rows belong to the holder of the earlier one, so the holders
//! of a GPU add up to the GPU. Over a gap nothing is known and nothing is added; an energy counter counts on. A use goes from the first row to the last: a single row has none.
//!
//! A [`Stay`] is some rows of one GPU and holder, side by side. It has the sums over them and the values at both ends, so
//! neighbours join exactly: a rollup has one a row, and a fold adds up rows and rollups alike.
//!
//! A [`Ledger`] adds up where the samples are, before anything is thinned out or lost, and gives the sums of each hour as rows.

mod batch_jobs;
mod fold;
mod holders;
mod holdings;
mod job_steps;
mod job_texts;
mod ledger;
mod paced;
mod rows;
mod spans;
mod stay;

pub use batch_jobs::{BatchJob, BatchJobs, kept_labels};
pub use fold::HolderUse;
pub use holders::{GpuUse, HOLDER_COLUMNS, Holder, ToldApart, USES_MAX, Usage, UseDetail, UseQuery, join};
pub use holdings::{
    DayRows, HOLDING_GROUPS, HOLDINGS_MAX, HOLDINGS_TRAIL_NS, Holding, HoldingGroup, HoldingSums, Holdings,
    HoldingsAnswer, HoldingsQuery, RankedGroup,
};
pub use job_steps::{JobSteps, StepOnHost};
pub use job_texts::{JobText, JobTexts, job_of};
pub use ledger::{Ledger, NOBODY, ProcessOwner, RUN_HOLDER, Sharing, UNOBSERVED, holder_name, hour_of};
pub use paced::StayFold;
pub use rows::{RowsOfUse, UseColumns, use_columns};
pub(crate) use spans::is_seen;
pub use spans::{CountedSpan, CounterSpan, PowerSpan, SeenPower};
pub use stay::{IDLE_BELOW_PCT, Stay};

#[cfg(test)]
mod tests;
