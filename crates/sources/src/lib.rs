//! The GPUs of a machine with their host: found, read by the dialects of their drivers, sampled, attributed.
//!
//! [`registry::discover`] finds a [`machine::Machine`]'s devices as [`probe::Probe`]s; [`sampler::Sampler`]
//! reads them, each on its own thread, into batches.

pub mod attribution;
pub mod dialect;
mod discovery;
mod driver;
mod finding;
pub mod kernel;
pub mod machine;
pub mod probe;
pub mod processes;
pub mod registry;
pub mod sampler;
pub mod settings;
pub mod versions;
pub mod visible;
