//! Open files with parsed footers.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use foldhash::fast::RandomState;

use crate::file::{self, FileError, TableFile};
use crate::manifest::FileEntry;

/// Most files kept open: a quarter of the usual limit on file handles. Beyond it the least recently used is
/// closed.
pub(crate) const OPEN_FILES_MAX: usize = 256;

/// An open file, its verified row groups, and the places of GPUs in row groups that were queried for some.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) table: TableFile,
    groups: Vec<Group>,
}

#[derive(Debug, Default)]
struct Group {
    verified: AtomicBool,
    index: OnceLock<GpuIndex>,
}

/// Rows of each GPU in a row group, by key.
pub(crate) type GpuIndex = Vec<(Arc<str>, Range<usize>)>;

impl OpenFile {
    /// Checks a row group's bytes unless that has been done.
    ///
    /// # Errors
    /// As [`TableFile::verify`].
    pub(crate) fn verify(&self, row_group: usize) -> Result<(), FileError> {
        let group = self.groups.get(row_group);
        if group.is_some_and(|group| group.verified.load(Ordering::Acquire)) {
            return Ok(());
        }
        self.table.verify(row_group)?;
        if let Some(group) = group {
            group.verified.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Places of GPUs in a row group, if known.
    pub(crate) fn index(&self, row_group: usize) -> Option<&GpuIndex> {
        self.groups.get(row_group)?.index.get()
    }

    /// Remembers the places of GPUs in a row group.
    pub(crate) fn set_index(&self, row_group: usize, index: GpuIndex) -> Option<&GpuIndex> {
        self.groups.get(row_group).map(|group| group.index.get_or_init(|| index))
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
    /// The open file of an entry. Files are opened outside the lock: two queries may open one at the same time. With
    /// `brief` it takes no file handle between reads and is not kept: for a query of more files than may be open.
    ///
    /// # Errors
    /// As [`file::open`].
    pub(crate) fn open(&self, entry: &Arc<FileEntry>, brief: bool) -> Result<Arc<OpenFile>, FileError> {
        if let Some(file) = self.kept(entry) {
            return Ok(file);
        }
        let mut table = file::open(entry)?;
        let groups = table.row_groups.iter().map(|_| Group::default()).collect();
        if brief {
            table.let_go();
            return Ok(Arc::new(OpenFile { table, groups }));
        }
        let file = Arc::new(OpenFile { table, groups });
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
        // A rewritten file of the same name is another file.
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
