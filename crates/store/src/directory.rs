//! The store's directory: its lock, its layout, and files that appear whole or not at all.

use std::fs;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_log::{DirectoryLock, Fresh, LockError, make_directory, open_file, sync_directory};

use crate::error::StoreError;
use crate::grain::Grain;
use crate::step::{FileStep, FileSteps};

/// Folder of files that were set aside.
pub(crate) const QUARANTINE: &str = "quarantine";

/// A locked directory. The lock is released with it, or before.
#[derive(Debug)]
pub(crate) struct Directory {
    root: PathBuf,
    lock: Arc<DirectoryLock>,
    /// Asked before each step on one of its files.
    steps: FileSteps,
}

impl Directory {
    /// Takes (or makes) a directory.
    ///
    /// # Errors
    /// When it cannot be made or is in use.
    pub(crate) fn open(root: &Path) -> Result<Self, StoreError> {
        let lock = DirectoryLock::take(root).map_err(|error| match error {
            LockError::InUse(path) => StoreError::Locked(path),
            LockError::Io { path, source } => StoreError::io("lock", path, source),
        })?;
        for name in Grain::ALL.map(Grain::name).into_iter().chain([QUARANTINE]) {
            let path = root.join(name);
            make_directory(&path).map_err(|e| StoreError::io("create", &path, e))?;
        }
        Ok(Self { root: root.to_owned(), lock: Arc::new(lock), steps: FileSteps::default() })
    }

    /// The directory with these asked before each step on one of its files.
    pub(crate) fn with_steps(self, steps: FileSteps) -> Self {
        Self { steps, ..self }
    }

    /// Path of the directory, as the settings name it.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// What keeps other processes out.
    pub(crate) fn lock(&self) -> &Arc<DirectoryLock> {
        &self.lock
    }

    /// What is asked before each step on one of its files.
    pub(crate) fn steps(&self) -> &FileSteps {
        &self.steps
    }

    /// Directory of the log.
    pub(crate) fn wal(&self) -> PathBuf {
        self.root.join("wal")
    }

    /// Path of a file of that name in `quarantine/`.
    pub(crate) fn aside(&self, name: &str) -> PathBuf {
        aside(&self.root, name)
    }

    /// Moves a file to `quarantine/`. Its name there is the one in the directory, with `+` for `/`.
    ///
    /// # Errors
    /// The system's error, or a file of this name is there already.
    pub(crate) fn quarantine(&self, name: &str) -> io::Result<PathBuf> {
        let target = self.aside(name);
        rename_new(&self.root.join(name), &target)?;
        Ok(target)
    }

    /// Moves a file of that name back from `quarantine/`.
    ///
    /// # Errors
    /// The system's, or that a file of this name is there already.
    pub(crate) fn bring_back(&self, name: &str) -> io::Result<PathBuf> {
        let target = self.root.join(name);
        if let Some(day) = target.parent() {
            make_directory(day)?;
        }
        rename_new(&self.aside(name), &target)?;
        target.parent().map_or(Ok(()), sync_directory)?;
        Ok(target)
    }
}

/// Path of a file of that name in the `quarantine/` of a store's directory.
pub(crate) fn aside(root: &Path, name: &str) -> PathBuf {
    root.join(QUARANTINE).join(name.replace('/', "+"))
}

/// The name in the directory of a file of that name in `quarantine/`.
pub(crate) fn before_aside(name: &str) -> String {
    name.replace('+', "/")
}

/// Renames a file and never replaces another. The caller owns the directory, so nothing comes between.
fn rename_new(path: &Path, target: &Path) -> io::Result<()> {
    if target.symlink_metadata().is_ok() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} exists", target.display())));
    }
    fs::rename(path, target)
}

/// Reads a file whole.
///
/// # Errors
/// The system's error; [`io::ErrorKind::InvalidData`] if it is no regular file, which might never end.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a file whole. Its appearance is the step `last`.
///
/// # Errors
/// The system's error; unless the last sync failed, the file is unchanged.
pub(crate) fn write(path: &Path, bytes: &[u8], steps: &FileSteps, last: FileStep) -> io::Result<()> {
    let beside = path.with_extension("tmp");
    steps.take(FileStep::Create, &beside)?;
    let fresh = Fresh::create_private(path, beside)?;
    fresh.file().write_all(bytes)?;
    put(fresh, path, steps, last)
}

/// Makes a file durable and lets it appear, which is the step `last`.
///
/// # Errors
/// The system's error; unless the last sync failed, there is no such file, or the one before.
pub(crate) fn put(fresh: Fresh, path: &Path, steps: &FileSteps, last: FileStep) -> io::Result<()> {
    steps.take(FileStep::Sync, fresh.path())?;
    fresh.put_after(|| steps.take(last, path))?;
    Ok(())
}
