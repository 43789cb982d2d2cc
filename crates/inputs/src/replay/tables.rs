//! Table files as a source of batches.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, UInt32Array};
use arrow_select::concat::concat_batches;
use arrow_select::dictionary::garbage_collect_any_dictionary;
use arrow_select::take::take_record_batch;
use gpuvitals_core::batch::TIMESTAMP_COLUMN;
use gpuvitals_core::ports::{Poll, Source};
use gpuvitals_core::{Batch, Origin};
use parquet::errors::ParquetError;

use super::file::TableFile;
use super::{ReplayError, windows};
use crate::config::ReplayConfig;
use crate::csv::CsvInput;
use crate::report::{Counts, Ledger, Report};
use crate::timeline::Timeline;

/// Table files as one source of batches, in the order of time.
#[derive(Debug)]
pub struct TableSource {
    paths: Vec<PathBuf>,
    config: ReplayConfig,
    origin: Origin,
    files: Vec<TableFile>,
    /// Those that were not read yet.
    windows: std::vec::IntoIter<(i64, i64)>,
    /// The rows of the window being replayed: at most one lane a file.
    lanes: Vec<Lane>,
    timeline: Timeline,
    ledger: Ledger,
    /// Rows that were taken before this pass.
    taken_before: u64,
    sequence: u64,
    has_ended: bool,
}

/// The rows of one file in the window being replayed.
#[derive(Debug)]
struct Lane {
    /// Place of the file among those that are replayed.
    file: usize,
    /// In the order of time.
    records: RecordBatch,
    times: Int64Array,
    /// First row that was not handed over.
    from: usize,
    /// The times under which the rows from there on are published, as far as they are due.
    published: Vec<i64>,
    /// When the first of them became due.
    since_ns: i64,
}

impl TableSource {
    /// Opens table files and reads their times. `now_ns` (nanoseconds UTC since 1970) is when the replay starts.
    ///
    /// # Errors
    /// If one of them cannot be read, is no table of ours, or a setting makes no sense.
    pub fn open(paths: Vec<PathBuf>, config: ReplayConfig, now_ns: i64) -> Result<Self, ReplayError> {
        config.check()?;
        let stem = paths.first().map(|path| CsvInput::from(path.as_path()).stem()).unwrap_or_default();
        let mut source = Self {
            paths,
            origin: Origin { node: stem.into(), started_ns: now_ns },
            timeline: Timeline::new(config.replay, config.speed, config.pace, now_ns),
            config,
            files: Vec::new(),
            windows: Vec::new().into_iter(),
            lanes: Vec::new(),
            ledger: Ledger::new(Arc::from(""), "row"),
            taken_before: 0,
            sequence: 0,
            has_ended: false,
        };
        source.begin_pass(now_ns)?;
        Ok(source)
    }

    /// Counts of the rows so far. The bytes read are those of the files in proportion to the rows.
    pub fn counts(&self) -> Counts {
        let bytes: u64 = self.files.iter().map(|file| file.bytes).sum();
        let rows: u64 = self.files.iter().map(TableFile::rows).sum();
        let taken = self.ledger.counts.rows_taken - self.taken_before;
        let read = u128::from(bytes) * u128::from(taken.min(rows)) / u128::from(rows.max(1));
        let mut counts = self.ledger.counts.clone();
        let all = if self.has_ended { 0 } else { u64::try_from(read).unwrap_or(bytes) };
        counts.bytes_read = bytes * counts.passes + all;
        counts.bytes_total = Some(bytes);
        counts
    }

    /// The reports since the last call: the first [`REPORTS_MAX`](crate::replay::REPORTS_MAX) of each cause, in order. The rest is
    /// only counted.
    pub fn drain_reports(&mut self) -> Vec<Report> {
        self.ledger.drain()
    }

    /// Opens the files, which may have changed since the last pass, and plans the windows.
    fn begin_pass(&mut self, now_ns: i64) -> Result<(), ReplayError> {
        self.files.clear();
        for path in &self.paths {
            self.files.push(TableFile::open(path, &mut self.ledger, now_ns)?);
        }
        self.windows = windows::plan(&self.files)?.into_iter();
        self.taken_before = self.ledger.counts.rows_taken;
        Ok(())
    }

    /// Reads the next window; false after the last.
    fn next_window(&mut self) -> Result<bool, ReplayError> {
        self.lanes.clear();
        let Some(window) = self.windows.next() else { return Ok(false) };
        for (number, file) in self.files.iter().enumerate() {
            let batches = file.read(window, &mut self.ledger)?;
            if let Some(lane) = Lane::of(number, &batches).map_err(|source| file.broken(source))? {
                self.lanes.push(lane);
            }
        }
        Ok(true)
    }

    /// Hands over the rows of a lane that are due.
    fn hand_over(&mut self, lane: usize) -> Result<Option<Batch>, ReplayError> {
        let Some(lane) = self.lanes.get_mut(lane).filter(|lane| !lane.published.is_empty()) else {
            return Ok(None);
        };
        let Some(file) = self.files.get(lane.file) else { return Ok(None) };
        let records = lane.take().map_err(|source| file.broken(source))?;
        self.sequence += 1;
        let batch = Batch::new(file.table, records, self.origin.clone(), self.sequence);
        batch.map(Some).map_err(|source| ReplayError::Batch { file: Arc::clone(&file.name), source })
    }

    /// A lane whose rows are to be handed over now: a batch is full, or has waited for long enough.
    fn ripe(&self, by_ns: i64) -> Option<usize> {
        self.lanes.iter().position(|lane| {
            let is_old = lane.ripe_ns(&self.config).is_some_and(|at| at <= by_ns);
            is_old || lane.published.len() >= self.config.batch_rows
        })
    }

    /// Rows that are due, or nothing before `due_ns`.
    fn wait(&mut self, now_ns: i64, due_ns: i64) -> Result<Poll, ReplayError> {
        if let Some(lane) = self.ripe(now_ns)
            && let Some(batch) = self.hand_over(lane)?
        {
            return Ok(Poll::Ready(batch));
        }
        let ripe = self.lanes.iter().filter_map(|lane| lane.ripe_ns(&self.config)).min();
        Ok(Poll::NotBefore(ripe.unwrap_or(due_ns).min(due_ns)))
    }

    /// The end of a window without rows left: reads the next one, starts the next pass, or ends.
    fn go_on(&mut self, now_ns: i64) -> Result<(), ReplayError> {
        if self.next_window()? {
            return Ok(());
        }
        self.ledger.counts.passes += 1;
        // A pass without rows would be repeated for ever.
        if self.config.loop_file && self.ledger.counts.rows_taken > self.taken_before {
            self.begin_pass(now_ns)?;
            self.timeline.next_pass(now_ns);
        } else {
            self.has_ended = true;
        }
        Ok(())
    }
}

impl Source for TableSource {
    type Error = ReplayError;

    fn poll(&mut self, now_ns: i64) -> Result<Poll, ReplayError> {
        while !self.has_ended {
            let full = |lane: &Lane| lane.published.len() >= self.config.batch_rows;
            let next =
                (0..self.lanes.len()).filter_map(|lane| Some((self.lanes.get(lane)?.next_ns()?, lane))).min();
            let Some((time_ns, at)) = next else {
                // Whatever is left of the window is due.
                let left = self.lanes.iter().position(|lane| !lane.published.is_empty());
                if let Some(lane) = left
                    && let Some(batch) = self.hand_over(lane)?
                {
                    return Ok(Poll::Ready(batch));
                }
                self.go_on(now_ns)?;
                continue;
            };
            if self.lanes.get(at).is_some_and(full)
                && let Some(batch) = self.hand_over(at)?
            {
                return Ok(Poll::Ready(batch));
            }
            let due_ns = self.timeline.next_due().max(self.timeline.due(time_ns));
            if due_ns > now_ns {
                return self.wait(now_ns, due_ns);
            }
            let published = self.timeline.publish(time_ns);
            self.timeline.taken(now_ns);
            self.ledger.counts.rows_taken += 1;
            if let Some(lane) = self.lanes.get_mut(at) {
                lane.push(published, now_ns);
            }
        }
        Ok(Poll::End)
    }
}

impl Lane {
    /// The rows of a window, sorted by time; rows of one time keep their order.
    fn of(file: usize, batches: &[RecordBatch]) -> Result<Option<Self>, ParquetError> {
        let Some(schema) = batches.first().map(RecordBatch::schema) else { return Ok(None) };
        let mut records = concat_batches(&schema, batches)?;
        let mut times = times_of(&records);
        if !times.values().is_sorted() {
            let mut order: Vec<u32> = (0..).take(records.num_rows()).collect();
            let time_of = |row: &u32| times.values().get(*row as usize).copied();
            order.sort_by_key(time_of);
            records = take_record_batch(&records, &UInt32Array::from(order))?;
            times = times_of(&records);
        }
        let lane = Self { file, records, times, from: 0, published: Vec::new(), since_ns: 0 };
        Ok((!lane.times.is_empty()).then_some(lane))
    }

    /// Recorded time of the next row that is not due yet.
    fn next_ns(&self) -> Option<i64> {
        self.times.values().get(self.from + self.published.len()).copied()
    }

    /// When the rows that are due have waited for long enough.
    fn ripe_ns(&self, config: &ReplayConfig) -> Option<i64> {
        (!self.published.is_empty()).then(|| self.since_ns.saturating_add(config.batch_age_ns))
    }

    /// The next row is due.
    fn push(&mut self, published_ns: i64, now_ns: i64) {
        if self.published.is_empty() {
            self.since_ns = now_ns;
        }
        self.published.push(published_ns);
    }

    /// Takes the rows that are due: with the times under which they are published, the columns that have a value, and
    /// texts that a row has.
    fn take(&mut self) -> Result<RecordBatch, ParquetError> {
        let published = Int64Array::from(std::mem::take(&mut self.published));
        let rows = published.len();
        let slice = self.records.slice(self.from, rows);
        self.from += rows;
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (field, column) in slice.schema_ref().fields().iter().zip(slice.columns()) {
            if column.logical_null_count() == rows {
                continue;
            }
            fields.push(Arc::clone(field));
            columns.push(match column.as_any_dictionary_opt() {
                _ if field.name() == TIMESTAMP_COLUMN => Arc::new(published.clone()) as ArrayRef,
                Some(texts) => garbage_collect_any_dictionary(texts)?,
                None => Arc::clone(column),
            });
        }
        Ok(RecordBatch::try_new(Arc::new(arrow_schema::Schema::new(fields)), columns)?)
    }
}

fn times_of(records: &RecordBatch) -> Int64Array {
    let times = records.column_by_name(TIMESTAMP_COLUMN).and_then(|c| c.as_primitive_opt::<Int64Type>());
    times.cloned().unwrap_or_else(|| Int64Array::from(Vec::<i64>::new()))
}
