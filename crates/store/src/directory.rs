//! The store's directory: who owns it, what lies where, and files that appear whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::StoreError;
use crate::step::{Step, Steps};

/// Version of the layout.
const FORMAT: &str = "gpuvitals-store 1\n";

/// An owned directory. The lock goes with it, or before.
#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    lock: File,
}

impl Directory {
    /// Takes (or makes) a directory.
    ///
    /// # Errors
    /// When it cannot be made, is in use, or has another format.
    pub(crate) fn open(root: &Path) -> Result<Self, StoreError> {
        make(root).map_err(|e| StoreError::io("creating", root, e))?;
        let path = root.join("LOCK");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| StoreError::io("opening", &path, e))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(StoreError::Locked(root.to_owned())),
            Err(errno) => return Err(StoreError::io("locking", &path, errno.into())),
        }
        let directory = Self { root: root.to_owned(), lock };
        directory.check_format()?;
        for name in ["raw", "quarantine"] {
            let path = root.join(name);
            fs::create_dir_all(&path).map_err(|e| StoreError::io("creating", &path, e))?;
        }
        sync_dir(root).map_err(|e| StoreError::io("syncing", root, e))?;
        Ok(directory)
    }

    fn check_format(&self) -> Result<(), StoreError> {
        let path = self.root.join("FORMAT");
        match fs::read_to_string(&path) {
            Ok(found) if found == FORMAT => Ok(()),
            Ok(found) => {
                Err(StoreError::Format { path, found: found.trim().to_owned(), known: FORMAT.trim() })
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if self.root.join("CURRENT").exists() {
                    return Err(StoreError::Format { path, found: String::new(), known: FORMAT.trim() });
                }
                replace(&path, FORMAT.as_bytes()).map_err(|e| StoreError::io("writing", &path, e))
            }
            Err(e) => Err(StoreError::io("reading", &path, e)),
        }
    }

    /// The directory itself.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Lets the next one in.
    pub(crate) fn release(&self) {
        // What fails here is undone when the file is closed.
        let _released = flock(&self.lock, FlockOperation::Unlock);
    }

    /// Where the log lies.
    pub(crate) fn wal(&self) -> PathBuf {
        self.root.join("wal")
    }

    /// Moves a file aside, keeping its name.
    ///
    /// # Errors
    /// What the system says.
    pub(crate) fn quarantine(&self, path: &Path) -> io::Result<PathBuf> {
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        let flat = relative.to_string_lossy().replace('/', "_");
        let target = self.root.join("quarantine").join(flat);
        fs::rename(path, &target)?;
        Ok(target)
    }
}

/// Makes a directory that is not there, durably, with those it lies in.
fn make(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.exists()).collect();
    fs::create_dir_all(path)?;
    for parent in missing.iter().filter_map(|path| path.parent()) {
        sync_dir(if parent.as_os_str().is_empty() { Path::new(".") } else { parent })?;
    }
    Ok(())
}

/// Makes entries of a directory durable.
///
/// # Errors
/// What the system says.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Writes a file whole: under another name, synced, renamed, the directory synced.
///
/// # Errors
/// What the system says; then the file is what it was.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("tmp");
    let written = (|| {
        let mut file = File::create(&fresh)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, path)
    })();
    if written.is_err() {
        let _removed = fs::remove_file(&fresh);
    }
    written?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Writes a new file that nothing names yet, and syncs it and its directory.
///
/// # Errors
/// What the system says; then there is no such file.
pub(crate) fn create(path: &Path, bytes: &[u8], steps: &Steps) -> io::Result<()> {
    let written = (|| {
        steps.take(Step::Create, path)?;
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        steps.take(Step::Sync, path)?;
        file.sync_all()
    })();
    if written.is_err() {
        let _removed = fs::remove_file(path);
    }
    written?;
    path.parent().map_or(Ok(()), sync_dir)
}
