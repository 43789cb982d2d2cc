//! One table file: its times, and the rows of a window.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampNanosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::DataType;
use gpuvitals_core::Table;
use gpuvitals_core::batch::{TIMESTAMP_COLUMN, with_text_type};
use gpuvitals_core::time::{self, FUTURE_MAX_NS};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
    RowSelection,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::PageIndexPolicy;

use super::ReplayError;
use super::columns::FileColumns;
use crate::report::{Cause, Ledger};

/// Footer key whose first word is the table.
const SCHEMA_KEY: &str = "gpuvitals.schema";
/// Rows that are decoded together.
const BATCH_ROWS: usize = 8_192;

/// An open table file.
#[derive(Debug)]
pub(super) struct TableFile {
    pub(super) name: Arc<str>,
    pub(super) table: Table,
    /// Length in bytes.
    pub(super) bytes: u64,
    file: File,
    metadata: ArrowReaderMetadata,
    columns: FileColumns,
    groups: Vec<RowGroup>,
}

/// What is known of a row group.
#[derive(Debug)]
struct RowGroup {
    /// Number of its first row in the file.
    first_row: u64,
    rows: usize,
    /// Rows that can be replayed, by their time, and the earliest and latest time of them.
    timed: u64,
    times: Option<(i64, i64)>,
}

impl TableFile {
    /// Opens a file and reads its times. Rows without one, or with an impossible one, are reported here and never read.
    pub(super) fn open(path: &Path, ledger: &mut Ledger, now_ns: i64) -> Result<Self, ReplayError> {
        let name: Arc<str> = path.display().to_string().into();
        let open = |source| ReplayError::Open { file: Arc::clone(&name), source };
        let file = File::open(path).map_err(open)?;
        let bytes = file.metadata().map_err(open)?.len();
        let broken = |source| ReplayError::Parquet { file: Arc::clone(&name), source };
        let metadata = load(&file).map_err(broken)?;
        let table = table_of(&metadata, path, &name)?;
        let columns = FileColumns::of(table, metadata.schema(), &name)?;
        let mut whole = Self { name, table, bytes, file, metadata, columns, groups: Vec::new() };
        whole.measure(ledger, now_ns)?;
        Ok(whole)
    }

    /// Rows that can be replayed, by their time.
    pub(super) fn rows(&self) -> u64 {
        self.groups.iter().map(|group| group.timed).sum()
    }

    /// The earliest and latest time of a row.
    pub(super) fn times(&self) -> Option<(i64, i64)> {
        let times = self.groups.iter().filter_map(|group| group.times);
        times.reduce(|(min, max), (from, to)| (min.min(from), max.max(to)))
    }

    fn measure(&mut self, ledger: &mut Ledger, now_ns: i64) -> Result<(), ReplayError> {
        ledger.file = Arc::clone(&self.name);
        let latest_ns = now_ns.saturating_add(FUTURE_MAX_NS);
        let mut first_row = 0;
        for group in 0..self.metadata.metadata().num_row_groups() {
            let (mut rows, mut timed, mut times) = (0, 0, None::<(i64, i64)>);
            self.scan(group, |row, time_ns| {
                rows = row + 1;
                let problem = match time_ns {
                    None => (Cause::Time, "it has no value".to_owned()),
                    Some(at) if at < 0 => (Cause::Time, format!("{at} is before 1970")),
                    Some(at) if at > latest_ns => {
                        (Cause::Future, format!("{} is more than an hour ahead of now", time::format(at)))
                    }
                    Some(at) => {
                        timed += 1;
                        times = Some(times.map_or((at, at), |(min, max)| (min.min(at), max.max(at))));
                        return;
                    }
                };
                ledger.counts.rows_read += 1;
                ledger.skip(problem.0, first_row + row as u64 + 1, Some(TIMESTAMP_COLUMN), problem.1);
            })?;
            self.groups.push(RowGroup { first_row, rows, timed, times });
            first_row += rows as u64;
        }
        Ok(())
    }

    /// Calls `see` with the number of each row in the row group that has a time in the range, and its time.
    pub(super) fn read_times(
        &self,
        (from, to): (i64, i64),
        mut see: impl FnMut(usize, i64),
    ) -> Result<(), ReplayError> {
        (0..self.groups.len()).try_for_each(|group| self.read_group_times(group, (from, to), &mut see))
    }

    fn read_group_times(
        &self,
        group: usize,
        (from, to): (i64, i64),
        mut see: impl FnMut(usize, i64),
    ) -> Result<(), ReplayError> {
        let times = self.groups.get(group).and_then(|group| group.times);
        if !times.is_some_and(|(min, max)| min <= to && max >= from) {
            return Ok(());
        }
        self.scan(group, |row, time_ns| {
            if let Some(time_ns) = time_ns.filter(|at| (from..=to).contains(at)) {
                see(row, time_ns);
            }
        })
    }

    /// The rows of a window as they are in the file, with the columns of a batch. Problems are reported.
    pub(super) fn read(
        &self,
        window: (i64, i64),
        ledger: &mut Ledger,
    ) -> Result<Vec<RecordBatch>, ReplayError> {
        ledger.file = Arc::clone(&self.name);
        let mut batches = Vec::new();
        for (at, group) in self.groups.iter().enumerate() {
            let mut ranges: Vec<Range<usize>> = Vec::new();
            self.read_group_times(at, window, |row, _| match ranges.last_mut() {
                Some(last) if last.end == row => last.end += 1,
                _ => ranges.push(row..row + 1),
            })?;
            if ranges.is_empty() {
                continue;
            }
            let mut rows = ranges.iter().cloned().flatten();
            let selection = RowSelection::from_consecutive_ranges(ranges.iter().cloned(), group.rows);
            for records in self.reader(at, self.columns.leaves(), Some(selection))? {
                let records = records.map_err(|e| self.broken(e.into()))?;
                ledger.counts.rows_read += records.num_rows() as u64;
                let numbers: Vec<u64> = rows
                    .by_ref()
                    .take(records.num_rows())
                    .map(|row| group.first_row + row as u64 + 1)
                    .collect();
                batches
                    .push(self.columns.fit(&records, &numbers, ledger).map_err(|e| self.broken(e.into()))?);
            }
        }
        Ok(batches)
    }

    pub(super) fn broken(&self, source: ParquetError) -> ReplayError {
        ReplayError::Parquet { file: Arc::clone(&self.name), source }
    }

    /// Calls `see` with each row of a row group, and its time.
    fn scan(&self, group: usize, mut see: impl FnMut(usize, Option<i64>)) -> Result<(), ReplayError> {
        let mut row = 0;
        for records in self.reader(group, [self.columns.time()], None)? {
            let records = records.map_err(|e| self.broken(e.into()))?;
            let Some(times) = records.columns().first() else { continue };
            for time_ns in nanoseconds(times) {
                see(row, time_ns);
                row += 1;
            }
        }
        Ok(())
    }

    fn reader(
        &self,
        group: usize,
        leaves: impl IntoIterator<Item = usize>,
        selection: Option<RowSelection>,
    ) -> Result<ParquetRecordBatchReader, ReplayError> {
        let read = || {
            let file = self.file.try_clone()?;
            let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
                .with_row_groups(vec![group])
                .with_projection(ProjectionMask::leaves(self.metadata.parquet_schema(), leaves))
                .with_batch_size(BATCH_ROWS);
            if let Some(selection) = selection {
                builder = builder.with_row_selection(selection);
            }
            builder.build()
        };
        read().map_err(|source| self.broken(source))
    }
}

/// Reads the footer, with texts as dictionaries whatever wrote the file.
fn load(file: &File) -> Result<ArrowReaderMetadata, ParquetError> {
    let options = ArrowReaderOptions::new()
        .with_page_index_policy(PageIndexPolicy::Optional)
        .with_skip_arrow_metadata(true);
    let plain = ArrowReaderMetadata::load(file, options.clone())?;
    let schema = Arc::new(with_text_type(plain.schema()));
    ArrowReaderMetadata::try_new(Arc::clone(plain.metadata()), options.with_schema(schema))
}

/// The table of a file's rows: by its footer, else by its name.
fn table_of(metadata: &ArrowReaderMetadata, path: &Path, file: &Arc<str>) -> Result<Table, ReplayError> {
    let pairs = metadata.metadata().file_metadata().key_value_metadata();
    let schema = pairs.and_then(|pairs| pairs.iter().find(|pair| pair.key == SCHEMA_KEY)?.value.as_deref());
    if let Some(name) = schema.and_then(|schema| schema.split(' ').next()) {
        return Table::by_name(name)
            .ok_or_else(|| ReplayError::Table { file: Arc::clone(file), name: name.to_owned() });
    }
    let by_name = path.file_stem().and_then(|stem| Table::by_name(stem.to_str()?));
    Ok(by_name.unwrap_or(Table::GpuEvents))
}

/// The values of a column of times, which [`FileColumns::of`] has checked to be one.
fn nanoseconds(array: &ArrayRef) -> impl Iterator<Item = Option<i64>> {
    let values: &[i64] = match array.data_type() {
        DataType::Timestamp(_, _) => array.as_primitive::<TimestampNanosecondType>().values(),
        _ => array.as_primitive::<Int64Type>().values(),
    };
    values.iter().enumerate().map(|(row, value)| array.is_valid(row).then_some(*value))
}
