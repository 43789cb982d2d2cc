//! Merging the small files of one table and hour, or day, into one, or into a few large ones that are apart by GPU.
//!
//! All files are read in parallel, some rows at a time, in the order of keys. Rows below the last key read of every file
//! are complete and are written. Memory is [`VALUES_AT_ONCE`] values or the longest GPU, and their merged rows.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ProjectionMask;
use parquet::errors::ParquetError;

use gpuvitals_core::Table;

use crate::config::StoreConfig;
use crate::directory::Directory;
use crate::error::StoreError;
use crate::file::{self, FileError, GroupPart, Place, Sorted, TableFile, TableWriter, discard_all};
use crate::grain::Grain;
use crate::manifest::{FileEntry, FileRecord, Span};
use crate::rollup::{self, Rollups};
use crate::shared::Shared;
use crate::step::FileSteps;
use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::merge::{Merge, MergeError, Order, Overwritten};

/// A complete hour or day is merged again when the new files have a quarter of the merged one's bytes.
const WORTH: u64 = 4;
/// A day is complete after this many times the rest of an hour.
const DAY_REST: u32 = 12;
/// After this many times its rest an hour or day is merged again however few the new rows are: a question of it would read
/// all of its rows for them.
const LATE_RESTS: u32 = 24;
/// Numbers of a merge: one for each file of rows that it may write.
pub(crate) const NUMBERS: u64 = 1 << 10;
/// Rows that are read from all files together before any is written, and values of wide ones: a decoder has room for the rows of
/// its column that are read at once, and there is one for each file and column. Of a hundred columns they are still more rows than
/// it takes to see that a rollup is not worth its room: with fewer its first rows would be put together for nothing.
const ROWS_AT_ONCE: usize = 1 << 16;
const VALUES_AT_ONCE: usize = 1 << 22;
/// Fewest rows that are read from a file at once, unless pages are small, and most, in pages.
const ROWS_MIN: usize = 1 << 10;
const PAGES_MAX: usize = 4;

/// The outcome of a merge.
#[derive(Debug)]
pub(crate) enum Merged {
    /// These files instead of the inputs: merged rows and rollups; and the rows whose values differed.
    Done(Vec<FileRecord>, Overwritten),
    /// The store is closing.
    Stopped,
    /// An input is damaged and has been condemned.
    Damaged,
    /// The disk refuses, or rows do not fit together; nothing has changed.
    Failed(StoreError),
}

/// Which files are due.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Due {
    /// Those of hours and days that are complete, or many.
    At(Instant),
    /// Those of hours that take less room once they are merged, complete or not.
    ForRoom,
    /// All that can be merged.
    All,
}

/// What decides which files are due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MergeRules<'a> {
    pub(crate) config: &'a StoreConfig,
    /// Most bytes of a day that is merged.
    pub(crate) day_bytes: u64,
    /// The time whose merge failed last. It comes after all others, so that it cannot hold them up.
    pub(crate) failed: Option<(Table, Span)>,
}

/// The files to merge next, oldest arrival first, if any are due: all those of one table and hour, or day.
pub(crate) fn due(
    files: &[Arc<FileEntry>],
    when: Due,
    rules: &MergeRules<'_>,
) -> Option<Vec<Arc<FileEntry>>> {
    let MergeRules { config, day_bytes, failed } = *rules;
    let newest = files.iter().map(|file| file.max_timestamp_ns).max()?;
    let mut spans: BTreeMap<(Table, Span), Vec<&Arc<FileEntry>>> = BTreeMap::new();
    for file in files {
        let span = file.span();
        spans.entry((file.table, span)).or_default().push(file);
        if span.day() != span {
            spans.entry((file.table, span.day())).or_default().push(file);
        }
    }
    let is_due = |span: Span, files: &[&Arc<FileEntry>]| {
        let is_day = span == span.day();
        let rest = config.merge_after * if is_day { DAY_REST } else { 1 };
        let rest_ns = i64::try_from(rest.as_nanos()).unwrap_or(i64::MAX);
        let idle = |rest| {
            let Due::At(now) = when else { return true };
            files.iter().all(|file| now.saturating_duration_since(file.since) >= rest)
        };
        let complete = newest >= span.end_ns().saturating_add(rest_ns) || idle(rest);
        let bytes = |merged: bool| {
            let of = files.iter().filter(|file| (file.level >= span.level()) == merged);
            of.map(|file| file.bytes).sum::<u64>()
        };
        let (fresh, merged) = (bytes(false), bytes(true));
        let is_much = fresh.saturating_mul(WORTH) >= merged;
        if matches!(when, Due::ForRoom) {
            return !is_day && files.len() > 1 && fresh > 0 && is_much;
        }
        let worth = complete && fresh > 0 && (is_much || idle(rest * LATE_RESTS));
        let flushed = files.iter().filter(|file| file.level == 0).count();
        let many = !is_day && flushed >= config.merge_files.max(2);
        let hours =
            || files.iter().any(|file| files.first().is_some_and(|first| first.span() != file.span()));
        let fits = !is_day || fresh.saturating_add(merged) <= day_bytes && hours();
        let alone = !is_day && flushed > 0 && files.iter().all(|file| rollup::of_hours(file.table));
        (files.len() > 1 || alone) && fits && (many || worth)
    };
    let (_, found) = spans
        .into_iter()
        .filter(|((_, span), files)| is_due(*span, files) && files.iter().all(|file| file.damage().is_none()))
        .min_by_key(|((table, span), _)| (Some((*table, *span)) == failed, span.start_ns(), *table, *span))?;
    let mut found: Vec<_> = found.into_iter().cloned().collect();
    found.sort_by_key(|file| file.order);
    Some(found)
}

/// The time that a merge of these files is of.
pub(crate) fn span_of(inputs: &[Arc<FileEntry>]) -> Option<(Table, Span)> {
    let first = inputs.first()?;
    let is_hour = inputs.iter().all(|input| input.span() == first.span());
    Some((first.table, if is_hour { first.span() } else { first.span().day() }))
}

/// A merge of files of one table and hour or day.
pub(crate) struct MergeTask<'a> {
    /// Oldest arrival first.
    pub(crate) inputs: &'a [Arc<FileEntry>],
    pub(crate) directory: &'a Directory,
    /// The first of [`NUMBERS`].
    pub(crate) number: u64,
    pub(crate) shared: &'a Shared,
}

impl MergeTask<'_> {
    /// Merges them. Unless all is done, no new file stays.
    pub(crate) fn run(&self) -> Merged {
        let mut done = Vec::new();
        let outcome = match self.try_run(&mut done) {
            Ok(Some(overwritten)) => return Merged::Done(done, overwritten),
            Ok(None) => Merged::Stopped,
            Err(StoreError::File(_)) if self.inputs.iter().any(|input| input.damage().is_some()) => {
                Merged::Damaged
            }
            Err(error) => Merged::Failed(error),
        };
        discard_all(self.directory.root(), &done);
        outcome
    }

    /// The rows whose values differed, when all is merged; none if the store is closing. `done` gets the files that are
    /// finished.
    fn try_run(&self, done: &mut Vec<FileRecord>) -> Result<Option<Overwritten>, StoreError> {
        let Self { inputs, directory, number, shared } = *self;
        let (config, steps) = (&shared.config, directory.steps());
        let mut overwritten = Overwritten::default();
        let mut cursors = open_all(inputs, config, steps)?;
        // Empty parts with every input's columns: so all row groups have the columns of the whole.
        let frames: Vec<RecordBatch> = cursors
            .iter()
            .map(|cursor| RecordBatch::new_empty(Arc::clone(cursor.table.metadata.schema())))
            .collect();
        let (Some((table, span)), Some(first_sequence)) =
            (span_of(inputs), inputs.iter().map(|input| input.first_sequence).min())
        else {
            return Ok(None);
        };
        let schema = Arc::clone(Merge::plan(table, &frames, Order::GpuTime)?.schema());
        let (root, grain) = (directory.root().to_owned(), Grain::Raw);
        let mut place = Place { root, table, grain, level: span.level(), number, span, first_sequence };
        let mut output = MergedOutput::create(place.clone(), &schema, config, steps)?;
        while let Some(bound) = advance(&mut cursors)? {
            if shared.ending.load(Ordering::Relaxed) {
                return Ok(None);
            }
            // What was written are whole GPUs.
            if output.writer.bytes() >= config.file_bytes && place.number + 1 < number + NUMBERS {
                output.finish(done)?;
                place.number += 1;
                output = MergedOutput::create(place.clone(), &schema, config, steps)?;
            }
            let mut parts = frames.clone();
            for cursor in &mut cursors {
                cursor.take_below(&bound, &mut parts)?;
            }
            let plan = Merge::plan(table, &parts, Order::GpuTime)?;
            overwritten.add(plan.overwritten());
            let MergedOutput { writer, rollups, .. } = &mut output;
            Sorted::merged(&plan, |rows| writer.write(rows).and_then(|()| rollups.write(rows)))?;
        }
        output.finish(done)?;
        Ok(Some(overwritten))
    }
}

/// A file of merged rows being written, and its rollups.
struct MergedOutput<'a> {
    place: Place,
    writer: TableWriter<'a>,
    rollups: Rollups<'a>,
}

impl<'a> MergedOutput<'a> {
    fn create(
        place: Place,
        schema: &SchemaRef,
        config: &'a StoreConfig,
        steps: &'a FileSteps,
    ) -> Result<Self, StoreError> {
        let rollups = Rollups::create(&place, schema, config, steps)?;
        let writer = TableWriter::create(place.clone(), Arc::clone(schema), config, steps)?;
        Ok(Self { place, writer, rollups })
    }

    /// Ends the files: that of the rows comes last.
    fn finish(self, done: &mut Vec<FileRecord>) -> Result<(), StoreError> {
        done.extend(self.rollups.finish(&self.place)?);
        done.push(self.writer.finish()?);
        Ok(())
    }
}

/// Opens the files to be read side by side.
fn open_all(
    inputs: &[Arc<FileEntry>],
    config: &StoreConfig,
    steps: &FileSteps,
) -> Result<Vec<Cursor>, StoreError> {
    let open = |entry| Cursor::open(entry, steps);
    let mut cursors: Vec<Cursor> = inputs.iter().map(open).collect::<Result<_, _>>()?;
    let columns = cursors.iter().map(|cursor| cursor.table.metadata.schema().fields().len());
    let of_all = ROWS_AT_ONCE.min(VALUES_AT_ONCE / columns.max().unwrap_or(1).max(1));
    let rows = (of_all / inputs.len().max(1)).max(ROWS_MIN).min(config.page_rows * PAGES_MAX);
    for cursor in &mut cursors {
        cursor.rows = rows;
    }
    Ok(cursors)
}

/// Reads on until some rows are whole; up to which key they are, or none at the end.
fn advance(cursors: &mut [Cursor]) -> Result<Option<Bound<Arc<str>>>, StoreError> {
    loop {
        for cursor in cursors.iter_mut().filter(|cursor| cursor.pending.is_empty()) {
            cursor.read()?;
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
        // One GPU extends past the rows read, or everything is read.
        let Some(bound) = bound else { return Ok(None) };
        for cursor in cursors.iter_mut().filter(|cursor| cursor.next_key().as_ref() == Some(&bound)) {
            cursor.read()?;
        }
    }
}

/// Rows of a row group, as they are read.
pub(crate) type GroupRows = Box<dyn Iterator<Item = Result<RecordBatch, FileError>>>;

/// What is unread of a row group.
struct UnreadRows {
    rows: GroupRows,
    /// Rows that are unread.
    left: usize,
    /// The last key that was read.
    last: Option<Arc<str>>,
}

/// A file being read in the order of keys.
struct Cursor {
    entry: Arc<FileEntry>,
    table: TableFile,
    /// Rows that are read at once.
    rows: usize,
    /// The row group after those that are read or being read.
    next: usize,
    /// The rest of the row group that is being read.
    rest: Option<UnreadRows>,
    /// Rows read but not yet merged.
    pending: Vec<(RecordBatch, RowKeys)>,
}

impl Cursor {
    fn open(entry: &Arc<FileEntry>, steps: &FileSteps) -> Result<Self, StoreError> {
        let table = file::open_whole(entry, steps).map_err(|error| condemn(entry, error))?;
        Ok(Self { entry: Arc::clone(entry), table, rows: ROWS_MIN, next: 0, rest: None, pending: Vec::new() })
    }

    /// A key that no unread row is below; none at the end.
    fn next_key(&self) -> Option<Arc<str>> {
        if let Some(UnreadRows { last: Some(last), .. }) = &self.rest {
            return Some(Arc::clone(last));
        }
        self.table.row_groups.get(self.next).map(|group| Arc::from(group.min_key.as_str()))
    }

    /// Smallest key of the read but unmerged rows.
    fn first_key(&self) -> Option<&str> {
        let (_, keys) = self.pending.first()?;
        let id = *keys.ids.first()?;
        keys.keys.get(id as usize).map(AsRef::as_ref)
    }

    /// Reads some rows, if there are more.
    fn read(&mut self) -> Result<(), StoreError> {
        let Self { entry, table, .. } = self;
        loop {
            if let Some(UnreadRows { rows: rest, left, last }) = &mut self.rest {
                if let Some(rows) = rest.next() {
                    let rows = rows.map_err(|error| condemn(entry, error))?;
                    let keys = RowKeys::of(&rows, entry.table)
                        .map_err(|row| MergeError::Nobody { part: 0, row: row.0 })?;
                    *last = keys.ids.last().and_then(|id| keys.keys.get(*id as usize).cloned());
                    *left = left.saturating_sub(rows.num_rows());
                    let is_read = *left == 0;
                    self.pending.push((rows, keys));
                    if is_read {
                        // It has a decoder of 100 kB for each column, and there are many files.
                        self.rest = None;
                    }
                    return Ok(());
                }
                self.rest = None;
            }
            if self.next >= table.row_groups.len() {
                return Ok(());
            }
            table.verify(self.next).map_err(|error| condemn(entry, error))?;
            let rows = table.read_group(self.next, self.rows).map_err(|error| condemn(entry, error))?;
            let left = table.row_groups.get(self.next).map_or(0, |group| group.rows);
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            self.rest = Some(UnreadRows { rows, left, last: None });
            self.next += 1;
        }
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
    /// A row group, all columns, in batches of some rows. Only the pages that a batch needs are in memory.
    ///
    /// # Errors
    /// When it does not parse or cannot be read.
    pub(crate) fn read_group(&self, group: usize, rows: usize) -> Result<GroupRows, FileError> {
        let file = self.handle().and_then(|file| file.try_clone());
        let file = file.map_err(|source| self.io("open", source))?;
        let part = GroupPart { row_group: group, columns: ProjectionMask::all(), rows: None };
        let reader = file::read_group(file, &self.metadata, part, rows)
            .map_err(|error| FileError::parquet("read", &self.path, error))?;
        let path = self.path.clone();
        Ok(Box::new(reader.map(move |rows| {
            rows.and_then(file::with_types_of_today).map_err(|error| {
                FileError::parquet("read", &path, ParquetError::ArrowError(error.to_string()))
            })
        })))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    fn files(files: &[(i64, u64)]) -> Vec<Arc<FileEntry>> {
        files.iter().map(|&(hour, order)| Arc::new(FileEntry::with_one_row(hour, order))).collect()
    }

    /// The time whose files are due.
    fn due_at(files: &[Arc<FileEntry>], failed: Option<Span>, later: Duration) -> Option<Span> {
        let failed = failed.map(|span| (Table::GpuEvents, span));
        let now = gpuvitals_core::clock::instant() + later;
        let rules = MergeRules { config: &StoreConfig::new("store"), day_bytes: 2_000_000, failed };
        due(files, Due::At(now), &rules).map(|found| span_of(&found).unwrap().1)
    }

    #[test]
    fn an_hour_that_fails_does_not_hold_up_the_others() {
        let files = files(&[(1, 1), (1, 2), (5, 3), (5, 4), (7, 5)]);
        let due = |failed| due_at(&files, failed, Duration::ZERO);
        assert_eq!(due(None), Some(Span::Hour(1)));
        assert_eq!(due(Some(Span::Hour(1))), Some(Span::Hour(5)));
        assert_eq!(due(Some(Span::Hour(5))), Some(Span::Hour(1)));
    }

    #[test]
    fn an_hour_is_complete_when_its_rows_have_stopped_coming() {
        let files = files(&[(1, 1), (1, 2)]);
        assert_eq!(due_at(&files, None, Duration::from_mins(4)), None);
        assert_eq!(due_at(&files, None, Duration::from_mins(6)), Some(Span::Hour(1)));
    }

    #[test]
    fn few_late_rows_are_merged_after_a_while() {
        let merged =
            FileRecord { level: 1, bytes: 10_000, ..FileRecord::clone(&FileEntry::with_one_row(1, 1)) };
        let late = [FileEntry::new(Path::new("store"), merged), FileEntry::with_one_row(1, 2)].map(Arc::new);
        assert_eq!(due_at(&late, None, Duration::from_mins(110)), None);
        assert_eq!(due_at(&late, None, Duration::from_mins(121)), Some(Span::Hour(1)));
    }

    #[test]
    fn a_day_is_merged_when_it_is_over_unless_it_is_large() {
        let over = files(&[(1, 1), (2, 2), (26, 3)]);
        assert_eq!(due_at(&over, None, Duration::ZERO), Some(Span::Day(0)));
        assert_eq!(due_at(&over[..2], None, Duration::ZERO), None);
        assert_eq!(due_at(&over[..2], None, Duration::from_mins(61)), Some(Span::Day(0)));
        let now = Due::At(gpuvitals_core::clock::instant());
        let rules = MergeRules { config: &StoreConfig::new("store"), day_bytes: 1_999, failed: None };
        let hour = due(&over, now, &rules).unwrap();
        assert_eq!(span_of(&hour).unwrap().1, Span::Hour(1));
    }
}
