//! What batches say when looked at together: windows, integrals, summaries. Pure: time comes with the rows.

pub mod energy;
pub mod integral;
pub mod sketch;
pub mod summary;
pub mod throttle;
pub mod window;
