//! Files that are written beside their place: the one way in which a file appears whole or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::lock::{create_file, sync_directory};

/// A file under another name until it is whole and on the disk: its place has all of the old file or all of the new one, and
/// a power cut leaves it so. Dropped before, it is removed.
///
/// Segments of a log do not come by it: they are files of a [`Disk`](crate::Disk), which a test lets fail, and mostly spares
/// that were made in advance.
#[derive(Debug)]
pub struct Fresh {
    file: File,
    /// Its name until then.
    path: PathBuf,
    place: PathBuf,
    is_in_place: bool,
}

impl Fresh {
    /// Creates it empty, beside its place: under the place's name with `.tmp` behind it.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(place: &Path) -> io::Result<Self> {
        let mut path = place.as_os_str().to_owned();
        path.push(".tmp");
        let path = PathBuf::from(path);
        Ok(Self { file: File::create(&path)?, path, place: place.to_owned(), is_in_place: false })
    }

    /// Creates it empty under the path `beside`, which is in the place's directory. Only this user can read it.
    ///
    /// # Errors
    /// The system's error.
    pub fn create_private(place: &Path, beside: PathBuf) -> io::Result<Self> {
        Ok(Self { file: create_file(&beside)?, path: beside, place: place.to_owned(), is_in_place: false })
    }

    /// Creates it empty under the path `beside`, which is in the place's directory and has no file yet.
    ///
    /// # Errors
    /// The system's error.
    pub fn create_new(place: &Path, beside: PathBuf) -> io::Result<Self> {
        Ok(Self {
            file: File::create_new(&beside)?,
            path: beside,
            place: place.to_owned(),
            is_in_place: false,
        })
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
    pub fn put(self) -> io::Result<u64> {
        self.put_after(|| Ok(()))
    }

    /// The same with a step between: `step` runs when the file is durable and does not have its place yet.
    ///
    /// # Errors
    /// The system's error or that of `step`; unless the last sync failed, the place is unchanged.
    pub fn put_after(mut self, step: impl FnOnce() -> io::Result<()>) -> io::Result<u64> {
        self.file.sync_all()?;
        step()?;
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
