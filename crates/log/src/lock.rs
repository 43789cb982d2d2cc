//! A directory that one process owns: its lock, what tells it from another one of that name, and how far its log goes.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The file that the owner of a directory holds.
const LOCK: &str = "LOCK";
/// Permissions of directories and files that are made: nobody else reads what they hold.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Follows the name of a directory or file that is not the one that was opened, or not whole any more. Nothing that is
/// stored from then on would be found again.
pub const DISPLACED: &str = "was removed, moved or replaced while it was open";

/// The error for a pipe, a directory or a device where a file is expected.
const NO_FILE: &str = "it is no regular file";

/// Why a directory cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// It cannot be made or used.
    #[error("use {}", path.display())]
    Io {
        /// The directory, or a file in it.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// A directory that this process owns until this is dropped.
#[derive(Debug)]
pub struct DirectoryLock {
    directory: PathBuf,
    file: File,
    known: [Identity; 2],
}

impl DirectoryLock {
    /// Takes a directory, which is made if it does not exist.
    ///
    /// # Errors
    /// If it cannot be made or used, or another process has it.
    pub fn take(directory: &Path) -> Result<Self, LockError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| LockError::Io { path, source }
        };
        make_directory(directory).map_err(failed(directory))?;
        let path = directory.join(LOCK);
        let file = private().create(true).truncate(false).read(true).write(true).open(&path);
        let file = file.map_err(failed(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LockError::InUse(directory.to_owned())),
            Err(TryLockError::Error(source)) => return Err(failed(&path)(source)),
        }
        let known = Identity::of(directory).and_then(|root| Ok([root, Identity::of(&path)?]));
        let known = known.map_err(failed(directory))?;
        Ok(Self { directory: directory.to_owned(), file, known })
    }

    /// Path of the directory that is locked, as it was given.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Lets the next owner in before this is dropped.
    pub fn release(&self) {
        // Closing the file undoes a failure here.
        let _released = self.file.unlock();
    }

    /// Whether the directory and its lock are still those that were taken.
    ///
    /// # Errors
    /// With [`DISPLACED`] in its text: one of them was removed, moved or replaced.
    pub fn check(&self) -> io::Result<()> {
        self.known.iter().try_for_each(Identity::check)
    }

    /// Notes in the lock's file that the log is durable up to this sequence. The note is not synced: after a power cut it
    /// may be an earlier one. A failure leaves the one before.
    pub(crate) fn note_end(&self, sequence: u64) {
        let text = format!("{sequence:020}\n");
        let _unnoted = self.file.write_all_at(text.as_bytes(), 0);
    }

    /// The sequence that was noted last, in this life or an earlier one. 0: none.
    pub fn noted_end(&self) -> u64 {
        let mut text = [0; 20];
        let read = self.file.read_exact_at(&mut text, 0);
        let text = read.ok().and_then(|()| std::str::from_utf8(&text).ok());
        text.and_then(|text| text.parse().ok()).unwrap_or_default()
    }
}

/// A file or directory by what it is, and the name it was opened by.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Identity {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        // A directory above that is moved takes a relative path with it.
        Ok(Self { path: std::path::absolute(path)?, device: found.dev(), inode: found.ino() })
    }

    pub(crate) fn check(&self) -> io::Result<()> {
        let is_displaced = match fs::metadata(&self.path) {
            Ok(found) => (found.dev(), found.ino()) != (self.device, self.inode),
            Err(error) => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        };
        if !is_displaced {
            return Ok(());
        }
        Err(displaced(&self.path.display().to_string()))
    }
}

/// The error for what is not what was opened.
pub(crate) fn displaced(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{what} {DISPLACED}"))
}

/// Creates a missing directory, durably, with its parents. Only this user can enter what is made.
///
/// # Errors
/// The system's error.
pub fn make_directory(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.exists()).collect();
    fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)?;
    for parent in missing.iter().filter_map(|path| path.parent()) {
        sync_directory(parent)?;
    }
    Ok(())
}

/// Makes durable which files a directory holds, and under which names. An empty path is the current directory, as in the
/// parent of a bare name.
///
/// # Errors
/// The system's error.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path)?.sync_all()
}

/// Creates an empty file that only this user can read; an existing one is emptied.
///
/// # Errors
/// The system's error.
pub fn create_file(path: &Path) -> io::Result<File> {
    private().read(true).write(true).create(true).truncate(true).open(path)
}

/// Opens a regular file for reading. It never waits, as the opening of a pipe without a writer does.
///
/// # Errors
/// The system's error; [`io::ErrorKind::InvalidData`] if it is a pipe, a directory or a device.
pub fn open_file(path: &Path) -> io::Result<File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, NO_FILE));
    }
    Ok(file)
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}
