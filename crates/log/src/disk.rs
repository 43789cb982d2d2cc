//! The seam to the disk, exactly as wide as the log needs, and the real one behind it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;

/// What zero-filling writes at once.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// One flat directory of files. Names are plain file names.
pub trait Disk: Send + Sync + 'static {
    /// Names of the regular files, in no order.
    ///
    /// # Errors
    /// What the system says.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens an existing file for reading and writing.
    ///
    /// # Errors
    /// What the system says; `NotFound` if there is none.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Makes an empty file; one that exists is emptied.
    ///
    /// # Errors
    /// What the system says.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file, atomically replacing one that has the new name.
    ///
    /// # Errors
    /// What the system says; then nothing has changed.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the system says; then nothing has changed.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all creations, renames and removals so far durable.
    ///
    /// # Errors
    /// What the system says; then nobody knows which are.
    fn sync_dir(&self) -> io::Result<()>;

    /// Takes steps, one after the other, beside what its callers do, until a step says `false`.
    ///
    /// # Errors
    /// If it cannot; then `step` is never called.
    fn in_background(&self, step: Step) -> io::Result<Join>;
}

/// A piece of work in the background; says whether there is more of it.
pub type Step = Box<dyn FnMut() -> bool + Send>;
/// Waits until work in the background has ended.
pub type Join = Box<dyn FnOnce() + Send>;

/// An open file of a [`Disk`].
pub trait DiskFile: Send + Sync {
    /// Length in bytes.
    ///
    /// # Errors
    /// What the system says.
    fn size(&self) -> io::Result<u64>;

    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end of the file.
    ///
    /// # Errors
    /// What the system says.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes some of `bytes` at `offset` and says how many.
    ///
    /// # Errors
    /// What the system says; then any part may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;

    /// Cuts the file, or extends it with zeros.
    ///
    /// # Errors
    /// What the system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Makes everything written so far durable, with the length.
    ///
    /// # Errors
    /// What the system says; then nobody knows what is durable, and trying again proves nothing.
    fn sync_data(&self) -> io::Result<()>;
}

/// Writes all of `bytes`, over as many calls as it takes.
pub(crate) fn write_all(file: &dyn DiskFile, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
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

/// Reads `buffer.len()` bytes at `offset`, or fewer at the end of the file, and says how many.
pub(crate) fn read_full(file: &dyn DiskFile, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
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
}

impl FsDisk {
    /// Takes a directory, and makes it (durably) if it does not exist.
    ///
    /// # Errors
    /// If it cannot be made, or is not a directory.
    pub fn open(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let directory = directory.into();
        let missing: Vec<&Path> = directory.ancestors().take_while(|path| !path.exists()).collect();
        fs::create_dir_all(&directory)?;
        for parent in missing.iter().filter_map(|path| path.parent()) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            File::open(parent)?.sync_all()?;
        }
        Ok(Self { directory })
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
        let path = self.directory.join(name);
        Ok(Box::new(OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.directory.join(from), self.directory.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.directory.join(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    fn in_background(&self, mut step: Step) -> io::Result<Join> {
        let steps = move || while step() {};
        let thread = thread::Builder::new().name("log-preparer".into()).spawn(steps)?;
        Ok(Box::new(move || {
            thread.join().ok(); // of a panic the hook has told
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
}
