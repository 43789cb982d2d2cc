//! Who holds which GPU: pod, container, batch job.

mod owners;

pub use owners::{GpuName, Owner, Owners};
