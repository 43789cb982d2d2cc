//! Rows of rollups, counted into cells.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, BinaryArray, Float64Array, Int64Array, RecordBatch};
use arrow_schema::DataType;
use gpuvitals_core::MetricId;
use gpuvitals_core::history::{Aggregate, Cell, Measured, Track};

use crate::rollup::{FIRST_NS, Figure, LAST_NS};
use gpuvitals_core::batch::timestamps;
use gpuvitals_core::history::tally::Run;
use gpuvitals_core::merge::{MergeError, widen};

/// Names of the columns of times that some aggregates need.
pub(crate) fn times(aggregates: &[Aggregate]) -> impl Iterator<Item = String> {
    let tracks = aggregates.iter().any(|aggregate| aggregate.needs_tracks());
    let last = (tracks || aggregates.contains(&Aggregate::Last)).then_some(LAST_NS);
    last.into_iter().chain(tracks.then_some(FIRST_NS)).map(str::to_owned)
}

/// Names of the columns that some aggregates of a metric need.
pub(crate) fn columns(metric: MetricId, aggregates: &[Aggregate]) -> impl Iterator<Item = String> {
    let asked = |aggregate: Aggregate| aggregates.contains(&aggregate);
    // A percentile is never beyond the smallest and the largest value.
    let tracks = aggregates.iter().any(|aggregate| aggregate.needs_tracks());
    let limits = aggregates.iter().any(|aggregate| aggregate.needs_sketch());
    let needed = [
        (Figure::Count, true),
        (Figure::Sum, asked(Aggregate::Mean)),
        (Figure::Min, asked(Aggregate::Min) || limits),
        (Figure::Max, asked(Aggregate::Max) || limits),
        (Figure::Last, asked(Aggregate::Last) || tracks),
        (Figure::LastNs, asked(Aggregate::Last) || tracks),
        (Figure::First, tracks),
        (Figure::FirstNs, tracks),
        (Figure::Falls, tracks),
        (Figure::Sketch, limits),
    ];
    needed.into_iter().filter(|(_, is_needed)| *is_needed).map(move |(figure, _)| figure.column(metric))
}

/// The figures of a metric in some rows of a rollup. A figure that was not read is the one of an empty cell.
struct Figures {
    min: Option<Float64Array>,
    max: Option<Float64Array>,
    last: Option<Float64Array>,
    sum: Option<Float64Array>,
    last_ns: Option<Int64Array>,
    first: Option<Float64Array>,
    first_ns: Option<Int64Array>,
    falls: Option<Float64Array>,
    /// Of the first row; without it the start of the step.
    first_row_ns: Int64Array,
    /// Of the newest row; without it the start of the step.
    row_ns: Int64Array,
    sketch: Option<BinaryArray>,
}

impl Figures {
    fn of(metric: MetricId, records: &RecordBatch) -> Result<Self, MergeError> {
        let float = |figure: Figure| {
            let name = figure.column(metric);
            let array = records.column_by_name(&name);
            let array = array.map(|array| widen(&name, array, &DataType::Float64)).transpose()?;
            Ok::<_, MergeError>(array.map(|array| array.as_primitive::<Float64Type>().clone()))
        };
        let times = |name: &str| records.column_by_name(name)?.as_primitive_opt::<Int64Type>().cloned();
        let starts = || timestamps(records).to_vec().into();
        let sketch = records.column_by_name(&Figure::Sketch.column(metric));
        Ok(Self {
            min: float(Figure::Min)?,
            max: float(Figure::Max)?,
            last: float(Figure::Last)?,
            sum: float(Figure::Sum)?,
            last_ns: times(&Figure::LastNs.column(metric)),
            first: float(Figure::First)?,
            first_ns: times(&Figure::FirstNs.column(metric)),
            falls: float(Figure::Falls)?,
            first_row_ns: times(FIRST_NS).unwrap_or_else(starts),
            row_ns: times(LAST_NS).unwrap_or_else(starts),
            sketch: sketch.and_then(|array| array.as_binary_opt::<i32>().cloned()),
        })
    }

    /// The cell of a row with values.
    fn cell(&self, row: usize, count: i32) -> Cell {
        let float =
            |array: &Option<Float64Array>, otherwise: f64| at(array.as_ref(), row).unwrap_or(otherwise);
        let last_ns = self.last_ns.as_ref().filter(|array| array.is_valid(row));
        Cell {
            count: u64::try_from(count).unwrap_or(0),
            sum: float(&self.sum, Cell::EMPTY.sum),
            min: float(&self.min, Cell::EMPTY.min),
            max: float(&self.max, Cell::EMPTY.max),
            last_ns: last_ns.unwrap_or(&self.row_ns).value(row),
            last: float(&self.last, Cell::EMPTY.last),
        }
    }

    /// The track of a row with values; none of a metric without tracks.
    fn track(&self, row: usize) -> Option<Track> {
        let time = |own: &Option<Int64Array>, of_row: &Int64Array| {
            own.as_ref().filter(|array| array.is_valid(row)).unwrap_or(of_row).value(row)
        };
        Some(Track {
            first_ns: time(&self.first_ns, &self.first_row_ns),
            first: at(self.first.as_ref(), row)?,
            last_ns: time(&self.last_ns, &self.row_ns),
            last: at(self.last.as_ref(), row)?,
            falls: at(self.falls.as_ref(), row).unwrap_or(0.0),
        })
    }
}

fn at(array: Option<&Float64Array>, row: usize) -> Option<f64> {
    array.filter(|array| array.is_valid(row)).map(|array| array.value(row))
}

/// Counts a metric's figures, run by run.
///
/// # Errors
/// If a column has a type that cannot become a 64-bit float.
pub(crate) fn count(measured: &mut Measured, records: &RecordBatch, runs: &[Run]) -> Result<(), MergeError> {
    let counts = records.column_by_name(&Figure::Count.column(measured.metric));
    let Some(counts) = counts.and_then(|array| array.as_primitive_opt::<Int32Type>()) else { return Ok(()) };
    let figures = Figures::of(measured.metric, records)?;
    for run in runs {
        let mut cell = Cell::EMPTY;
        for row in (run.start..run.end).filter(|row| counts.is_valid(*row)) {
            cell.merge(&figures.cell(row, counts.value(row)));
            if let Some(track) = measured.tracks.get_mut(run.track) {
                figures.track(row).iter().for_each(|own| track.merge(own));
            }
            let sketch = figures.sketch.as_ref().filter(|array| array.is_valid(row));
            if let (Some(bytes), Some(own)) = (sketch, measured.sketches.get_mut(run.place)) {
                // The bytes are under a checksum.
                let _is_sketch = own.merge_encoded(bytes.value(row));
            }
        }
        if let Some(own) = measured.cells.get_mut(run.place) {
            own.merge(&cell);
        }
    }
    Ok(())
}
