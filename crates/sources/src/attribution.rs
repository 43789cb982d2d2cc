//! Attribution: the pod, container or batch job that holds a GPU.

mod allowed;
mod granted;
pub mod kubelet;
mod owner;
mod owners;
mod ownership;
mod process_owners;
pub mod slurm;
mod unresolved;

pub use owner::{GpuName, Owner};
pub use owners::Owners;
pub use ownership::{Asking, OwnerSources, Ownership};
pub use unresolved::Unresolved;
