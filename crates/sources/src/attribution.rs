//! Who holds which GPU: pod, container, batch job.

pub mod kubelet;
mod owners;
pub mod slurm;

pub use owners::{GpuName, Owner, Owners};
