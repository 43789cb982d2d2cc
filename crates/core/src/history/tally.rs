//! Values of rows counted into cells: one per metric, group and step.

mod fold;
mod grid;
mod labels;

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

use super::{BucketQuery, Buckets, Cell, Measured, Track};
use crate::batch::{data_type, timestamps};
use crate::merge::{MergeError, widen};

use fold::{TallyNumber, fold};
pub use grid::{StepGrid, Stretch};
pub use labels::{Label, RowLabels, SelectorVerdict, columns as label_columns, labels};

/// Rows of one group in one step, side by side and by time.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// Of the cell.
    pub place: usize,
    /// Of the track, if there are tracks.
    pub track: usize,
    /// The first row.
    pub start: usize,
    /// The row behind the last.
    pub end: usize,
}

/// Counts values of rows.
#[derive(Debug)]
pub struct Tally {
    /// Number of the first step among those of the grid.
    first: usize,
    /// The values so far.
    pub buckets: Buckets,
}

impl Tally {
    /// No values yet. Values outside these steps of the grid are not counted.
    pub fn new(grid: &StepGrid, (first, last): (usize, usize), query: &BucketQuery) -> Self {
        let buckets = Buckets::new(grid.steps.part(first..last + 1), &query.metrics, &query.aggregates);
        Self { first, buckets }
    }

    /// Counts rows; a row's GPU and times ascend as in files. Returns the ranges of rows in contested times: they are
    /// not counted.
    ///
    /// # Errors
    /// If a column has a type that cannot become the catalogue's.
    pub fn add(
        &mut self,
        records: &RecordBatch,
        labels: &RowLabels,
        grid: &StepGrid,
        contested: &[(i64, i64)],
    ) -> Result<Vec<Range<usize>>, MergeError> {
        let mut apart = Vec::new();
        let times = timestamps(records);
        let runs = self.runs(times, labels, (grid, contested), &mut apart);
        for measured in self.buckets.metrics_mut() {
            if let Some(array) = records.column_by_name(measured.metric.metric().column) {
                count_column(measured, times, array, &runs)?;
            }
        }
        Ok(apart)
    }

    /// Counts rows that are not made of plain values, such as those of a rollup: the runs are found here, and `count` adds
    /// them to each metric.
    ///
    /// # Errors
    /// The first that `count` has.
    pub fn add_as(
        &mut self,
        times: &[i64],
        labels: &RowLabels,
        grid: &StepGrid,
        mut count: impl FnMut(&mut Measured, &[Run]) -> Result<(), MergeError>,
    ) -> Result<(), MergeError> {
        let runs = self.runs(times, labels, (grid, &[]), &mut Vec::new());
        self.buckets.metrics_mut().iter_mut().try_for_each(|measured| count(measured, &runs))
    }

    fn runs(
        &mut self,
        times: &[i64],
        labels: &RowLabels,
        (grid, contested): (&StepGrid, &[(i64, i64)]),
        apart: &mut Vec<Range<usize>>,
    ) -> Vec<Run> {
        let mut runs = Vec::new();
        if self.buckets.groups().is_empty() {
            self.buckets.reserve(labels.names.len());
        }
        // Group and lane of each label that was met.
        let mut known: Vec<Option<(usize, usize)>> = vec![None; labels.names.len()];
        let mut start = 0;
        while let Some(&time_ns) = times.get(start) {
            let (stretch, from, to) = grid.stretch(time_ns, contested);
            let end = run_end(times, labels.ids.as_deref(), start, from..=to);
            match stretch {
                Stretch::Contested => match apart.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => apart.push(start..end),
                },
                Stretch::Step(step) => {
                    let id = labels.ids.as_ref().map_or(0, |ids| ids.get(start).map_or(0, |&id| id as usize));
                    let series = known
                        .get(id)
                        .copied()
                        .flatten()
                        .or_else(|| labels.names.get(id).map(|label| self.series(label)));
                    let step = step.checked_sub(self.first).filter(|&step| step < self.buckets.steps().count);
                    if let (Some((group, lane)), Some(step)) = (series, step) {
                        known.get_mut(id).into_iter().for_each(|slot| *slot = series);
                        let (place, track) =
                            (self.buckets.place(group, step), self.buckets.place(lane, step));
                        runs.push(Run { place, track, start, end });
                    }
                }
                Stretch::Outside => {}
            }
            start = end;
        }
        runs
    }

    /// Group and lane of a label.
    fn series(&mut self, label: &Label) -> (usize, usize) {
        let group = self.buckets.group(&label.group);
        (group, label.gpu.as_ref().map_or(0, |gpu| self.buckets.lane(group, gpu)))
    }
}

/// Counts the values of a metric's column, run by run, into the cells of their places.
///
/// # Errors
/// If the column has a type that cannot become the catalogue's.
pub fn count_column(
    measured: &mut Measured,
    times: &[i64],
    array: &ArrayRef,
    runs: &[Run],
) -> Result<(), MergeError> {
    let facts = measured.metric.metric();
    let array = widen(facts.column, array, &data_type(facts.column_type))?;
    let mut sink = CellSink { measured, times };
    let nulls = array.nulls();
    match array.data_type() {
        DataType::Int32 => sink.column(array.as_primitive::<Int32Type>().values(), nulls, runs),
        DataType::Int64 => sink.column(array.as_primitive::<Int64Type>().values(), nulls, runs),
        DataType::Float32 => sink.column(array.as_primitive::<Float32Type>().values(), nulls, runs),
        DataType::Float64 => sink.column(array.as_primitive::<Float64Type>().values(), nulls, runs),
        _ => {}
    }
    Ok(())
}

/// End of the rows of one group whose times ascend and are in the stretch; at least one row on.
fn run_end(
    times: &[i64],
    ids: Option<&[u32]>,
    start: usize,
    stretch: std::ops::RangeInclusive<i64>,
) -> usize {
    let times = times.get(start..).unwrap_or(&[]);
    let ascending = |pair: &[i64]| matches!(pair, [a, b] if a < b && stretch.contains(b));
    let by_time = 1 + times.windows(2).take_while(|pair| ascending(pair)).count();
    let ids = ids.and_then(|ids| ids.get(start..start + by_time));
    let by_group = match ids {
        Some([first, rest @ ..]) => 1 + rest.iter().take_while(|id| *id == first).count(),
        _ => by_time,
    };
    start + by_group.min(times.len().max(1))
}

/// The destination of one metric's values.
struct CellSink<'a> {
    measured: &'a mut Measured,
    times: &'a [i64],
}

impl CellSink<'_> {
    fn column<T: TallyNumber>(&mut self, values: &[T], nulls: Option<&NullBuffer>, runs: &[Run]) {
        let mut compact: Vec<T> = Vec::new();
        for run in runs {
            let Some(slice) = values.get(run.start..run.end) else { continue };
            let holes = nulls.is_some_and(|nulls| nulls.slice(run.start, slice.len()).null_count() > 0);
            let (mut slice, mut last_row) = (slice, run.end - 1);
            let mut folded = fold(slice);
            // The value under a null is arbitrary; NaN and infinities are not values.
            if holes || !folded.sum.is_finite() {
                compact.clear();
                let valid = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
                for (row, value) in (run.start..).zip(slice) {
                    if valid(row) && value.float().is_finite() {
                        compact.push(*value);
                        last_row = row;
                    }
                }
                if compact.is_empty() {
                    continue;
                }
                slice = &compact;
                folded = fold(slice);
            }
            if !self.measured.tracks.is_empty() {
                self.follow(run, values, nulls);
            }
            self.keep(
                run,
                slice,
                Cell {
                    count: slice.len() as u64,
                    sum: folded.sum,
                    min: folded.min.float(),
                    max: folded.max.float(),
                    last_ns: self.times.get(last_row).copied().unwrap_or(i64::MIN),
                    last: slice.last().map_or(f64::NAN, |last| last.float()),
                },
            );
        }
    }

    /// Adds the run's values to its track.
    fn follow<T: TallyNumber>(&mut self, run: &Run, values: &[T], nulls: Option<&NullBuffer>) {
        let Some(track) = self.measured.tracks.get_mut(run.track) else { return };
        for row in run.start..run.end {
            if let (Some(value), Some(&time_ns)) = (values.get(row), self.times.get(row))
                && nulls.is_none_or(|nulls| nulls.is_valid(row))
                && value.float().is_finite()
            {
                track.merge(&Track::of(time_ns, value.float()));
            }
        }
    }

    fn keep<T: TallyNumber>(&mut self, run: &Run, values: &[T], cell: Cell) {
        if let Some(own) = self.measured.cells.get_mut(run.place) {
            own.merge(&cell);
        }
        if let Some(sketch) = self.measured.sketches.get_mut(run.place) {
            for value in values {
                sketch.add(value.float());
            }
        }
    }
}
