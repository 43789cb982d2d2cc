//! A file that the user names for what a command makes: it appears whole or not at all, and takes the place of another with `--force`
//! alone.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use gpuvitals_log::Fresh;

use crate::failure::{Exit, Failure};

/// Names beside a file that are tried: where processes have few numbers, as in containers, one that was killed had this one's.
const NAMES_MAX: u32 = 16;

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
    /// If it is there and is not to be replaced, or is a folder, a device or a pipe.
    pub(crate) fn check(self, file: &Path) -> Result<(), Failure> {
        if file.metadata().is_ok_and(|there| !there.is_file()) {
            let text = format!(
                "{}: it is no regular file, and nothing takes its place; name another",
                file.display()
            );
            return Err(Failure::new(Exit::Data, text));
        }
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
        let is_taken = |created: &io::Result<Fresh>| {
            created.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
        };
        let mut created = (0..NAMES_MAX).map(|number| Fresh::create_new(file, beside(file, number)));
        let created = created.find(|created| !is_taken(created));
        let created = created.unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()));
        created.map_err(|error| unwritten(file, error))
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

/// What a file is called until it has its place: FILE.tmp may be somebody's.
fn beside(file: &Path, number: u32) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    let more = if number == 0 { String::new() } else { format!("-{number}") };
    name.push(format!(".{}{more}.tmp", std::process::id()));
    name.into()
}

/// A file that cannot be written.
pub(crate) fn unwritten(file: &Path, error: io::Error) -> Failure {
    let text = format!("{}: cannot be written; name a file in a directory of yours", file.display());
    Failure::io(text, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_of_this_number_has_left_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let (file, left) = (folder.path().join("run.html"), beside(&folder.path().join("run.html"), 0));
        std::fs::write(&left, "left").unwrap();
        Replacing { force: false }.write(&file, "whole").unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!((read(&file), read(&left)), ("whole".to_owned(), "left".to_owned()));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    }

    #[test]
    fn nothing_takes_the_place_of_a_folder_or_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        for place in [folder.path(), Path::new("/dev/null"), &link] {
            let refused = Replacing { force: true }.write(place, "text").unwrap_err().to_string();
            assert!(refused.contains("no regular file"), "{refused}");
        }
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
