//! Open files with parsed footers.

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use foldhash::fast::RandomState;

use crate::file::{self, BLOCK_BYTES, FileError, TableFile};
use crate::manifest::FileEntry;
use crate::step::FileSteps;

/// Most handles of files that a store keeps: a quarter of the usual limit. Beyond it the least recently used is closed, and opened
/// again for each reading.
const HANDLES_MAX: usize = 256;
/// The same of a view, whose files the writer may remove.
const HANDLES_OF_A_VIEW: usize = 1 << 14;
/// Bytes of footers that are kept parsed, as they are in the files; parsed they take some times as much.
const FOOTER_BYTES_MAX: u64 = 16 << 20;

/// An open file, its verified blocks, and the places of GPUs in row groups that were queried for some.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) table: TableFile,
    verified: Vec<AtomicBool>,
    indices: Vec<OnceLock<GpuIndex>>,
    /// The damage that a reading has found: errors of Parquet are only words.
    damage: OnceLock<FileError>,
}

/// Rows of each GPU in a row group, by key.
pub(crate) type GpuIndex = Vec<(Arc<str>, Range<usize>)>;

impl OpenFile {
    fn new(table: TableFile) -> Self {
        let verified = (0..table.blocks()).map(|_| AtomicBool::new(false)).collect();
        let indices = table.row_groups.iter().map(|_| OnceLock::new()).collect();
        Self { table, verified, indices, damage: OnceLock::new() }
    }

    /// Bytes before the footer. Blocks that were not read before are checked.
    ///
    /// # Errors
    /// As [`TableFile::checked`].
    pub(crate) fn read(&self, bytes: Range<u64>) -> Result<Bytes, FileError> {
        let block = |offset: u64| usize::try_from(offset / BLOCK_BYTES).unwrap_or(usize::MAX);
        let blocks = self.verified.get(block(bytes.start)..=block(bytes.end.saturating_sub(1)));
        let len = usize::try_from(bytes.end.saturating_sub(bytes.start)).unwrap_or(usize::MAX);
        if blocks.is_some_and(|blocks| blocks.iter().all(|block| block.load(Ordering::Acquire))) {
            let mut buffer = vec![0; len];
            let file = self.table.handle().map_err(|source| self.table.io("open", source))?;
            let read = std::os::unix::fs::FileExt::read_exact_at(&*file, &mut buffer, bytes.start);
            read.map_err(|source| self.table.io("read", source))?;
            return Ok(buffer.into());
        }
        let (first, buffer) = self.table.checked(bytes.clone())?;
        blocks.unwrap_or_default().iter().for_each(|block| block.store(true, Ordering::Release));
        let from = usize::try_from(bytes.start).unwrap_or(usize::MAX)
            - first * usize::try_from(BLOCK_BYTES).unwrap_or(1);
        Ok(Bytes::from(buffer).slice(from..from + len))
    }

    /// Remembers an error that is damage: nothing is read of the file any more.
    pub(crate) fn note(&self, error: FileError) {
        if error.is_damage() {
            // The first damage stays.
            let _is_first = self.damage.set(error);
        }
    }

    /// The damage that a reading has found.
    pub(crate) fn damage(&self) -> Option<&FileError> {
        self.damage.get()
    }

    /// Places of GPUs in a row group, if known.
    pub(crate) fn index(&self, row_group: usize) -> Option<&GpuIndex> {
        self.indices.get(row_group)?.get()
    }

    /// Remembers the places of GPUs in a row group.
    pub(crate) fn set_index(&self, row_group: usize, index: GpuIndex) -> Option<&GpuIndex> {
        self.indices.get(row_group).map(|place| place.get_or_init(|| index))
    }
}

#[derive(Debug)]
struct KeptFile {
    entry: Weak<FileEntry>,
    file: Arc<OpenFile>,
    footer_bytes: u64,
    used: u64,
}

impl KeptFile {
    /// A rewritten file of the same name is another file.
    fn is_of(&self, entry: &Arc<FileEntry>) -> bool {
        std::ptr::eq(self.entry.as_ptr(), Arc::as_ptr(entry))
    }
}

#[derive(Debug, Default)]
struct FilesInner {
    files: HashMap<PathBuf, KeptFile, RandomState>,
    clock: u64,
}

impl FilesInner {
    /// Lets go of the least recently used files and handles until there are no more than may be.
    fn keep_within(&mut self, handles_max: usize, footer_bytes_max: u64) {
        let mut footers: u64 = self.files.values().map(|kept| kept.footer_bytes).sum();
        while footers > footer_bytes_max && self.files.len() > 1 {
            let oldest = self.files.iter().min_by_key(|(_, kept)| kept.used).map(|(path, _)| path.clone());
            let gone = oldest.and_then(|path| self.files.remove(&path));
            footers -= gone.map_or(footers, |kept| kept.footer_bytes);
        }
        let held = || self.files.values().filter(|kept| kept.file.table.has_handle());
        let too_many = held().count().saturating_sub(handles_max);
        for _ in 0..too_many {
            if let Some(oldest) = held().min_by_key(|kept| kept.used) {
                oldest.file.table.let_go();
            }
        }
    }
}

/// The files kept open.
#[derive(Debug)]
pub(crate) struct Files {
    inner: Mutex<FilesInner>,
    handles_max: usize,
    footer_bytes_max: u64,
    steps: FileSteps,
}

impl Files {
    /// Those of a store.
    pub(crate) fn of_store(steps: FileSteps) -> Self {
        let (handles_max, footer_bytes_max) = (HANDLES_MAX, FOOTER_BYTES_MAX);
        Self { inner: Mutex::default(), handles_max, footer_bytes_max, steps }
    }

    /// Those of a view, which keeps every file: its writer may remove them.
    pub(crate) fn of_view() -> Self {
        let (handles_max, footer_bytes_max) = (HANDLES_OF_A_VIEW, u64::MAX);
        Self { inner: Mutex::default(), handles_max, footer_bytes_max, steps: FileSteps::default() }
    }

    /// The open file of an entry. Files are opened outside the lock: two queries may open one at the same time.
    ///
    /// # Errors
    /// As [`file::open`].
    pub(crate) fn open(&self, entry: &Arc<FileEntry>) -> Result<Arc<OpenFile>, FileError> {
        if let Some(file) = self.kept(entry) {
            return Ok(file);
        }
        let file = Arc::new(OpenFile::new(file::open(entry, &self.steps)?));
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clock += 1;
        let kept = KeptFile {
            entry: Arc::downgrade(entry),
            file: Arc::clone(&file),
            footer_bytes: entry.bytes.saturating_sub(entry.footer_offset),
            used: inner.clock,
        };
        inner.files.insert(entry.path.clone(), kept);
        inner.keep_within(self.handles_max, self.footer_bytes_max);
        Ok(file)
    }

    /// Whether the file of an entry is open.
    pub(crate) fn has(&self, entry: &Arc<FileEntry>) -> bool {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.files.get(&entry.path).is_some_and(|kept| kept.is_of(entry))
    }

    fn kept(&self, entry: &Arc<FileEntry>) -> Option<Arc<OpenFile>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clock += 1;
        let clock = inner.clock;
        let kept = inner.files.get_mut(&entry.path).filter(|kept| kept.is_of(entry))?;
        kept.used = clock;
        Some(Arc::clone(&kept.file))
    }

    /// Lets go of files no snapshot names.
    pub(crate) fn release(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.files.retain(|_, kept| kept.entry.strong_count() > 0);
    }
}
