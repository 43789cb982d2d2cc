//! Merging the small files of one table and hour into one.
//!
//! All files of the hour are read in parallel, row group by row group in the order of keys. Rows below the
//! next unread key of every file are complete and are written. Memory is a row group per file and its merged
//! rows.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;

use gpuvitals_core::Table;

use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::file::{self, FileError, Place, TableFile, TableWriter};
use crate::flush::{pieces, row_groups};
use crate::manifest::{FileEntry, FileRecord, HOUR_NS};
use crate::merge::{Merge, MergeError, Order, RowKeys};
use crate::shared::Shared;
use crate::step::FileSteps;

/// After this much newer data an hour is taken for complete.
const GRACE_NS: i64 = HOUR_NS / 12;
/// A complete hour is merged again when the new files have a quarter of the merged one's bytes.
const WORTH: u64 = 4;

/// The outcome of a merge.
#[derive(Debug)]
pub(crate) enum Merged {
    /// One file instead of the inputs.
    Done(FileRecord),
    /// The store is closing.
    Stopped,
    /// An input is damaged and has been condemned.
    Damaged,
    /// The disk refuses.
    Failed(StoreError),
}

/// The files to merge next, oldest arrival first, if any are due: all those of one table and hour. The hour that failed
/// last comes after all others, so that it cannot hold them up.
pub(crate) fn due(
    files: &[Arc<FileEntry>],
    config: &StoreConfig,
    failed: Option<(Table, i64)>,
) -> Option<Vec<Arc<FileEntry>>> {
    let newest = files.iter().map(|file| file.max_timestamp_ns).max()?;
    let mut hours: BTreeMap<(Table, i64), Vec<&Arc<FileEntry>>> = BTreeMap::new();
    for file in files {
        hours.entry((file.table, file.hour())).or_default().push(file);
    }
    let is_due = |hour: i64, files: &[&Arc<FileEntry>]| {
        let fresh = || files.iter().filter(|file| file.level == 0);
        let end = hour.saturating_add(1).saturating_mul(HOUR_NS);
        let complete = newest >= end.saturating_add(GRACE_NS);
        let fresh_bytes: u64 = fresh().map(|file| file.bytes).sum();
        let merged_bytes: u64 = files.iter().filter(|file| file.level > 0).map(|file| file.bytes).sum();
        let many = fresh().count() >= config.merge_files.max(2);
        let worth = complete && fresh_bytes > 0 && fresh_bytes.saturating_mul(WORTH) >= merged_bytes;
        files.len() > 1 && (many || worth)
    };
    let (_, found) = hours
        .into_iter()
        .filter(|((_, hour), files)| is_due(*hour, files) && files.iter().all(|file| file.damage().is_none()))
        .min_by_key(|((table, hour), _)| (Some((*table, *hour)) == failed, *hour, *table))?;
    let mut found: Vec<_> = found.into_iter().cloned().collect();
    found.sort_by_key(|file| file.order);
    Some(found)
}

/// Merges files of one table and hour, oldest arrival first, into one.
pub(crate) fn merge(
    inputs: &[Arc<FileEntry>],
    root: &Path,
    number: u64,
    shared: &Shared,
    steps: &FileSteps,
) -> Merged {
    match try_merge(inputs, root, number, shared, steps) {
        Ok(Some(record)) => Merged::Done(record),
        Ok(None) => Merged::Stopped,
        Err(StoreError::File(_)) if inputs.iter().any(|input| input.damage().is_some()) => Merged::Damaged,
        Err(error) => Merged::Failed(error),
    }
}

fn try_merge(
    inputs: &[Arc<FileEntry>],
    root: &Path,
    number: u64,
    shared: &Shared,
    steps: &FileSteps,
) -> Result<Option<FileRecord>, StoreError> {
    let config = &shared.config;
    let mut cursors: Vec<Cursor> = inputs.iter().map(Cursor::open).collect::<Result<_, _>>()?;
    // Empty parts with every input's columns: so all row groups have the columns of the whole.
    let frames: Vec<RecordBatch> = cursors
        .iter()
        .map(|cursor| RecordBatch::new_empty(Arc::clone(cursor.table.metadata.schema())))
        .collect();
    let (Some((table, hour)), Some(first_sequence)) = (
        inputs.first().map(|input| (input.table, input.hour())),
        inputs.iter().map(|input| input.first_sequence).min(),
    ) else {
        return Ok(None);
    };
    let schema = Arc::clone(Merge::plan(table, &frames, Order::GpuTime)?.schema());
    let place = Place { root: root.to_owned(), table, level: 1, number, hour, first_sequence };
    let properties = file::properties(table, &schema, place.level, config.page_rows);
    let mut writer = TableWriter::create(place, schema, properties, steps)?;
    while let Some(bound) = advance(&mut cursors)? {
        if shared.ending.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut parts = frames.clone();
        for cursor in &mut cursors {
            cursor.take_below(&bound, &mut parts)?;
        }
        let plan = Merge::plan(table, &parts, Order::GpuTime)?;
        for rows in row_groups(&plan, config) {
            writer.row_group(pieces(&plan, rows))?;
        }
    }
    Ok(Some(writer.finish()?))
}

/// Reads on until some rows are whole; up to which key they are, or none at the end.
fn advance(cursors: &mut [Cursor]) -> Result<Option<Bound<Arc<str>>>, StoreError> {
    loop {
        for cursor in cursors.iter_mut().filter(|cursor| cursor.pending.is_empty()) {
            cursor.read_group()?;
        }
        let bound = cursors.iter().filter_map(Cursor::next_key).min();
        let whole = |cursor: &Cursor| match (&bound, cursor.first_key()) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(bound), Some(first)) => first < bound.as_ref(),
        };
        if cursors.iter().any(whole) {
            return Ok(Some(bound.map_or(Bound::Unbounded, Bound::Excluded)));
        }
        // One GPU extends past the end of a row group, or everything is read.
        let Some(bound) = bound else { return Ok(None) };
        for cursor in cursors.iter_mut().filter(|cursor| cursor.next_key().as_ref() == Some(&bound)) {
            cursor.read_group()?;
        }
    }
}

/// A file being read in the order of keys.
struct Cursor {
    entry: Arc<FileEntry>,
    table: TableFile,
    next: usize,
    /// Rows read but not yet merged.
    pending: Vec<(RecordBatch, RowKeys)>,
}

impl Cursor {
    fn open(entry: &Arc<FileEntry>) -> Result<Self, StoreError> {
        let table = file::open(entry).map_err(|error| condemn(entry, error))?;
        Ok(Self { entry: Arc::clone(entry), table, next: 0, pending: Vec::new() })
    }

    /// Smallest key of the unread rows.
    fn next_key(&self) -> Option<Arc<str>> {
        self.table.row_groups.get(self.next).map(|group| Arc::from(group.min_key.as_str()))
    }

    /// Smallest key of the read but unmerged rows.
    fn first_key(&self) -> Option<&str> {
        let (_, keys) = self.pending.first()?;
        let id = *keys.ids.first()?;
        keys.keys.get(id as usize).map(AsRef::as_ref)
    }

    fn read_group(&mut self) -> Result<(), StoreError> {
        let group = self.next;
        if group >= self.table.row_groups.len() {
            return Ok(());
        }
        self.next += 1;
        let entry = &self.entry;
        self.table.verify(group).map_err(|error| condemn(entry, error))?;
        for rows in self.table.read_group(group).map_err(|error| condemn(entry, error))? {
            let keys =
                RowKeys::of(&rows, entry.table).map_err(|row| MergeError::Nobody { part: 0, row: row.0 })?;
            self.pending.push((rows, keys));
        }
        Ok(())
    }

    /// Hands over the rows below a key.
    fn take_below(
        &mut self,
        bound: &Bound<Arc<str>>,
        parts: &mut Vec<RecordBatch>,
    ) -> Result<(), StoreError> {
        for (rows, keys) in std::mem::take(&mut self.pending) {
            let below = |id: &u32| match bound {
                Bound::Excluded(bound) => keys.keys.get(*id as usize).is_some_and(|key| key < bound),
                _ => true,
            };
            let whole = keys.ids.partition_point(below);
            let rest = rows.num_rows() - whole;
            if whole > 0 {
                parts.push(rows.slice(0, whole));
            }
            if rest > 0 {
                let rest = rows.slice(whole, rest);
                let keys = RowKeys::of(&rest, self.entry.table)
                    .map_err(|row| MergeError::Nobody { part: 0, row: row.0 })?;
                self.pending.push((rest, keys));
            }
        }
        Ok(())
    }
}

fn condemn(entry: &FileEntry, error: FileError) -> StoreError {
    if error.is_damage() {
        entry.condemn(gpuvitals_core::causes(&error));
    }
    StoreError::File(error)
}

impl TableFile {
    /// All columns of a row group.
    ///
    /// # Errors
    /// When it does not parse or cannot be read.
    pub(crate) fn read_group(&self, group: usize) -> Result<Vec<RecordBatch>, FileError> {
        let rows = self.row_groups.get(group).and_then(|facts| usize::try_from(facts.rows).ok()).unwrap_or(1);
        let file = self.handle().and_then(|file| file.try_clone());
        let file = file.map_err(|source| self.io("opening", source))?;
        let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
            .with_row_groups(vec![group])
            .with_batch_size(rows.max(1))
            .build()
            .map_err(|error| FileError::parquet("reading", &self.path, error))?;
        reader.collect::<Result<_, _>>().map_err(|error| {
            FileError::parquet("reading", &self.path, ParquetError::ArrowError(error.to_string()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::FileRecord;

    fn file(hour: i64, order: u64) -> Arc<FileEntry> {
        let record = FileRecord {
            name: format!("raw/{hour}-{order}"),
            table: Table::GpuEvents,
            level: 0,
            order,
            first_sequence: 0,
            rows: 1,
            bytes: 1000,
            min_timestamp_ns: hour * HOUR_NS,
            max_timestamp_ns: hour * HOUR_NS,
            min_key: "a".to_owned(),
            max_key: "a".to_owned(),
            footer_offset: 4,
            footer_crc32c: 0,
        };
        Arc::new(FileEntry::new(Path::new("store"), record))
    }

    #[test]
    fn an_hour_that_fails_does_not_hold_up_the_others() {
        let files: Vec<_> =
            [(1, 1), (1, 2), (5, 3), (5, 4), (90, 5)].into_iter().map(|(h, o)| file(h, o)).collect();
        let hour = |failed: Option<i64>| {
            let failed = failed.map(|hour| (Table::GpuEvents, hour));
            due(&files, &StoreConfig::new("store"), failed).map(|found| found[0].hour())
        };
        assert_eq!(hour(None), Some(1));
        assert_eq!(hour(Some(1)), Some(5));
        assert_eq!(hour(Some(5)), Some(1));
        assert_eq!(due(&files[..2], &StoreConfig::new("store"), None).map(|found| found.len()), None);
    }
}
