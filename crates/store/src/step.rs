//! The steps by which files come and go: the seam at which a test cuts the power or fills the disk.

use std::io;
use std::path::Path;
use std::sync::Arc;

/// What is about to be done to a file of the store (the log has its own seam, `gpuvitals_log::Disk`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Made and written, under a name that is not its final one or that nothing names yet.
    Create,
    /// Synced.
    Sync,
    /// Given its final name.
    Rename,
    /// A manifest is given its final name: from here on its list of files counts.
    Switch,
    /// The log's records that are now in files are about to go.
    Truncate,
    /// A file that is no longer listed is about to be removed.
    Remove,
}

/// Asked before each step; an error is taken for the system's.
pub type StepHook = dyn Fn(Step, &Path) -> io::Result<()> + Send + Sync;

/// The hook, if there is one.
#[derive(Clone, Default)]
pub(crate) struct Steps(Option<Arc<StepHook>>);

impl std::fmt::Debug for Steps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Steps").field(&self.0.is_some()).finish()
    }
}

impl Steps {
    pub(crate) fn new(hook: Option<Arc<StepHook>>) -> Self {
        Self(hook)
    }

    /// About to take a step.
    ///
    /// # Errors
    /// What the hook says.
    pub(crate) fn take(&self, step: Step, path: &Path) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |hook| hook(step, path))
    }
}
