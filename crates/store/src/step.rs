//! The steps by which files come and go: the seam at which a test cuts the power or fills the disk.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The next operation on a file of the store (the log has its own seam, `gpuvitals_log::Disk`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileStep {
    /// Made, under a name that is not its final one.
    Create,
    /// Some bytes are written into it.
    Write,
    /// Its bytes are synced, before it gets its final name.
    Sync,
    /// Given its final name.
    Rename,
    /// A manifest is given its final name: from here on its list of files counts.
    Switch,
    /// The log's records that are now in files are about to go.
    Truncate,
    /// A file that is no longer listed is about to be removed.
    Remove,
    /// A table file is about to be opened or read.
    Read,
}

type Hook = dyn Fn(FileStep, &Path) -> io::Result<()> + Send + Sync;

/// The hook that is asked before each step; none by default.
#[derive(Clone, Default)]
pub struct FileSteps(Option<Arc<Hook>>);

impl fmt::Debug for FileSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FileSteps").field(&self.0.is_some()).finish()
    }
}

impl FileSteps {
    /// Asks the hook before each step; its error is taken for the system's.
    pub fn asking(hook: impl Fn(FileStep, &Path) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hook)))
    }

    /// Before a step.
    ///
    /// # Errors
    /// The hook's error.
    pub(crate) fn take(&self, step: FileStep, path: &Path) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |hook| hook(step, path))
    }
}
