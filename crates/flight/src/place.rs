//! The directory of the flight recorder: whether it can be used, and how long it lasts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_log::{DirectoryLock, FsDisk, make_directory};

use crate::error::FlightError;

/// Types of file systems whose files are in memory, as statfs(2) numbers them: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// A directory that belongs to this process.
#[derive(Debug)]
pub struct FlightPlace {
    lock: Arc<DirectoryLock>,
}

impl FlightPlace {
    /// Takes a directory, which is made if it does not exist.
    ///
    /// # Errors
    /// If it cannot be made or written, or belongs to another process.
    pub fn take(directory: &Path) -> Result<Self, FlightError> {
        let lock = DirectoryLock::take(directory)?;
        let incidents = incidents(directory);
        make_directory(&incidents).map_err(FlightError::io("create", &incidents))?;
        Ok(Self { lock: Arc::new(lock) })
    }

    /// The directory, as it was given.
    pub fn directory(&self) -> &Path {
        self.lock.directory()
    }

    /// Whether its files are in memory, so that they do not outlive a reboot.
    pub fn is_in_memory(&self) -> bool {
        let kind =
            rustix::fs::statfs(self.directory()).ok().and_then(|facts| u64::try_from(facts.f_type).ok());
        kind.is_some_and(|kind| IN_MEMORY.contains(&(kind & 0xffff_ffff)))
    }

    /// The disk of the ring.
    pub(crate) fn disk(&self) -> Result<FsDisk, FlightError> {
        let path = ring(self.directory());
        FsDisk::under(&self.lock, &path).map_err(FlightError::io("use", &path))
    }
}

/// Where the ring of a directory is.
pub(crate) fn ring(directory: &Path) -> PathBuf {
    directory.join("ring")
}

/// Where the incidents of a directory are.
pub(crate) fn incidents(directory: &Path) -> PathBuf {
    directory.join("incidents")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_one_processs() {
        let folder = tempfile::tempdir().unwrap();
        let place = FlightPlace::take(&folder.path().join("a/flight")).unwrap();
        assert!(matches!(FlightPlace::take(place.directory()), Err(FlightError::Lock(_))));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let refused = FlightPlace::take(&file.join("flight")).unwrap_err();
        assert!(refused.to_string().contains("file/flight"), "{refused}");
    }

    #[test]
    fn shared_memory_does_not_outlive_a_reboot() {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return };
        assert!(FlightPlace::take(folder.path()).unwrap().is_in_memory());
    }
}
