//! Writing a table file: `.tmp`, sync, rename, sync of the directory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use gpuvitals_core::Table;
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::describe::{Footer, NO_ROWS, record};
use super::{FileError, ROW_GROUPS_KEY, RowGroupFacts};
use crate::directory::sync_dir;
use crate::error::StoreError;
use crate::manifest::{FileRecord, HOUR_NS};
use crate::merge::{MergeError, RowKeys};
use crate::step::{FileStep, FileSteps};
use crate::tail;

/// Counts and checksums the bytes written to a file.
struct Summed {
    file: File,
    offset: u64,
    crc32c: u32,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes.get(..written).unwrap_or_default());
        self.offset += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The destination of a file of the store.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The store's directory.
    pub(crate) root: PathBuf,
    /// Table of the rows.
    pub(crate) table: Table,
    /// 0 or 1.
    pub(crate) level: u8,
    /// Number of the flush or merge; never given twice, so no file is ever written over.
    pub(crate) number: u64,
    /// Hours since 1970.
    pub(crate) hour: i64,
    /// First log record that its rows may come from; 0: not known.
    pub(crate) first_sequence: u64,
}

impl Place {
    /// `raw/gpu_events/2026-11-20/10h-L0-42.parquet`
    pub(crate) fn name(&self) -> String {
        let day = self.hour.div_euclid(24);
        let time = gpuvitals_core::time::format(day.saturating_mul(24).saturating_mul(HOUR_NS));
        let date = time.split_once('T').map_or(time.as_str(), |(date, _)| date);
        let (table, hour) = (self.table, self.hour.rem_euclid(24));
        format!("raw/{table}/{date}/{hour:02}h-L{}-{}.parquet", self.level, self.number)
    }
}

/// A table file being written. Dropped before [`TableWriter::finish`], it leaves nothing behind.
pub(crate) struct TableWriter<'a> {
    place: Place,
    name: String,
    steps: &'a FileSteps,
    fresh: Fresh,
    writer: ArrowWriter<Summed>,
    groups: Vec<RowGroupFacts>,
}

/// The `.tmp` file; removed unless it was renamed.
struct Fresh {
    path: PathBuf,
    kept: bool,
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if !self.kept {
            // The next start removes a file that stays.
            let _removed = fs::remove_file(&self.path);
        }
    }
}

impl<'a> TableWriter<'a> {
    /// Begins a file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn create(
        place: Place,
        schema: SchemaRef,
        properties: WriterProperties,
        steps: &'a FileSteps,
    ) -> Result<Self, FileError> {
        let name = place.name();
        let path = place.root.join(&name).with_extension("tmp");
        let io = |source| FileError::Io { action: "creating", path: path.clone(), source };
        if let Some(day) = path.parent().filter(|day| !day.exists()) {
            fs::create_dir_all(day).map_err(io)?;
            // The day's folder, and its table's, may be new.
            for parent in day.ancestors().skip(1).take(2) {
                sync_dir(parent).map_err(io)?;
            }
        }
        steps.take(FileStep::Create, &path).map_err(io)?;
        let file = File::create(&path).map_err(io)?;
        let fresh = Fresh { path: path.clone(), kept: false };
        let writer = ArrowWriter::try_new(Summed { file, offset: 0, crc32c: 0 }, schema, Some(properties))
            .map_err(|error| FileError::parquet("beginning", &path, error))?;
        Ok(Self { place, name, steps, fresh, writer, groups: Vec::new() })
    }

    fn parquet(&self, action: &'static str) -> impl FnOnce(ParquetError) -> FileError + use<> {
        let path = self.fresh.path.clone();
        move |error| FileError::parquet(action, &path, error)
    }

    fn io(&self, action: &'static str) -> impl FnOnce(io::Error) -> FileError + use<> {
        let path = self.fresh.path.clone();
        move |source| FileError::Io { action, path, source }
    }

    /// Adds a row group: pieces of rows by GPU and time, not before the earlier ones.
    ///
    /// # Errors
    /// If the disk or Parquet refuses, or a piece fails.
    pub(crate) fn row_group(
        &mut self,
        pieces: impl Iterator<Item = Result<RecordBatch, MergeError>>,
    ) -> Result<(), StoreError> {
        // The magic number at the front is part of the first row group's range.
        let offset = self.groups.last().map_or(0, |last| last.offset + last.len);
        let mut facts = RowGroupFacts {
            offset,
            len: 0,
            crc32c: 0,
            rows: 0,
            min_key: String::new(),
            max_key: String::new(),
            min_timestamp_ns: i64::MAX,
            max_timestamp_ns: i64::MIN,
        };
        for piece in pieces {
            let piece = piece?;
            self.describe(&piece, &mut facts)?;
            self.writer.write(&piece).map_err(self.parquet("writing"))?;
        }
        self.writer.flush().map_err(self.parquet("writing"))?;
        self.writer.sync().map_err(self.io("writing"))?;
        let summed = self.writer.inner_mut();
        facts.crc32c = std::mem::take(&mut summed.crc32c);
        facts.len = summed.offset - offset;
        self.groups.push(facts);
        Ok(())
    }

    fn describe(&self, piece: &RecordBatch, facts: &mut RowGroupFacts) -> Result<(), FileError> {
        let keys = RowKeys::of(piece, self.place.table)
            .map_err(|_| FileError::Damaged { path: self.fresh.path.clone(), what: "a row names no GPU" })?;
        let key = |id: Option<&u32>| {
            id.and_then(|&id| keys.keys.get(id as usize))
                .map(|key| key.as_ref().to_owned())
                .unwrap_or_default()
        };
        if facts.rows == 0 {
            facts.min_key = key(keys.ids.first());
        }
        facts.max_key = key(keys.ids.last());
        facts.rows += piece.num_rows() as u64;
        let (min, max) = tail::span(piece);
        facts.min_timestamp_ns = facts.min_timestamp_ns.min(min);
        facts.max_timestamp_ns = facts.max_timestamp_ns.max(max);
        Ok(())
    }

    /// Ends the file, makes it durable and gives it its name.
    ///
    /// # Errors
    /// If the disk or Parquet refuses; then the file does not exist.
    pub(crate) fn finish(mut self) -> Result<FileRecord, FileError> {
        let footer_offset = self.groups.last().map_or(0, |last| last.offset + last.len);
        let json =
            serde_json::to_string(&self.groups).map_err(io::Error::other).map_err(self.io("describing"))?;
        self.writer.append_key_value_metadata(KeyValue::new(ROW_GROUPS_KEY.to_owned(), json));
        let finished = self.writer.finish();
        finished.map_err(self.parquet("ending"))?;
        self.writer.sync().map_err(self.io("writing"))?;
        let summed = self.writer.inner();
        let footer = Footer { offset: footer_offset, bytes: summed.offset, crc32c: summed.crc32c };
        let Place { table, level, number: order, first_sequence, .. } = self.place;
        let record = record((table, self.name.clone()), level, order, &self.groups, footer)
            .map(|record| FileRecord { first_sequence, ..record })
            .ok_or_else(|| FileError::Damaged { path: self.fresh.path.clone(), what: NO_ROWS })?;
        self.steps.take(FileStep::Sync, &self.fresh.path).map_err(self.io("syncing"))?;
        self.writer.inner().file.sync_all().map_err(self.io("syncing"))?;
        let path = self.place.root.join(&self.name);
        self.steps.take(FileStep::Rename, &path).map_err(self.io("renaming"))?;
        fs::rename(&self.fresh.path, &path).map_err(self.io("renaming"))?;
        self.fresh.kept = true;
        path.parent().map_or(Ok(()), sync_dir).map_err(|source| FileError::Io {
            action: "syncing",
            path: path.clone(),
            source,
        })?;
        Ok(record)
    }
}

/// Removes a file that was finished but will not be listed after all.
pub(crate) fn discard(root: &Path, record: &FileRecord) {
    // The next start moves a file that stays to quarantine, since no manifest names it.
    let _removed = fs::remove_file(root.join(&record.name));
}
