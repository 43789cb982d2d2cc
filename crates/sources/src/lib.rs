//! Sources of rows: the GPUs and the host of this machine, recorded files (CSV and Parquet), the simulated fleet.
//!
//! [`registry::discover`] finds a [`machine::Machine`]'s devices as [`probe::Probe`]s; [`sampler::Sampler`]
//! reads them, each on its own thread, into batches.

pub mod attribution;
pub mod csv;
pub mod dialect;
mod discovery;
mod driver;
mod finding;
pub mod machine;
pub mod probe;
pub mod processes;
pub mod registry;
pub mod replay;
pub mod sampler;
pub mod settings;
pub mod simulated;
pub mod versions;
