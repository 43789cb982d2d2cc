//! Values counted into cells: one per metric, group and bucket.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use foldhash::fast::RandomState;
use gpuvitals_core::MetricId;
use gpuvitals_core::batch::data_type;
use gpuvitals_core::catalogue::ColumnType;

use super::POINTS_MAX;
use super::fold::{Number, fold};
use super::grid::{Grid, Stretch};
use crate::merge::{MergeError, widen};
use crate::tail;

/// Figures of the values of a bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cell {
    pub(crate) count: u64,
    pub(crate) sum: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// When the newest was taken.
    last_ns: i64,
    /// The newest; of several that were taken at once the largest.
    pub(crate) last: f64,
}

impl Cell {
    const EMPTY: Self = Self {
        count: 0,
        sum: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        last_ns: i64::MIN,
        last: f64::NAN,
    };

    fn join(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let newer = other.last_ns > self.last_ns || (other.last_ns == self.last_ns && other.last > self.last);
        if self.count == 0 || newer {
            (self.last_ns, self.last) = (other.last_ns, other.last);
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

/// Numbers kept for percentiles, as integers of the same order.
#[derive(Debug)]
pub(crate) enum Ranks {
    /// Of 32-bit columns.
    Narrow(Vec<u32>),
    /// Of 64-bit columns.
    Wide(Vec<u64>),
}

impl Ranks {
    fn of(column_type: ColumnType) -> Self {
        match column_type {
            ColumnType::I32 | ColumnType::F32 => Self::Narrow(Vec::new()),
            ColumnType::I64 | ColumnType::F64 => Self::Wide(Vec::new()),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Narrow(ranks) => ranks.len(),
            Self::Wide(ranks) => ranks.len(),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "ranks of 32-bit numbers have 32 bits")]
    fn extend<T: Number>(&mut self, values: &[T]) {
        match self {
            Self::Narrow(ranks) => ranks.extend(values.iter().map(|value| value.rank() as u32)),
            Self::Wide(ranks) => ranks.extend(values.iter().map(|value| value.rank())),
        }
    }
}

/// Ranks that belong to one cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RankRun {
    pub(crate) group: u32,
    /// In the grid.
    pub(crate) bucket: u32,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// Values of one part for percentiles.
#[derive(Debug)]
pub(crate) struct Samples {
    pub(crate) ranks: Ranks,
    pub(crate) runs: Vec<RankRun>,
}

/// One metric's cells and values.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) metric: MetricId,
    /// By group, then by bucket of the window.
    pub(crate) cells: Vec<Cell>,
    pub(crate) samples: Vec<Samples>,
}

/// Which series a row belongs to.
#[derive(Debug)]
pub(crate) struct Labels {
    /// Per row an index into `names`; none: all rows belong to the first.
    pub(crate) ids: Option<Vec<u32>>,
    /// Names of groups; two may be the same.
    pub(crate) names: Vec<Arc<str>>,
}

/// Rows of one group in one bucket, side by side and by time.
#[derive(Debug, Clone, Copy)]
struct Run {
    group: u32,
    bucket: u32,
    start: usize,
    end: usize,
}

/// Cells of some metrics over a window of buckets.
#[derive(Debug)]
pub(crate) struct Tally {
    window: Range<usize>,
    pub(crate) names: Vec<Arc<str>>,
    index: HashMap<Arc<str>, u32, RandomState>,
    pub(crate) counted: Vec<Counted>,
    percentiles: bool,
}

impl Tally {
    /// No values yet. The window is in buckets of the grid; values outside are not counted.
    pub(crate) fn new(metrics: &[MetricId], window: Range<usize>, percentiles: bool) -> Self {
        let counted = |&metric| Counted { metric, cells: Vec::new(), samples: Vec::new() };
        Self {
            window,
            names: Vec::new(),
            index: HashMap::default(),
            counted: metrics.iter().map(counted).collect(),
            percentiles,
        }
    }

    /// Buckets of the window.
    pub(crate) fn buckets(&self) -> usize {
        self.window.len()
    }

    /// Number of values kept; one that is alone in its run counts for eleven, and a cell for three, by the
    /// memory they take.
    pub(crate) fn values(&self) -> usize {
        let samples = self.counted.iter().flat_map(|counted| &counted.samples);
        let kept: usize = samples.map(|samples| samples.ranks.len() + 10 * samples.runs.len()).sum();
        kept + self.counted.iter().map(|counted| 3 * counted.cells.len()).sum::<usize>()
    }

    fn group(&mut self, name: &Arc<str>) -> u32 {
        if let Some(&group) = self.index.get(name) {
            return group;
        }
        let group = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(Arc::clone(name));
        self.index.insert(Arc::clone(name), group);
        let cells = self.names.len() * self.window.len();
        // An answer over the bound is refused by its number of names; its cells are not created.
        if (cells * self.counted.len()) as u64 <= POINTS_MAX {
            for counted in &mut self.counted {
                counted.cells.resize(cells, Cell::EMPTY);
            }
        }
        group
    }

    /// Counts rows (of the ranges); a row's GPU and times ascend as in files. Returns the ranges of rows in
    /// contested times: they are not counted.
    ///
    /// # Errors
    /// If a column has a type that cannot become the catalogue's.
    pub(crate) fn add(
        &mut self,
        records: &RecordBatch,
        ranges: &[Range<usize>],
        labels: &Labels,
        grid: &Grid,
        contested: &[(i64, i64)],
    ) -> Result<Vec<Range<usize>>, MergeError> {
        let mut apart = Vec::new();
        let times = tail::timestamps(records);
        let runs = self.runs(times, ranges, labels, (grid, contested), &mut apart);
        let (window, percentiles) = (self.window.clone(), self.percentiles);
        for counted in &mut self.counted {
            let facts = counted.metric.metric();
            let Some(array) = records.column_by_name(facts.column) else { continue };
            let array = widen(facts.column, array, &data_type(facts.column_type))?;
            let mut samples =
                percentiles.then(|| Samples { ranks: Ranks::of(facts.column_type), runs: Vec::new() });
            let mut sink =
                Sink { cells: &mut counted.cells, samples: samples.as_mut(), window: &window, times };
            let nulls = array.nulls();
            match array.data_type() {
                DataType::Int32 => sink.column(array.as_primitive::<Int32Type>().values(), nulls, &runs),
                DataType::Int64 => sink.column(array.as_primitive::<Int64Type>().values(), nulls, &runs),
                DataType::Float32 => sink.column(array.as_primitive::<Float32Type>().values(), nulls, &runs),
                DataType::Float64 => sink.column(array.as_primitive::<Float64Type>().values(), nulls, &runs),
                _ => {}
            }
            counted.samples.extend(samples.filter(|samples| samples.ranks.len() > 0));
        }
        Ok(apart)
    }

    fn runs(
        &mut self,
        times: &[i64],
        ranges: &[Range<usize>],
        labels: &Labels,
        (grid, contested): (&Grid, &[(i64, i64)]),
        apart: &mut Vec<Range<usize>>,
    ) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut groups: Vec<Option<u32>> = vec![None; labels.names.len()];
        for range in ranges {
            let mut start = range.start;
            while let Some(&first) = times.get(start).filter(|_| start < range.end) {
                let (stretch, from, to) = grid.stretch(first, contested);
                let end = run_end(times, labels.ids.as_deref(), start..range.end, from..=to);
                match stretch {
                    Stretch::Contested => match apart.last_mut() {
                        Some(last) if last.end == start => last.end = end,
                        _ => apart.push(start..end),
                    },
                    Stretch::Bucket(bucket) if self.window.contains(&bucket) => {
                        let id =
                            labels.ids.as_ref().map_or(0, |ids| ids.get(start).map_or(0, |&id| id as usize));
                        let known = groups.get(id).copied().flatten();
                        let group = known.or_else(|| labels.names.get(id).map(|name| self.group(name)));
                        if let (Some(group), Ok(bucket)) = (group, u32::try_from(bucket)) {
                            groups.get_mut(id).into_iter().for_each(|slot| *slot = Some(group));
                            runs.push(Run { group, bucket, start, end });
                        }
                    }
                    Stretch::Outside | Stretch::Bucket(_) => {}
                }
                start = end;
            }
        }
        runs
    }

    /// Adds another tally of the same metrics; its window is inside this one's.
    pub(crate) fn absorb(&mut self, other: Self) {
        let groups: Vec<u32> = other.names.iter().map(|name| self.group(name)).collect();
        let shift = other.window.start.saturating_sub(self.window.start);
        for (mine, theirs) in self.counted.iter_mut().zip(other.counted) {
            for (&group, cells) in groups.iter().zip(theirs.cells.chunks(other.window.len().max(1))) {
                let start = group as usize * self.window.len() + shift;
                let own = mine.cells.get_mut(start..start + cells.len()).unwrap_or_default();
                own.iter_mut().zip(cells).for_each(|(own, cell)| own.join(cell));
            }
            for mut samples in theirs.samples {
                for run in &mut samples.runs {
                    run.group = groups.get(run.group as usize).copied().unwrap_or(u32::MAX);
                }
                mine.samples.push(samples);
            }
        }
    }
}

/// End of the rows of one group whose times ascend and are in the stretch; at least one row on.
fn run_end(
    times: &[i64],
    ids: Option<&[u32]>,
    range: Range<usize>,
    stretch: std::ops::RangeInclusive<i64>,
) -> usize {
    let times = times.get(range.clone()).unwrap_or(&[]);
    let ascending = |pair: &[i64]| matches!(pair, [a, b] if a < b && stretch.contains(b));
    let by_time = 1 + times.windows(2).take_while(|pair| ascending(pair)).count();
    let ids = ids.and_then(|ids| ids.get(range.start..range.start + by_time));
    let by_group = match ids {
        Some([first, rest @ ..]) => 1 + rest.iter().take_while(|id| *id == first).count(),
        _ => by_time,
    };
    range.start + by_group.min(times.len().max(1))
}

/// The destination of one metric's values.
struct Sink<'a> {
    cells: &'a mut [Cell],
    samples: Option<&'a mut Samples>,
    window: &'a Range<usize>,
    times: &'a [i64],
}

impl Sink<'_> {
    fn column<T: Number>(&mut self, values: &[T], nulls: Option<&NullBuffer>, runs: &[Run]) {
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

    fn keep<T: Number>(&mut self, run: &Run, values: &[T], cell: Cell) {
        let at =
            run.group as usize * self.window.len() + (run.bucket as usize).saturating_sub(self.window.start);
        if let Some(own) = self.cells.get_mut(at) {
            own.join(&cell);
        }
        let Some(samples) = &mut self.samples else { return };
        if let (Ok(start), Ok(len)) = (u32::try_from(samples.ranks.len()), u32::try_from(values.len())) {
            samples.ranks.extend(values);
            samples.runs.push(RankRun { group: run.group, bucket: run.bucket, start, len });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvitals_core::catalogue;

    #[test]
    fn cells_are_not_made_beyond_what_an_answer_may_have() {
        let power = catalogue::by_column("power_w").unwrap();
        let mut tally = Tally::new(&[power, power], 0..10_000, false);
        for gpu in 0..1_000 {
            tally.group(&Arc::from(format!("GPU-{gpu}")));
        }
        let cells: usize = tally.counted.iter().map(|counted| counted.cells.len()).sum();
        assert_eq!((tally.names.len(), cells as u64), (1_000, POINTS_MAX));
    }
}
