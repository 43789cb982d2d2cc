//! Attribution: the pod, container or batch job that holds a GPU.

pub mod kubelet;
mod owners;
mod ownership;
pub mod slurm;

pub use owners::{GpuName, Owner, Owners};
pub use ownership::{Asking, OwnerSources, Ownership, Unresolved};
