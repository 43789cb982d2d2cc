//! The seam to the disk, exactly as wide as the log needs, and its real implementation.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use crate::lock::{DirectoryLock, Identity, create_file, displaced, make_directory, sync_directory};

/// Bytes zero-filled with one write.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Bytes that are free on the disk of a directory, for this user; none if the system does not say.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let space = rustix::fs::statvfs(path).ok()?;
    Some(space.f_bavail.saturating_mul(space.f_frsize))
}

/// One flat directory of files. Names are plain file names.
pub trait Disk: Send + Sync + 'static {
    /// Names of the regular files, unordered.
    ///
    /// # Errors
    /// The system's error.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// The system's error; `NotFound` if the file does not exist.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Creates an empty file; an existing one is emptied.
    ///
    /// # Errors
    /// The system's error.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file, atomically replacing one that has the new name.
    ///
    /// # Errors
    /// The system's error; then nothing has changed.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's error; then nothing has changed.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all creations, renames and removals so far durable.
    ///
    /// # Errors
    /// The system's error; then it is unknown which are durable.
    fn sync_dir(&self) -> io::Result<()>;

    /// Whether what is stored is still where it will be looked for.
    ///
    /// # Errors
    /// If the directory was removed, moved or replaced.
    fn check(&self) -> io::Result<()> {
        Ok(())
    }

    /// Notes that the log is durable up to this sequence, so that the next opening tells if its end is gone.
    fn note_end(&self, _sequence: u64) {}

    /// Runs `step` repeatedly in the background until it returns `false`.
    ///
    /// # Errors
    /// If it cannot; then `step` is never called.
    fn in_background(&self, step: Step) -> io::Result<Join>;
}

/// A step of background work; returns whether more is left.
pub type Step = Box<dyn FnMut() -> bool + Send>;
/// Waits until background work has ended.
pub type Join = Box<dyn FnOnce() + Send>;

/// An open file of a [`Disk`].
pub trait DiskFile: Send + Sync {
    /// Length in bytes.
    ///
    /// # Errors
    /// The system's error.
    fn size(&self) -> io::Result<u64>;

    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end of the file.
    ///
    /// # Errors
    /// The system's error.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes some of `bytes` at `offset` and returns how many.
    ///
    /// # Errors
    /// The system's error; then any part may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Cuts the file, or extends it with zeros.
    ///
    /// # Errors
    /// The system's error.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes everything written so far durable, with the length.
    ///
    /// # Errors
    /// The system's error; then it is unknown what is durable, and trying again proves nothing.
    fn sync_data(&self) -> io::Result<()>;

    /// Whether it is still in its directory, and still has its first `len` bytes.
    ///
    /// # Errors
    /// If it was removed, replaced or cut.
    fn check(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Device and inode, where the disk tells one file from another of its name.
    ///
    /// # Errors
    /// The system's error.
    fn identity(&self) -> io::Result<Option<(u64, u64)>> {
        Ok(None)
    }
}

/// Writes all of `bytes`, over as many calls as it takes.
///
/// # Errors
/// The system's error; then any part may have been written.
pub fn write_all(file: &dyn DiskFile, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(offset, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = bytes.get(count..).unwrap_or_default();
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes zeros from one offset to another.
pub(crate) fn write_zeros(file: &dyn DiskFile, mut from: u64, until: u64) -> io::Result<()> {
    while from < until {
        let len = usize::try_from(until - from).unwrap_or(ZEROS.len()).min(ZEROS.len());
        write_all(file, from, ZEROS.get(..len).unwrap_or(&ZEROS))?;
        from += len as u64;
    }
    Ok(())
}

/// Reads `buffer.len()` bytes at `offset`, or fewer at the end of the file, and returns how many.
///
/// # Errors
/// The system's error.
pub fn read_full(file: &dyn DiskFile, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(offset + filled as u64, rest) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A directory of the file system.
#[derive(Debug, Clone)]
pub struct FsDisk {
    directory: PathBuf,
    known: Identity,
    lock: Option<Arc<DirectoryLock>>,
}

impl FsDisk {
    /// Opens a directory, and creates it (durably) if it does not exist. Only this user can read what is made.
    ///
    /// # Errors
    /// If it cannot be created, or is not a directory.
    pub fn open(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let directory = directory.into();
        make_directory(&directory)?;
        let known = Identity::of(&directory)?;
        Ok(Self { directory, known, lock: None })
    }

    /// The same under a lock: what is stored counts only while the locked directory is in its place too.
    ///
    /// # Errors
    /// As [`FsDisk::open`].
    pub fn under(lock: &Arc<DirectoryLock>, directory: impl Into<PathBuf>) -> io::Result<Self> {
        Ok(Self { lock: Some(Arc::clone(lock)), ..Self::open(directory)? })
    }
}

impl Disk for FsDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.extend(entry.file_name().into_string());
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(true).open(self.directory.join(name))?))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(create_file(&self.directory.join(name))?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        sync_directory(&self.directory)
    }

    fn check(&self) -> io::Result<()> {
        self.known.check()?;
        self.lock.as_ref().map_or(Ok(()), |lock| lock.check())
    }

    fn note_end(&self, sequence: u64) {
        if let Some(lock) = &self.lock {
            lock.note_end(sequence);
        }
    }

    fn in_background(&self, mut step: Step) -> io::Result<Join> {
        let steps = move || while step() {};
        let thread = thread::Builder::new().name("log-preparer".into()).spawn(steps)?;
        Ok(Box::new(move || {
            thread.join().ok(); // the panic hook has reported a panic
        }))
    }
}

impl DiskFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        File::set_len(self, len)
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn check(&self, len: u64) -> io::Result<()> {
        let found = self.metadata()?;
        if found.nlink() == 0 {
            return Err(displaced("its file"));
        }
        if found.len() < len {
            return Err(displaced(&format!("its file, which has {} of {len} bytes,", found.len())));
        }
        Ok(())
    }

    fn identity(&self) -> io::Result<Option<(u64, u64)>> {
        let found = self.metadata()?;
        Ok(Some((found.dev(), found.ino())))
    }
}
