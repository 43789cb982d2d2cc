//! Rows that come from no device: recorded files, and the simulated fleet.
//!
//! [`replay::ReplaySource`] opens a file, or a directory of them, whatever it is: [`csv`] in any of its forms, or tables in
//! Parquet. [`simulated::Simulated`] makes a fleet up. Both are sources of batches, as a sampled machine is.

mod config;
pub mod csv;
pub mod replay;
mod report;
pub mod simulated;
mod timeline;
