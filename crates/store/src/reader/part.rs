//! A part: rows that can be read at once. A row group of a file, or a chunk of the tail.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use arrow_select::take::take_record_batch;
use gpuvitals_core::batch::{TIMESTAMP_COLUMN, timestamps};
use gpuvitals_core::history::RowsQuery;
use gpuvitals_core::identity::INDEX_COLUMN;
use gpuvitals_core::time::SECOND_NS;
use gpuvitals_core::{IdentityColumn, Table};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::RowSelection;
use parquet::file::metadata::ColumnChunkMetaData;

use super::files::{GpuIndex, OpenFile};
use super::scope::{Scope, in_time};
use super::section::Section;
use super::{pages, unreadable};
use crate::file::{self, FileError, GroupPart};
use crate::manifest::FileEntry;
use crate::tail::Chunk;
use gpuvitals_core::batch::RowKeys;

/// Columns from which on it spares time to read the times first, and then of the others only the rows in a range of time.
const TIMES_FIRST_COLUMNS: usize = 8;
/// Rows for each stretch of them that is read, below which Parquet unpacks all rows and drops what is not wanted.
const STRETCH_ROWS: usize = 64;

/// Which columns to read.
#[derive(Debug, Clone)]
pub(crate) enum Columns {
    All,
    /// These, if they exist.
    Named(BTreeSet<String>),
}

impl Columns {
    /// Time, and whatever else is named.
    pub(crate) fn time_and<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Named(names.into_iter().chain([TIMESTAMP_COLUMN]).map(str::to_owned).collect())
    }

    /// Time and GPU or host.
    fn subjects(table: Table) -> Self {
        Self::time_and([table.subject().name(), IdentityColumn::Partition.name()])
    }

    /// The whole key, and by what one of its rows stays.
    pub(crate) fn keys(table: Table) -> Self {
        let rest = table.required().map(|column| column.name);
        Self::time_and(rest.chain([table.subject().name(), IdentityColumn::Partition.name()]))
    }

    /// The key, all identity columns, and these.
    pub(crate) fn identity_and<'a>(table: Table, names: impl IntoIterator<Item = &'a str>) -> Self {
        let identity = IdentityColumn::ALL.into_iter().map(|column| -> &'a str { column.name() });
        let key = table.required().map(|column| -> &'a str { column.name });
        Self::time_and(names.into_iter().chain(identity).chain(key).chain([INDEX_COLUMN]))
    }

    /// And these columns.
    pub(crate) fn and<'a>(self, more: impl IntoIterator<Item = &'a str>) -> Self {
        match self {
            Self::All => Self::All,
            Self::Named(mut names) => {
                names.extend(more.into_iter().map(str::to_owned));
                Self::Named(names)
            }
        }
    }

    /// Those that a question for rows wants.
    pub(crate) fn of(query: &RowsQuery) -> Self {
        match &query.metrics {
            None => Self::All,
            Some(names) => Self::identity_and(query.table, names.iter().map(String::as_str)),
        }
    }

    /// No rows of these columns.
    pub(crate) fn frame(&self, schema: &Schema) -> RecordBatch {
        let fields = schema.fields().iter().filter(|field| self.has(field.name()));
        RecordBatch::new_empty(Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>())))
    }

    fn are_many(&self) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.len() >= TIMES_FIRST_COLUMNS,
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(name),
        }
    }
}

/// Rows by number, ascending, and how many are on the pages that have them.
#[derive(Debug, Clone, Copy)]
struct WantedRows<'a> {
    rows: &'a [Range<usize>],
    on_pages: usize,
}

#[derive(Debug)]
enum PartKind {
    RowGroup { entry: Arc<FileEntry>, file: Arc<OpenFile>, row_group: usize },
    Chunk(Arc<Chunk>),
}

/// A row group of a file, or a chunk of the tail.
#[derive(Debug)]
pub(crate) struct Part {
    kind: PartKind,
    /// Rows of the whole part.
    rows: usize,
    min_key: Arc<str>,
    max_key: Arc<str>,
    min_ns: i64,
    max_ns: i64,
}

impl Part {
    /// Start of the hour or day of its file, nanoseconds UTC since 1970; of rows in memory the time of the first.
    pub(crate) fn span_start(&self) -> i64 {
        match &self.kind {
            PartKind::RowGroup { entry, .. } => entry.span().start_ns(),
            PartKind::Chunk { .. } => self.min_ns,
        }
    }

    /// The row groups of a file that may hold rows in scope.
    pub(crate) fn of_file<'a>(
        entry: &'a Arc<FileEntry>,
        file: &'a Arc<OpenFile>,
        scope: &'a Scope,
    ) -> impl Iterator<Item = Self> + 'a {
        let groups = file.table.row_groups.iter().enumerate();
        let meets = groups.filter(|(_, facts)| {
            scope.meets(&facts.min_key, &facts.max_key, facts.min_timestamp_ns, facts.max_timestamp_ns)
        });
        meets.map(|(row_group, facts)| Self {
            kind: PartKind::RowGroup { entry: Arc::clone(entry), file: Arc::clone(file), row_group },
            rows: usize::try_from(facts.rows).unwrap_or(usize::MAX),
            min_key: Arc::from(facts.min_key.as_str()),
            max_key: Arc::from(facts.max_key.as_str()),
            min_ns: facts.min_timestamp_ns,
            max_ns: facts.max_timestamp_ns,
        })
    }

    /// A chunk of the tail, if it may hold rows in scope.
    pub(crate) fn of_chunk(chunk: &Arc<Chunk>, scope: &Scope) -> Option<Self> {
        let (min_key, max_key) = (&chunk.gpus.first()?.0, &chunk.gpus.last()?.0);
        let (min_ns, max_ns) = (chunk.min_timestamp_ns, chunk.max_timestamp_ns);
        let has_gpu = |keys: &[Arc<str>]| keys.iter().any(|key| chunk.rows_of(key).is_some());
        let meets = scope.meets(min_key, max_key, min_ns, max_ns) && scope.keys().is_none_or(has_gpu);
        meets.then(|| Self {
            kind: PartKind::Chunk(Arc::clone(chunk)),
            rows: chunk.records.num_rows(),
            min_key: Arc::clone(min_key),
            max_key: Arc::clone(max_key),
            min_ns,
            max_ns,
        })
    }

    /// The columns that it may have.
    pub(crate) fn schema(&self) -> SchemaRef {
        match &self.kind {
            PartKind::RowGroup { file, .. } => Arc::clone(file.table.metadata.schema()),
            PartKind::Chunk(chunk) => chunk.records.schema(),
        }
    }

    /// Earliest and latest time.
    pub(crate) fn times(&self) -> (i64, i64) {
        (self.min_ns, self.max_ns)
    }

    /// Whether the two may have rows of one GPU that are one row. Row groups of one file have none.
    pub(crate) fn may_share_keys(&self, other: &Self) -> bool {
        let same_file = match (&self.kind, &other.kind) {
            (PartKind::RowGroup { file: a, .. }, PartKind::RowGroup { file: b, .. }) => Arc::ptr_eq(a, b),
            _ => false,
        };
        !same_file && self.min_key <= other.max_key && other.min_key <= self.max_key
    }

    /// Ranges of row numbers, ascending, that hold all rows of the GPUs in scope and no others, and may hold times
    /// in scope.
    ///
    /// # Errors
    /// As [`Part::read`].
    pub(crate) fn candidates(&self, scope: &Scope) -> Result<Vec<Range<usize>>, String> {
        let whole = || std::iter::once(0..self.rows).collect();
        match (&self.kind, scope.keys()) {
            (PartKind::Chunk(_), None) => Ok(whole()),
            (PartKind::Chunk(chunk), Some(keys)) => Ok(chunk_rows(chunk, keys)),
            (PartKind::RowGroup { file, row_group, .. }, keys) => {
                let wanted = match keys {
                    None => whole(),
                    Some(keys) => self.group_rows(scope.table, file, *row_group, keys)?,
                };
                let (min_ns, max_ns) = self.times();
                if scope.covers(min_ns, max_ns) {
                    return Ok(wanted);
                }
                Ok(pages::in_time(file.table.metadata.metadata(), *row_group, wanted, scope))
            }
        }
    }

    /// Row numbers of some GPUs in a row group. The places of GPUs are determined once and remembered.
    fn group_rows(
        &self,
        table: Table,
        file: &OpenFile,
        row_group: usize,
        keys: &[Arc<str>],
    ) -> Result<Vec<Range<usize>>, String> {
        let index = self.index(table, file, row_group)?;
        let mut ranges = Vec::new();
        // Of the thousands that a question may name it has some dozens.
        let first = keys.partition_point(|key| *key < self.min_key);
        for key in keys.iter().skip(first).take_while(|key| **key <= self.max_key) {
            let from = index.partition_point(|(known, _)| known < key);
            let runs = index.iter().skip(from).take_while(|(known, _)| known == key);
            ranges.extend(runs.map(|(_, rows)| rows.clone()));
        }
        ranges.sort_unstable_by_key(|range| range.start);
        Ok(ranges)
    }

    fn index<'a>(&self, table: Table, file: &'a OpenFile, row_group: usize) -> Result<&'a GpuIndex, String> {
        match file.index(row_group) {
            Some(index) => Ok(index),
            None => Ok(file.set_index(row_group, self.find_gpus(table)?).ok_or("no such row group")?),
        }
    }

    /// Keys of its GPUs; one may be there twice.
    ///
    /// # Errors
    /// As [`Part::read`].
    pub(crate) fn gpus(&self, table: Table) -> Result<Vec<Arc<str>>, String> {
        let key = |(key, _): &(Arc<str>, _)| Arc::clone(key);
        match &self.kind {
            PartKind::Chunk(chunk) => Ok(chunk.gpus.iter().map(|(key, _)| Arc::clone(key)).collect()),
            PartKind::RowGroup { file, row_group, .. } => {
                Ok(self.index(table, file, *row_group)?.iter().map(key).collect())
            }
        }
    }

    fn find_gpus(&self, table: Table) -> Result<GpuIndex, String> {
        let records = self.read(&Columns::subjects(table), std::slice::from_ref(&(0..self.rows)))?;
        let keys = RowKeys::of(&records, table).map_err(|row| format!("row {} names no GPU", row.0))?;
        let mut index = GpuIndex::new();
        let mut start = 0;
        for run in keys.ids.chunk_by(|a, b| a == b) {
            let key = run.first().and_then(|&id| keys.keys.get(id as usize));
            index.extend(key.map(|key| (Arc::clone(key), start..start + run.len())));
            start += run.len();
        }
        index.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(index)
    }

    /// Reads rows by number (ascending ranges), in that order. The batch has those of the columns that have a
    /// value in the part, and always time and `uuid` if they were asked for.
    ///
    /// # Errors
    /// In words, when a file cannot be read; if it is at fault it has been condemned.
    pub(crate) fn read(&self, columns: &Columns, rows: &[Range<usize>]) -> Result<RecordBatch, String> {
        self.read_rows(columns, WantedRows { rows, on_pages: rows.iter().map(Range::len).sum() })
    }

    /// As [`Part::read`], all of these rows that are in the time of a scope, and of the others as many as it takes to read these soon:
    /// where an hour of a GPU is on one page, some seconds of many columns are read without unpacking the hour of each.
    ///
    /// # Errors
    /// As [`Part::read`].
    pub(crate) fn read_during(
        &self,
        columns: &Columns,
        rows: &[Range<usize>],
        scope: &Scope,
    ) -> Result<RecordBatch, String> {
        if !columns.are_many() || !self.has_few(rows, scope) {
            return self.read(columns, rows);
        }
        let times = self.read(&Columns::time_and([]), rows)?;
        let within = at_places(rows, &in_time(timestamps(&times), scope));
        if within.len().saturating_mul(STRETCH_ROWS) > self.rows {
            return self.read(columns, rows);
        }
        self.read_rows(columns, WantedRows { rows: &within, on_pages: times.num_rows() })
    }

    /// Whether of these rows of a file less than half are in the time of a scope, if they are as evenly spread as all.
    fn has_few(&self, rows: &[Range<usize>], scope: &Scope) -> bool {
        let (min_ns, max_ns) = self.times();
        let seconds = |from: i64, to: i64| {
            usize::try_from(to.saturating_sub(from) / SECOND_NS).unwrap_or_default().saturating_add(1)
        };
        let all = seconds(min_ns, max_ns);
        let wanted = seconds(min_ns.max(scope.start_ns), max_ns.min(scope.end_ns));
        let found: usize = rows.iter().map(Range::len).sum();
        let is_file = matches!(self.kind, PartKind::RowGroup { .. });
        is_file && found.saturating_mul(all) > self.rows.saturating_mul(wanted).saturating_mul(2)
    }

    fn read_rows(&self, columns: &Columns, wanted: WantedRows<'_>) -> Result<RecordBatch, String> {
        match &self.kind {
            PartKind::Chunk(chunk) => {
                take(&chunk.records, columns, wanted.rows).map_err(|error| error.to_string())
            }
            PartKind::RowGroup { entry, file, row_group } => {
                if let Some(reason) = entry.damage() {
                    return Err(format!("{}: {reason}", entry.path.display()));
                }
                let read = self.read_group(file, *row_group, columns, wanted);
                read.map_err(|error| unreadable(entry, file.damage().unwrap_or(&error)))
            }
        }
    }

    fn read_group(
        &self,
        file: &Arc<OpenFile>,
        row_group: usize,
        columns: &Columns,
        WantedRows { rows, on_pages }: WantedRows<'_>,
    ) -> Result<RecordBatch, FileError> {
        let metadata = &file.table.metadata;
        let group = metadata.metadata().row_group(row_group);
        let is_null = |leaf: usize| {
            let nulls = group.columns().get(leaf).and_then(|column| column.statistics()?.null_count_opt());
            nulls.is_some_and(|nulls| nulls > 0 && usize::try_from(nulls) == Ok(self.rows))
        };
        let fields = metadata.schema().fields().iter().enumerate();
        let leaves: Vec<usize> = fields
            .filter(|(leaf, f)| columns.has(f.name()) && !is_null(*leaf))
            .map(|(leaf, _)| leaf)
            .collect();
        let wanted: usize = rows.iter().map(Range::len).sum();
        // Most of a column is cheaper to get at once; of a few pages only those.
        let ahead = if on_pages * 4 >= self.rows {
            let chunks = leaves.iter().filter_map(|&leaf| group.columns().get(leaf));
            chunks.map(ColumnChunkMetaData::byte_range).map(|(start, len)| start..start + len).collect()
        } else {
            Vec::new()
        };
        let section = Section::new(file, ahead)?;
        let parquet = |error| FileError::parquet("read", &file.table.path, error);
        let arrow = |error: ArrowError| parquet(error.into());
        let columns = ProjectionMask::leaves(metadata.parquet_schema(), leaves);
        let selection = (wanted < self.rows)
            .then(|| RowSelection::from_consecutive_ranges(rows.iter().cloned(), self.rows));
        let part = GroupPart { row_group, columns, rows: selection };
        let reader = file::read_group(section, metadata, part, wanted);
        let reader = reader.map_err(parquet)?;
        let schema = arrow_array::RecordBatchReader::schema(&reader);
        let batches: Result<Vec<RecordBatch>, ArrowError> = reader.collect();
        let mut batches = batches.map_err(arrow)?;
        let records = match (batches.pop(), batches.is_empty()) {
            (None, _) => RecordBatch::new_empty(schema),
            (Some(only), true) => only,
            (Some(last), false) => {
                batches.push(last);
                arrow_select::concat::concat_batches(&schema, &batches).map_err(arrow)?
            }
        };
        file::with_types_of_today(records).map_err(arrow)
    }
}

/// The rows at some places (ascending ranges) among these rows.
fn at_places(rows: &[Range<usize>], places: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut places = places.iter().peekable();
    let mut first = 0;
    for range in rows {
        let end = first + range.len();
        while let Some(place) = places.peek().filter(|place| place.start < end) {
            let (from, to) = (place.start.max(first) - first, place.end.min(end) - first);
            pages::push(&mut found, range.start + from..range.start + to);
            // It goes on in the next range.
            if place.end > end {
                break;
            }
            places.next();
        }
        first = end;
    }
    found
}

/// Row numbers of some GPUs in a chunk, ascending as the keys do.
fn chunk_rows(chunk: &Chunk, keys: &[Arc<str>]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    for range in keys.iter().filter_map(|key| chunk.rows_of(key)) {
        pages::push(&mut ranges, range);
    }
    ranges
}

fn take(records: &RecordBatch, columns: &Columns, rows: &[Range<usize>]) -> Result<RecordBatch, ArrowError> {
    let fields = records.schema_ref().fields().iter().enumerate();
    let indices: Vec<usize> =
        fields.filter(|(_, field)| columns.has(field.name())).map(|(index, _)| index).collect();
    let projected =
        if indices.len() == records.num_columns() { records.clone() } else { records.project(&indices)? };
    match rows {
        [] => Ok(RecordBatch::new_empty(Arc::new(Schema::new(projected.schema_ref().fields().clone())))),
        [only] => Ok(projected.slice(only.start, only.len())),
        _ => {
            let numbers =
                rows.iter().flat_map(|range| range.clone().filter_map(|row| u32::try_from(row).ok()));
            take_record_batch(&projected, &UInt32Array::from_iter_values(numbers))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_among_rows_are_rows_wherever_ranges_begin() {
        let at = |places: &[Range<usize>]| at_places(&[10..13, 13..15, 20..25], places);
        assert_eq!(at(&[]), Vec::<Range<usize>>::new());
        let one = |place: Range<usize>| at(std::slice::from_ref(&place));
        assert_eq!(one(0..10), [10..15, 20..25]);
        assert_eq!(at(&[1..4, 6..7, 9..10]), [11..14, 21..22, 24..25]);
        assert_eq!(one(4..6), [14..15, 20..21]);
        assert_eq!(at(&[0..3, 5..6]), [10..13, 20..21]);
    }
}
