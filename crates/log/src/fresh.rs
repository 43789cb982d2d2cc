//! Files that are written beside their place.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::lock::sync_directory;

/// A file under another name until it is whole and on the disk: its place has all of the old file or all of the new one.
/// Dropped before, it is removed.
#[derive(Debug)]
pub struct Fresh {
    file: File,
    /// The place's name with `.tmp` behind it.
    path: PathBuf,
    place: PathBuf,
    is_in_place: bool,
}

impl Fresh {
    /// Creates it empty, beside its place.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(place: &Path) -> io::Result<Self> {
        let mut path = place.as_os_str().to_owned();
        path.push(".tmp");
        let path = PathBuf::from(path);
        Ok(Self { file: File::create(&path)?, path, place: place.to_owned(), is_in_place: false })
    }

    /// The file, to be written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its path until it has its place.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it durable, gives it its place, and makes that durable. Answers its length in bytes.
    ///
    /// # Errors
    /// The system's error; unless the last sync failed, the place is unchanged.
    pub fn put(mut self) -> io::Result<u64> {
        self.file.sync_all()?;
        let len = self.file.metadata()?.len();
        fs::rename(&self.path, &self.place)?;
        self.is_in_place = true;
        self.place.parent().map_or(Ok(()), sync_directory)?;
        Ok(len)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.is_in_place {
            // What cannot be removed is overwritten by the next one.
            let _removed = fs::remove_file(&self.path);
        }
    }
}
