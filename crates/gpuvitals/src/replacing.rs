//! A file that the user names for what a command makes: it appears whole or not at all, and takes the place of another with `--force`
//! alone.

use std::io::{self, Write as _};
use std::path::Path;

use clap::Args;
use gpuvitals_log::Fresh;

use crate::failure::{Exit, Failure};

/// Whether a file may be there already.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Replacing {
    /// Replace a file that is there already
    #[arg(long)]
    pub force: bool,
}

impl Replacing {
    /// Refuses a file that is there, before anything is done for it.
    ///
    /// # Errors
    /// If it is there, and is not to be replaced.
    pub(crate) fn check(self, file: &Path) -> Result<(), Failure> {
        if self.force || file.symlink_metadata().is_err() {
            return Ok(());
        }
        let text = format!("{} exists; --force replaces it", file.display());
        Err(Failure::new(Exit::Data, text))
    }

    /// Creates it beside its place.
    ///
    /// # Errors
    /// As [`check`](Self::check), or the system's error.
    pub(crate) fn create(self, file: &Path) -> Result<Fresh, Failure> {
        self.check(file)?;
        // FILE.tmp may be somebody's.
        let mut beside = file.as_os_str().to_owned();
        beside.push(format!(".{}.tmp", std::process::id()));
        Fresh::create_new(file, beside.into()).map_err(|error| unwritten(file, error))
    }

    /// Writes a text to it.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub(crate) fn write(self, file: &Path, text: &str) -> Result<(), Failure> {
        let failed = |error| unwritten(file, error);
        let fresh = self.create(file)?;
        fresh.file().write_all(text.as_bytes()).map_err(failed)?;
        fresh.put().map(drop).map_err(failed)
    }
}

/// A file that cannot be written.
pub(crate) fn unwritten(file: &Path, error: io::Error) -> Failure {
    let text = format!("{}: cannot be written; name a file in a directory of yours", file.display());
    Failure::io(text, error)
}
