//! The machine under the store, and its replacement in tests.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use gpuvitals_log::{Disk, FsDisk, Log, LogConfig, LogError, Recovery};

use crate::step::{StepHook, Steps};

type Opener = dyn Fn(LogConfig) -> Result<(Log, Recovery), LogError> + Send + Sync;

/// The disk under the log, and the hook before each step on table files and manifests.
#[derive(Clone)]
pub struct Machine {
    log: Arc<Opener>,
    hook: Option<Arc<StepHook>>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("hook", &self.hook.is_some()).finish_non_exhaustive()
    }
}

impl Machine {
    /// The log in a directory of the file system.
    pub fn new(wal: PathBuf) -> Self {
        let log = move |config| {
            let disk = FsDisk::open(&wal).map_err(|source| LogError::Read {
                action: "open",
                file: wal.display().to_string(),
                source: Arc::new(source),
            })?;
            Log::open(disk, config)
        };
        Self { log: Arc::new(log), hook: None }
    }

    /// The log on another disk; its clones are the same disk.
    pub fn on_disk(disk: impl Disk + Clone) -> Self {
        Self { log: Arc::new(move |config| Log::open(disk.clone(), config)), hook: None }
    }

    /// Asks before each step on a table file or manifest.
    pub fn before_steps(mut self, hook: Arc<StepHook>) -> Self {
        self.hook = Some(hook);
        self
    }

    pub(crate) fn open_log(&self, config: LogConfig) -> Result<(Log, Recovery), LogError> {
        (self.log)(config)
    }

    pub(crate) fn steps(&self) -> Steps {
        Steps::new(self.hook.clone())
    }
}
