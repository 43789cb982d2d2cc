//! Open files with parsed footers.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use foldhash::fast::RandomState;

use crate::file::{self, FileError, TableFile};
use crate::manifest::FileEntry;

/// Most files kept open: a quarter of the usual limit on file handles. Beyond it the one not used for longest goes.
const OPEN_FILES_MAX: usize = 256;

/// An open file and which of its row groups have been checked.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) table: TableFile,
    verified: Vec<AtomicBool>,
}

impl OpenFile {
    /// Checks a row group's bytes unless that has been done.
    ///
    /// # Errors
    /// As [`TableFile::verify`].
    pub(crate) fn verify(&self, row_group: usize) -> Result<(), FileError> {
        let verified = self.verified.get(row_group);
        if verified.is_some_and(|verified| verified.load(Ordering::Acquire)) {
            return Ok(());
        }
        self.table.verify(row_group)?;
        if let Some(verified) = verified {
            verified.store(true, Ordering::Release);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Kept {
    entry: Weak<FileEntry>,
    file: Arc<OpenFile>,
    used: u64,
}

#[derive(Debug, Default)]
struct Inner {
    files: HashMap<PathBuf, Kept, RandomState>,
    clock: u64,
}

/// The files kept open.
#[derive(Debug, Default)]
pub(crate) struct Files {
    inner: Mutex<Inner>,
}

impl Files {
    /// The open file of an entry. Files are opened outside the lock: two queries may open one at the same time.
    ///
    /// # Errors
    /// As [`file::open`].
    pub(crate) fn open(&self, entry: &Arc<FileEntry>) -> Result<Arc<OpenFile>, FileError> {
        if let Some(file) = self.kept(entry) {
            return Ok(file);
        }
        let table = file::open(entry)?;
        let verified = table.row_groups.iter().map(|_| AtomicBool::new(false)).collect();
        let file = Arc::new(OpenFile { table, verified });
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.files.len() >= OPEN_FILES_MAX {
            let oldest = inner.files.iter().min_by_key(|(_, kept)| kept.used).map(|(path, _)| path.clone());
            oldest.and_then(|path| inner.files.remove(&path));
        }
        inner.clock += 1;
        let kept = Kept { entry: Arc::downgrade(entry), file: Arc::clone(&file), used: inner.clock };
        inner.files.insert(entry.path.clone(), kept);
        Ok(file)
    }

    fn kept(&self, entry: &Arc<FileEntry>) -> Option<Arc<OpenFile>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clock += 1;
        let clock = inner.clock;
        let kept = inner.files.get_mut(&entry.path)?;
        // A file of the same name that was written anew is another file.
        if !std::ptr::eq(kept.entry.as_ptr(), Arc::as_ptr(entry)) {
            return None;
        }
        kept.used = clock;
        Some(Arc::clone(&kept.file))
    }

    /// Lets go of files no snapshot names.
    pub(crate) fn release(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.files.retain(|_, kept| kept.entry.strong_count() > 0);
    }
}
