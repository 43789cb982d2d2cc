//! Reading a log that another process may have open, without changing it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, Join, Step};
use crate::error::LogError;
use crate::format::base_in_name;
use crate::lock::open_file;
use crate::recovery::{self, Recovery};

/// The records that a log has now. Its writer, if there is one, goes on: records that are appended later are not among
/// them, and a segment that it removes meanwhile is an error.
///
/// # Errors
/// If the directory or a file cannot be read.
pub fn read_beside(directory: &Path) -> Result<Recovery, LogError> {
    read_beside_from(directory, 0)
}

/// The same without the segments before the one of this base ([`Place::segment`](crate::Place::segment)): who has read those
/// looks for what came since.
///
/// # Errors
/// As [`read_beside`].
pub fn read_beside_from(directory: &Path, base: u64) -> Result<Recovery, LogError> {
    let disk: Arc<dyn Disk> = Arc::new(ReadOnly { directory: directory.to_owned(), base });
    Ok(recovery::recover(&disk)?.1)
}

/// A directory whose files are only read. Recovery makes sure that it leaves a durable log, which is the writer's task:
/// nothing of that is done here. Files under construction stay, and the end of
/// the last segment is neither written again nor trimmed.
struct ReadOnly {
    directory: PathBuf,
    /// Segments before this one are not there.
    base: u64,
}

impl Disk for ReadOnly {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                names.extend(entry.file_name().into_string());
            }
        }
        names.retain(|name| base_in_name(name).is_none_or(|base| base >= self.base));
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(ReadOnlyFile(open_file(&self.directory.join(name))?)))
    }

    fn create(&self, _: &str) -> io::Result<Box<dyn DiskFile>> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(())
    }

    fn in_background(&self, _: Step) -> io::Result<Join> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

struct ReadOnlyFile(File);

impl DiskFile for ReadOnlyFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(&self.0, buffer, offset)
    }

    fn write_at(&self, _: u64, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}
