//! Analysis over batches: windows, integrals, summaries, conditions. Pure: time comes with the rows.

pub mod condition;
pub mod energy;
pub mod integral;
pub mod summary;
pub mod throttle;
pub mod window;
