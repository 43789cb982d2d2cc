//! A file is opened once its footer is checked, and what is read of it is checked, too.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, Field, Schema};
use gpuvitals_core::batch::{data_type, widened};
use gpuvitals_core::catalogue;
use gpuvitals_log::open_file;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::metadata::PageIndexPolicy;

use super::error::FileError;
use super::facts::{BLOCK_BYTES, BLOCKS_KEY, ROW_GROUPS_KEY, RowGroupFacts};
use crate::manifest::FileEntry;
use crate::step::{FileStep, FileSteps};

/// An open table file whose footer has been checked and parsed.
#[derive(Debug)]
pub(crate) struct TableFile {
    /// None: it is opened when it is read.
    file: Mutex<Option<Arc<File>>>,
    /// Footer with page index.
    pub(crate) metadata: ArrowReaderMetadata,
    /// One per row group.
    pub(crate) row_groups: Vec<RowGroupFacts>,
    /// Checksums of the bytes before the footer.
    blocks: Vec<u32>,
    pub(crate) path: PathBuf,
    steps: FileSteps,
}

/// Rows of a file with numbers in the types of today: a metric that another release had narrower is widened. A column that
/// does not fit stays as it is, and who reads it names it.
///
/// # Errors
/// If Arrow refuses, which is a defect.
pub(crate) fn with_types_of_today(records: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let of_today = |field: &Field| {
        let metric = catalogue::by_column(field.name())?.metric();
        Some(data_type(metric.column_type)).filter(|wanted| wanted != field.data_type())
    };
    if !records.schema_ref().fields().iter().any(|field| of_today(field).is_some()) {
        return Ok(records);
    }
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in records.schema_ref().fields().iter().zip(records.columns()) {
        let widened =
            of_today(field).and_then(|it| Some((widened(column, &it)?, Field::new(field.name(), it, true))));
        let (column, field) =
            widened.map_or_else(|| (Arc::clone(column), Arc::clone(field)), |(c, f)| (c, Arc::new(f)));
        columns.push(column);
        fields.push(field);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

/// Opens a live file, checks its footer against the manifest and parses it.
///
/// # Errors
/// If the file cannot be read or its bytes have changed. If [`FileError::is_damage`], the caller condemns it.
pub(crate) fn open(entry: &FileEntry, steps: &FileSteps) -> Result<TableFile, FileError> {
    open_with(entry, steps, PageIndexPolicy::Optional)
}

/// As [`open`], for reading whole row groups: without the index of pages, two fifths of a footer in memory.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_whole(entry: &FileEntry, steps: &FileSteps) -> Result<TableFile, FileError> {
    open_with(entry, steps, PageIndexPolicy::Skip)
}

fn open_with(entry: &FileEntry, steps: &FileSteps, pages: PageIndexPolicy) -> Result<TableFile, FileError> {
    let io = |action, source| FileError::Io { action, path: entry.path.clone(), source };
    let damaged = |what| FileError::Damaged { path: entry.path.clone(), what };
    let file = steps.take(FileStep::Read, &entry.path).and_then(|()| open_file(&entry.path));
    let file = file.map_err(|e| io("open", e))?;
    if file.metadata().map_err(|e| io("inspect", e))?.len() != entry.bytes {
        return Err(damaged("its length is not that of the manifest"));
    }
    let footer_len = entry.bytes.checked_sub(entry.footer_offset).and_then(|len| usize::try_from(len).ok());
    let mut footer = vec![0; footer_len.ok_or_else(|| damaged("its footer is outside"))?];
    file.read_exact_at(&mut footer, entry.footer_offset).map_err(|e| io("read", e))?;
    if crc32c::crc32c(&footer) != entry.footer_crc32c {
        return Err(damaged("checksum of the footer"));
    }
    Ok(TableFile { steps: steps.clone(), ..parse(file, &entry.path, pages)? })
}

/// Parses the footer of a file, which nothing has proven yet or the caller has checked.
pub(super) fn parse(file: File, path: &Path, pages: PageIndexPolicy) -> Result<TableFile, FileError> {
    let options = ArrowReaderOptions::new().with_page_index_policy(pages);
    let metadata = ArrowReaderMetadata::load(&file, options)
        .map_err(|error| FileError::parquet("parse the footer of", path, error))?;
    let pairs = metadata.metadata().file_metadata().key_value_metadata();
    let value = |key: &str| pairs?.iter().find(|pair| pair.key == key)?.value.as_deref();
    let row_groups = value(ROW_GROUPS_KEY)
        .and_then(|json| serde_json::from_str::<Vec<RowGroupFacts>>(json).ok())
        .filter(|groups| groups.len() == metadata.metadata().num_row_groups());
    let bytes = |groups: &Vec<RowGroupFacts>| groups.last().map_or(0, |last| last.offset + last.len);
    let blocks =
        value(BLOCKS_KEY).and_then(|json| serde_json::from_str::<Vec<u32>>(json).ok()).filter(|blocks| {
            row_groups.as_ref().map(bytes).map(|it| it.div_ceil(BLOCK_BYTES)) == Some(blocks.len() as u64)
        });
    let (Some(row_groups), Some(blocks)) = (row_groups, blocks) else {
        return Err(FileError::Damaged { path: path.to_owned(), what: "its row groups are not described" });
    };
    Ok(TableFile {
        file: Mutex::new(Some(Arc::new(file))),
        metadata,
        row_groups,
        blocks,
        path: path.to_owned(),
        steps: FileSteps::default(),
    })
}

impl TableFile {
    /// The file for reading at offsets.
    ///
    /// # Errors
    /// If it was closed and does not open again.
    pub(crate) fn handle(&self) -> std::io::Result<Arc<File>> {
        self.steps.take(FileStep::Read, &self.path)?;
        let held = self.held().clone();
        held.map_or_else(|| open_file(&self.path).map(Arc::new), Ok)
    }

    /// Keeps no handle of the file from now on.
    pub(crate) fn let_go(&self) {
        *self.held() = None;
    }

    /// Whether it keeps a handle.
    pub(crate) fn has_handle(&self) -> bool {
        self.held().is_some()
    }

    fn held(&self) -> MutexGuard<'_, Option<Arc<File>>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn io(&self, action: &'static str, source: std::io::Error) -> FileError {
        FileError::Io { action, path: self.path.clone(), source }
    }

    fn damaged(&self, what: &'static str) -> FileError {
        FileError::Damaged { path: self.path.clone(), what }
    }

    /// Bytes before the footer.
    pub(crate) fn data_len(&self) -> u64 {
        self.row_groups.last().map_or(0, |last| last.offset + last.len)
    }

    /// How many blocks have checksums.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The whole blocks that hold some bytes: their first one, and their contents, checked.
    ///
    /// # Errors
    /// If they cannot be read or have changed since they were written.
    pub(crate) fn checked(&self, bytes: Range<u64>) -> Result<(usize, Vec<u8>), FileError> {
        let start = bytes.start / BLOCK_BYTES * BLOCK_BYTES;
        let end = bytes.end.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES).min(self.data_len());
        let outside = || self.damaged("it has fewer bytes than it names");
        let len = end.checked_sub(start).filter(|_| bytes.end <= end).ok_or_else(outside)?;
        let first = usize::try_from(start / BLOCK_BYTES).map_err(|_| outside())?;
        let mut buffer = vec![0; usize::try_from(len).map_err(|_| outside())?];
        let file = self.handle().map_err(|source| self.io("open", source))?;
        file.read_exact_at(&mut buffer, start).map_err(|source| self.io("read", source))?;
        let block_len = usize::try_from(BLOCK_BYTES).unwrap_or(usize::MAX);
        let wanted = self.blocks.get(first..).unwrap_or_default();
        if buffer.chunks(block_len).zip(wanted).any(|(block, wanted)| crc32c::crc32c(block) != *wanted) {
            return Err(self.damaged("checksum of a block"));
        }
        Ok((first, buffer))
    }

    /// Checks the bytes of a row group.
    ///
    /// # Errors
    /// As [`Self::checked`].
    pub(crate) fn verify(&self, row_group: usize) -> Result<(), FileError> {
        let facts = self.row_groups.get(row_group).ok_or_else(|| self.damaged("it has fewer row groups"))?;
        let (mut offset, end) = (facts.offset, facts.offset.saturating_add(facts.len));
        while offset < end {
            let next = (offset / BLOCK_BYTES + 1).saturating_mul(BLOCK_BYTES).min(end);
            self.checked(offset..next)?;
            offset = next;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parquet::errors::ParquetError;

    use super::*;

    #[test]
    fn the_moment_is_not_the_files_fault() {
        let path = PathBuf::from("raw/gpu_events/2026-11-20/10h-L0-1.parquet");
        let no_handles = || std::io::Error::from_raw_os_error(24);
        let inside = FileError::parquet("read", &path, ParquetError::from(no_handles()));
        let outside = FileError::Io { action: "open", path: path.clone(), source: no_handles() };
        assert!(!inside.is_damage() && !outside.is_damage());
        assert!(FileError::Damaged { path, what: "checksum of a block" }.is_damage());
    }
}
