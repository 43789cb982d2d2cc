//! Who shares a GPU, and what the holders are called that are nobody.

use std::fmt;
use std::sync::Arc;

use crate::Identity;

/// The holder of the time in which nobody has the GPU.
pub const NOBODY: &str = "nobody";
/// The holder of the time without rows.
pub const UNOBSERVED: &str = "unobserved";

/// What a job is called that is a recording, and what its holder begins with.
pub const RUN_HOLDER: &str = "run:";

/// Knows who shares a GPU.
pub trait Sharing: fmt::Debug + Send + Sync {
    /// The identity once for each pod and container that holds it, in the order of their names, if it has several: those that
    /// share it in slices of time.
    fn sharers(&self, identity: &Arc<Identity>) -> Vec<Arc<Identity>>;

    /// The part of the GPU that this holder was given: above 0, and 1 for all of it. None: nobody divides the GPU so, or it is not known. It
    /// is asked under a lock, so it waits for no file.
    fn granted(&self, _identity: &Identity) -> Option<f64> {
        None
    }

    /// Whom a listed process of this node works for; none if that is not known. It is asked under a lock, so it waits for no file.
    fn owner_of(&self, _pid: u32) -> Option<ProcessOwner> {
        None
    }
}

/// Whom a process works for.
#[derive(Debug, Clone, PartialEq)]
pub enum ProcessOwner {
    /// A pod's container or a job, in the columns that name a holder.
    Holder(Arc<Identity>),
    /// A user, on a machine where nobody gives GPUs out.
    User(String),
}
