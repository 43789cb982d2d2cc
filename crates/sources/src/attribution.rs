//! Attribution: the pod, container or batch job that holds a GPU.

pub mod kubelet;
mod owners;
mod ownership;
pub mod slurm;
mod unresolved;

pub use owners::{GpuName, Owner, Owners};
pub use ownership::{Asking, OwnerSources, Ownership};
pub use unresolved::Unresolved;
