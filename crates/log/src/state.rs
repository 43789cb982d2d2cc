//! Where a part of the program keeps its state, in the directories that the system gives.

use std::ffi::OsStr;
use std::path::PathBuf;

/// Of the directories in `STATE_DIRECTORY`, which systemd sets, the one of this name, or a new one in the first; none: the system gives none.
pub fn state_directory(given: &OsStr, name: &str) -> Option<PathBuf> {
    let paths: Vec<PathBuf> = std::env::split_paths(given).filter(|path| path.is_absolute()).collect();
    let own = paths.iter().find(|path| path.file_name() == Some(OsStr::new(name)));
    own.cloned().or_else(|| paths.first().map(|path| path.join(name)))
}
