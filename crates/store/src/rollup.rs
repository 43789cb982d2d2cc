//! Rollups: rows of a GPU or host put together by steps of time, so that a question about a year reads some values a day.
//!
//! Of every metric there are the smallest, largest and newest value, the sum, how many values there were, in some grains
//! the frequencies of values ([`Sketch`]), and of a counter the first value and what it lost by falls ([`Track`]). These are
//! what an answer by steps is made of ([`Cell`]): it is the same whether it is made of rows or of a rollup whose steps
//! divide its own. A merge of files writes the rollups of its result.
//!
//! Only rows side by side with the same identity are put together: where a pod or job changes, a step has another row. So
//! every selector and group has its values, and the rows of a GPU are apart in time.
//!
//! Of `gpu_usage`, whose rows are by the hour, there are rows by the day instead ([`Holdings::by_day`]).

mod figure;
mod runs;
mod usage;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::BinaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch, UInt32Array,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::take::take;
use gpuvitals_core::batch::{TIMESTAMP_COLUMN, timestamps};
use gpuvitals_core::history::tally::{Run, count_column};
use gpuvitals_core::history::{Cell, Measured, Track};
use gpuvitals_core::identity::INDEX_COLUMN;
use gpuvitals_core::merge::{MergeError, as_text};
use gpuvitals_core::sketch::Sketch;
use gpuvitals_core::usage::{DayRows, Holdings, Stay};
use gpuvitals_core::{IdentityColumn, MetricId, Table, catalogue};

use crate::config::StoreConfig;
use crate::error::StoreError;
use crate::file::{Place, Sorted, TableWriter, discard_all};
use crate::grain::{Grain, has_figures};
use crate::manifest::FileRecord;
use crate::step::FileSteps;

use runs::{Runs, time_at};
use usage::Stays;

pub(crate) use figure::{FIRST_NS, Figure, LAST_NS, has_sketch, has_track};
pub(crate) use usage::{StayColumns, is_use, names as use_names};

/// Rows that are put together at once, if no GPU has more.
const PIECE_ROWS: usize = 1 << 15;
/// Rows after which a rollup that is not worth its room is given up before its end, and how many times too large one is
/// that is given up at once.
const TRIAL_ROWS: usize = 1 << 18;
const HOPELESS: usize = 2;

/// A rollup of `gpu_usage` is worth its room if it has no more rows than this part of those that it is made of: most jobs last for hours, and
/// have a row for each.
const USAGE_PART: (usize, usize) = (2, 3);

/// The steps by which the rows of a table are put together.
fn grains(table: Table) -> &'static [Grain] {
    match table {
        Table::GpuEvents | Table::SystemEvents => &Grain::ROLLUPS,
        // Its rows are by the hour.
        Table::GpuUsage => &[Grain::Day],
        _ => &[],
    }
}

/// Whether a file of one hour has rollups.
pub(crate) fn of_hours(table: Table) -> bool {
    grains(table).contains(&Grain::Hour)
}

/// Whether rollups have the use of GPUs.
fn has_use(table: Table) -> bool {
    table == Table::GpuEvents
}

/// What a column of rows becomes.
fn fields_of(field: &Field, table: Table, grain: Grain) -> Vec<Field> {
    let name = field.name();
    if name == INDEX_COLUMN || IdentityColumn::by_name(name).is_some() {
        return vec![field.clone()];
    }
    let Some(metric) = metric_of(name, table) else { return Vec::new() };
    Figure::all(metric, grain)
        .map(|figure| Field::new(figure.column(metric), figure.data_type(metric), true))
        .collect()
}

fn metric_of(name: &str, table: Table) -> Option<MetricId> {
    catalogue::by_column(name).filter(|id| id.metric().table == table)
}

/// Columns of the rollup of rows with these columns.
fn schema(rows: &Schema, table: Table, grain: Grain) -> SchemaRef {
    if table == Table::GpuUsage {
        return Holdings::day_schema(rows);
    }
    let time = [TIMESTAMP_COLUMN, FIRST_NS, LAST_NS].map(|name| Field::new(name, DataType::Int64, false));
    let rest = rows.fields().iter().flat_map(|field| fields_of(field, table, grain));
    let of_use = usage::fields(rows).filter(|_| has_use(table));
    Arc::new(Schema::new(time.into_iter().chain(rest).chain(of_use).collect::<Vec<_>>()))
}

/// Puts merged rows together.
fn roll(
    records: &RecordBatch,
    (runs, stays): (&[Run], &[Stay]),
    schema: &SchemaRef,
    (table, grain): (Table, Grain),
) -> Result<RecordBatch, MergeError> {
    let times = timestamps(records);
    let step_ns = grain.step_ns().max(1);
    let step = |row: usize| time_at(times, row).div_euclid(step_ns);
    let starts = runs.iter().map(|run| step(run.start).saturating_mul(step_ns));
    let mut columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from_iter_values(starts))];
    let ends = Ends {
        first_ns: runs.iter().map(|run| time_at(times, run.start)).collect(),
        last_ns: runs.iter().map(|run| time_at(times, run.end - 1)).collect(),
    };
    columns.push(Arc::new(Int64Array::from(ends.first_ns.clone())));
    columns.push(Arc::new(Int64Array::from(ends.last_ns.clone())));
    for (field, array) in records.schema_ref().fields().iter().zip(records.columns()) {
        match metric_of(field.name(), table) {
            None if fields_of(field, table, grain).is_empty() => {}
            None => columns.push(newest(array, runs)?),
            Some(metric) => {
                let sketches = if has_sketch(metric, grain) { runs.len() } else { 0 };
                let tracks = if has_track(metric) { runs.len() } else { 0 };
                let mut measured = Measured {
                    metric,
                    cells: vec![Cell::EMPTY; runs.len()],
                    sketches: vec![Sketch::default(); sketches],
                    tracks: vec![Track::EMPTY; tracks],
                };
                count_column(&mut measured, times, array, runs)?;
                columns.extend(Figure::all(metric, grain).map(|figure| column(figure, &measured, &ends)));
            }
        }
    }
    if has_use(table) {
        columns.extend(usage::arrays(stays, records.schema_ref()));
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// Rows whose identity is not that of the row before, ascending.
fn changes(records: &RecordBatch) -> Vec<usize> {
    let mut changes = BTreeSet::new();
    for column in IdentityColumn::ALL {
        let text = records.column_by_name(column.name()).and_then(as_text);
        let Some(codes) = text.as_ref().and_then(|text| text.as_dictionary_opt::<Int32Type>()) else {
            continue;
        };
        let keys = codes.keys();
        let differs = |row: &usize| keys.is_null(*row) != keys.is_null(row - 1) || keys.is_valid(*row);
        let pairs = keys.values().windows(2).enumerate();
        let moved = pairs.filter(|(_, pair)| matches!(pair, [a, b] if a != b)).map(|(row, _)| row + 1);
        changes.extend(moved.filter(differs));
        if let Some(nulls) = keys.nulls().filter(|nulls| nulls.null_count() > 0) {
            changes.extend((1..nulls.len()).filter(|row| nulls.is_valid(*row) != nulls.is_valid(row - 1)));
        }
    }
    changes.into_iter().collect()
}

/// Times of the first and of the newest row of each run.
struct Ends {
    first_ns: Vec<i64>,
    last_ns: Vec<i64>,
}

/// The newest value of each run that has one.
fn newest(array: &ArrayRef, runs: &[Run]) -> Result<ArrayRef, MergeError> {
    let newest = |run: &Run| (run.start..run.end).rev().find(|row| array.is_valid(*row));
    let rows: UInt32Array =
        runs.iter().map(|run| newest(run).and_then(|row| u32::try_from(row).ok())).collect();
    Ok(take(array, &rows, None)?)
}

/// A column of figures.
#[expect(clippy::cast_possible_truncation, reason = "the values are the column's own, as 64-bit floats")]
fn column(figure: Figure, measured: &Measured, ends: &Ends) -> ArrayRef {
    let cells = || measured.cells.iter().map(|cell| (cell.count > 0).then_some(cell));
    let tracks = || measured.tracks.iter().map(|track| Some(track).filter(|track| !track.is_empty()));
    let of_cells = |value: fn(&Cell) -> f64| cells().map(|cell| cell.map(value)).collect();
    let of_tracks = |value: fn(&Track) -> f64| tracks().map(|track| track.map(value)).collect();
    let values: Vec<Option<f64>> = match figure {
        Figure::Min => of_cells(|cell| cell.min),
        Figure::Max => of_cells(|cell| cell.max),
        Figure::Last => of_cells(|cell| cell.last),
        Figure::Sum => of_cells(|cell| cell.sum),
        Figure::First => of_tracks(|track| track.first),
        Figure::Falls => {
            tracks().map(|track| track.map(|track| track.falls).filter(|falls| *falls > 0.0)).collect()
        }
        Figure::Count | Figure::LastNs | Figure::FirstNs | Figure::Sketch => Vec::new(),
    };
    let values = || values.iter().copied();
    let unless = |taken: Option<i64>, of_row: &i64| taken.filter(|taken| taken != of_row);
    match (figure, figure.data_type(measured.metric)) {
        (Figure::Sketch, _) => {
            let mut builder = BinaryBuilder::new();
            let mut bytes = Vec::new();
            for (cell, sketch) in cells().zip(&measured.sketches) {
                bytes.clear();
                sketch.encode(&mut bytes);
                builder.append_option(cell.map(|_| bytes.as_slice()));
            }
            Arc::new(builder.finish())
        }
        (Figure::Count, _) => {
            let count = |cell: &Cell| i32::try_from(cell.count).unwrap_or(i32::MAX);
            Arc::new(cells().map(|cell| cell.map(count)).collect::<Int32Array>())
        }
        (Figure::LastNs, _) => {
            let taken = cells().map(|cell| cell.map(|cell| cell.last_ns)).zip(&ends.last_ns);
            Arc::new(taken.map(|(taken, of_row)| unless(taken, of_row)).collect::<Int64Array>())
        }
        (Figure::FirstNs, _) => {
            let taken = tracks().map(|track| track.map(|track| track.first_ns)).zip(&ends.first_ns);
            Arc::new(taken.map(|(taken, of_row)| unless(taken, of_row)).collect::<Int64Array>())
        }
        (_, DataType::Int32) => Arc::new(values().map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
        (_, DataType::Int64) => Arc::new(values().map(|v| v.map(|v| v as i64)).collect::<Int64Array>()),
        (_, DataType::Float32) => Arc::new(values().map(|v| v.map(|v| v as f32)).collect::<Float32Array>()),
        _ => Arc::new(values().collect::<Float64Array>()),
    }
}

/// One rollup being written.
struct Rolling<'a> {
    grain: Grain,
    schema: SchemaRef,
    writer: TableWriter<'a>,
    rows: usize,
}

/// The rollups of a file that is being written.
pub(crate) struct Rollups<'a> {
    table: Table,
    config: &'a StoreConfig,
    rolling: Vec<Rolling<'a>>,
    rows: usize,
}

impl<'a> Rollups<'a> {
    /// Begins the rollups of a file.
    ///
    /// # Errors
    /// When a file cannot be made.
    pub(crate) fn create(
        of: &Place,
        rows: &Schema,
        config: &'a StoreConfig,
        steps: &'a FileSteps,
    ) -> Result<Self, StoreError> {
        let mut rolling = Vec::new();
        // A step that is longer than the file is never whole in it.
        let is_within = |grain: &Grain| grain.step_ns() <= of.span.end_ns() - of.span.start_ns();
        for grain in grains(of.table).iter().copied().filter(is_within) {
            let schema = schema(rows, of.table, grain);
            let place = Place { grain, first_sequence: 0, ..of.clone() };
            let writer = TableWriter::create(place, Arc::clone(&schema), config, steps)?;
            rolling.push(Rolling { grain, schema, writer, rows: 0 });
        }
        Ok(Self { table: of.table, config, rolling, rows: 0 })
    }

    /// Adds rows of GPUs that come after all earlier ones.
    ///
    /// # Errors
    /// As [`TableWriter::write`].
    pub(crate) fn write(&mut self, rows: &Sorted<'_>) -> Result<(), StoreError> {
        let mut from = 0;
        while from < rows.gpus.len() && !self.rolling.is_empty() {
            let start = |gpu: usize| rows.gpus.get(gpu).map_or(rows.len, |(_, start)| *start);
            let full = (from + 1..rows.gpus.len()).find(|gpu| start(*gpu) - start(from) >= PIECE_ROWS);
            let to = full.unwrap_or(rows.gpus.len());
            self.add(&(rows.batch)(start(from)..start(to))?, rows.gpus, from..to)?;
            from = to;
        }
        Ok(())
    }

    /// Adds some GPUs' rows.
    fn add(
        &mut self,
        records: &RecordBatch,
        gpus: &[(Arc<str>, usize)],
        of: Range<usize>,
    ) -> Result<(), StoreError> {
        let first = gpus.get(of.start).map_or(0, |(_, start)| *start);
        let of = gpus.get(of).unwrap_or_default().iter();
        let gpus: Vec<_> = of.map(|(key, start)| (Arc::clone(key), start - first)).collect();
        self.rows += records.num_rows();
        if self.table == Table::GpuUsage {
            return self.add_days(records, &gpus);
        }
        let (times, changes) = (timestamps(records), changes(records));
        let mut runs = Vec::new();
        for rolling in &mut self.rolling {
            let found = Runs::of(times, &gpus, &changes, rolling.grain.step_ns().max(1));
            rolling.rows += found.runs.len();
            runs.push((rolling.grain, found));
        }
        if self.rows >= TRIAL_ROWS {
            self.give_up(1);
        } else if self.rows >= PIECE_ROWS {
            self.give_up(HOPELESS);
        }
        let finest = runs.iter().map(|(_, runs)| runs).max_by_key(|runs| runs.runs.len());
        let finest = finest.filter(|_| has_use(self.table) && !self.rolling.is_empty());
        let stays = finest.map(|finest| Stays::of(records, times, finest));
        for rolling in &mut self.rolling {
            let Some((_, of_grain)) = runs.iter().find(|(grain, _)| *grain == rolling.grain) else {
                continue;
            };
            let stays = stays.as_ref().map_or_else(Vec::new, |stays| stays.by(of_grain));
            let Runs { runs, gpus } = of_grain;
            let records = roll(records, (runs, &stays), &rolling.schema, (self.table, rolling.grain))?;
            let batch = |rows: Range<usize>| Ok(records.slice(rows.start, rows.len()));
            rolling.writer.write(&Sorted { len: records.num_rows(), gpus, batch: &batch })?;
        }
        Ok(())
    }

    /// Adds some GPUs' rows of `gpu_usage`, by the day.
    fn add_days(&mut self, records: &RecordBatch, gpus: &[(Arc<str>, usize)]) -> Result<(), StoreError> {
        let starts: Vec<usize> = gpus.iter().map(|(_, start)| *start).collect();
        let DayRows { rows, starts } = Holdings::by_day(records, &starts).map_err(MergeError::from)?;
        let keys = gpus.iter().map(|(key, _)| Arc::clone(key));
        let gpus: Vec<_> = keys.zip(starts).collect();
        let batch = |of: Range<usize>| Ok(rows.slice(of.start, of.len()));
        for rolling in &mut self.rolling {
            rolling.rows += rows.num_rows();
            rolling.writer.write(&Sorted { len: rows.num_rows(), gpus: &gpus, batch: &batch })?;
        }
        if self.rows >= PIECE_ROWS {
            self.give_up(HOPELESS);
        }
        Ok(())
    }

    /// Drops those that have so many times the rows that are worth their room.
    fn give_up(&mut self, times: usize) {
        let most = self.rows.saturating_mul(times);
        let (part, of) = if has_figures(self.table) { (1, self.config.rollup_rows) } else { USAGE_PART };
        self.rolling.retain(|rolling| rolling.rows.saturating_mul(of) <= most.saturating_mul(part));
    }

    /// Ends the files and gives them their names.
    ///
    /// # Errors
    /// As [`TableWriter::finish`]; then none of them exists.
    pub(crate) fn finish(mut self, of: &Place) -> Result<Vec<FileRecord>, StoreError> {
        self.give_up(1);
        let mut records = Vec::new();
        for rolling in self.rolling {
            match rolling.writer.finish() {
                Ok(record) => records.push(record),
                Err(error) => {
                    discard_all(&of.root, &records);
                    return Err(error.into());
                }
            }
        }
        Ok(records)
    }
}
