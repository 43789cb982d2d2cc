//! Values by steps of time, in a form that can be put together.
//!
//! Of each metric, group and step there is a [`Cell`]; if a percentile is asked for there is also a [`Sketch`], and if a
//! rate, increase or delta is, a [`Track`] of each GPU.
//! Answers of several histories, none of which has a row of another, [merge](Buckets::merge) into the answer of all rows;
//! [`Buckets::series`] turns it into the lines of a chart.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::error::QueryError;
use super::query::{Aggregate, BucketSeries, COUNTS_MAX, GroupName, POINTS_MAX};
use super::steps::TimeSteps;
use super::track::Track;
use crate::MetricId;
use crate::catalogue::ColumnType;
use crate::number::float;
use crate::sketch::Sketch;

/// Counts that a cell or an empty sketch counts for, by the memory it takes.
const CELL_COUNTS: usize = 3;
/// Counts that a track counts for.
const TRACK_COUNTS: usize = 5;

/// Figures of the values of one metric and group in a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cell {
    /// How many values; if none, the other figures mean nothing.
    pub count: u64,
    /// The sum of the values, in the column unit.
    pub sum: f64,
    /// The smallest value, in the column unit.
    pub min: f64,
    /// The largest value, in the column unit.
    pub max: f64,
    /// When the newest was taken, nanoseconds UTC since 1970.
    pub last_ns: i64,
    /// The newest; of several that were taken at once the largest.
    pub last: f64,
}

impl Cell {
    /// Without a value.
    pub const EMPTY: Self = Self {
        count: 0,
        sum: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
        last_ns: i64::MIN,
        last: f64::NAN,
    };

    /// Adds the values of another cell.
    pub fn merge(&mut self, other: &Self) {
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

/// One metric's values by group, then by step.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The metric that was measured.
    pub metric: MetricId,
    /// Figures of the values.
    pub cells: Vec<Cell>,
    /// Frequencies of the values, beside the cells; empty unless a percentile is asked for.
    pub sketches: Vec<Sketch>,
    /// How the values of each GPU and group moved, by lane, then by step; empty unless asked for.
    pub tracks: Vec<Track>,
}

/// Two answers that are not to the same question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("buckets of other metrics or steps cannot be put together")]
pub struct UnlikeBuckets;

/// Values by steps of time.
#[derive(Debug, Clone)]
pub struct Buckets {
    steps: TimeSteps,
    groups: Vec<GroupName>,
    index: HashMap<GroupName, usize, RandomState>,
    /// Groups and keys of GPUs.
    lanes: Vec<(usize, Arc<str>)>,
    lane_index: HashMap<(usize, Arc<str>), usize, RandomState>,
    metrics: Vec<Measured>,
    with_sketches: bool,
    with_tracks: bool,
    rollup_ns: i64,
}

impl Buckets {
    /// No values yet, with what the aggregates need.
    pub fn new(steps: TimeSteps, metrics: &[MetricId], aggregates: &[Aggregate]) -> Self {
        let measured =
            |&metric| Measured { metric, cells: Vec::new(), sketches: Vec::new(), tracks: Vec::new() };
        Self {
            steps,
            groups: Vec::new(),
            index: HashMap::default(),
            lanes: Vec::new(),
            lane_index: HashMap::default(),
            metrics: metrics.iter().map(measured).collect(),
            with_sketches: aggregates.iter().any(|aggregate| aggregate.needs_sketch()),
            with_tracks: aggregates.iter().any(|aggregate| aggregate.needs_tracks()),
            rollup_ns: 0,
        }
    }

    /// Whether it has a track of each GPU in each group.
    pub fn has_tracks(&self) -> bool {
        self.with_tracks
    }

    /// The steps of time, the same for every metric and group.
    pub fn steps(&self) -> TimeSteps {
        self.steps
    }

    /// Notes that a rollup with steps of this width in nanoseconds was read; 0: rows.
    pub fn read(&mut self, rollup_ns: i64) {
        self.rollup_ns = self.rollup_ns.max(rollup_ns);
    }

    /// Width of the steps of the coarsest rollup that this was made of, nanoseconds; 0: of rows alone.
    pub fn rollup_ns(&self) -> i64 {
        self.rollup_ns
    }

    /// The names of the groups, in the order of the cells.
    pub fn groups(&self) -> &[GroupName] {
        &self.groups
    }

    /// Number of a group, which is there from now on.
    pub fn group(&mut self, name: &GroupName) -> usize {
        if let Some(&group) = self.index.get(name) {
            return group;
        }
        let group = self.add_group(name);
        self.make_cells();
        group
    }

    /// Adds the groups of answers that are to be merged, in their order: so each cell is made once, and none is copied for more room.
    pub fn add_groups_of<'a>(&mut self, others: impl IntoIterator<Item = &'a Self>) {
        for name in others.into_iter().flat_map(|other| &other.groups) {
            if !self.index.contains_key(name) {
                self.add_group(name);
            }
        }
        self.make_cells();
    }

    /// Makes room for so many groups, within the bound of an answer.
    pub fn reserve(&mut self, groups: usize) {
        let cells = groups.saturating_mul(self.steps.count);
        let points = cells.saturating_mul(self.metrics.len()) as u64;
        if points <= POINTS_MAX {
            self.metrics.iter_mut().for_each(|measured| make_room(&mut measured.cells, cells));
        }
    }

    fn add_group(&mut self, name: &GroupName) -> usize {
        let group = self.groups.len();
        self.groups.push(Arc::clone(name));
        self.index.insert(Arc::clone(name), group);
        group
    }

    /// Makes the cells that groups lack. An answer over the bound is refused by `check`; its cells are not created.
    fn make_cells(&mut self) {
        let cells = self.groups.len() * self.steps.count;
        if (cells * self.metrics.len()) as u64 <= POINTS_MAX {
            for measured in &mut self.metrics {
                make_room(&mut measured.cells, cells);
                measured.cells.resize(cells, Cell::EMPTY);
                if self.with_sketches {
                    measured.sketches.resize_with(cells, Sketch::default);
                }
            }
        }
    }

    /// Groups and keys of GPUs of the lanes, in order.
    pub fn lanes(&self) -> &[(usize, Arc<str>)] {
        &self.lanes
    }

    /// Number of the lane of a GPU in a group, which is there from now on.
    pub fn lane(&mut self, group: usize, gpu: &Arc<str>) -> usize {
        let name = (group, Arc::clone(gpu));
        if let Some(&lane) = self.lane_index.get(&name) {
            return lane;
        }
        let lane = self.lanes.len();
        self.lanes.push(name.clone());
        self.lane_index.insert(name, lane);
        // An answer over the bound is refused by `check`; its tracks are not created.
        if self.track_counts() as u64 <= COUNTS_MAX {
            let tracks = self.lanes.len() * self.steps.count;
            for measured in &mut self.metrics {
                make_room(&mut measured.tracks, tracks);
                measured.tracks.resize(tracks, Track::EMPTY);
            }
        }
        lane
    }

    fn track_counts(&self) -> usize {
        TRACK_COUNTS * self.lanes.len() * self.steps.count * self.metrics.len()
    }

    /// The metrics in the order asked.
    pub fn metrics(&self) -> &[Measured] {
        &self.metrics
    }

    /// The metrics in the order asked, to add values to. The place of a group's step is [`Buckets::place`].
    pub fn metrics_mut(&mut self) -> &mut [Measured] {
        &mut self.metrics
    }

    /// Place of a group's step in [`Measured::cells`] and [`Measured::sketches`], or of a lane's in [`Measured::tracks`].
    pub fn place(&self, group: usize, step: usize) -> usize {
        group * self.steps.count + step
    }

    /// Checks the size against the bounds of an answer.
    ///
    /// # Errors
    /// If there are too many points, or the sketches and tracks have too many counts.
    pub fn check(&self, aggregates: usize) -> Result<(), QueryError> {
        if (self.with_sketches || self.with_tracks) && self.counts() as u64 > COUNTS_MAX {
            return Err(QueryError::TooManyValues { max: COUNTS_MAX });
        }
        self.check_points(aggregates)
    }

    /// Checks the numbers of points and tracks alone, in O(1).
    ///
    /// # Errors
    /// If there are too many.
    pub fn check_points(&self, aggregates: usize) -> Result<(), QueryError> {
        let series = self.groups.len() * self.metrics.len() * aggregates.max(1);
        if (series as u64).saturating_mul(self.steps.count as u64) > POINTS_MAX {
            return Err(QueryError::TooManyPoints { max: POINTS_MAX });
        }
        if self.with_tracks && self.track_counts() as u64 > COUNTS_MAX {
            return Err(QueryError::TooManyValues { max: COUNTS_MAX });
        }
        Ok(())
    }

    /// Counts held; a cell and a sketch count for three each and a track for five, by the memory they take.
    pub fn counts(&self) -> usize {
        let counts = self.metrics.iter().map(|measured| {
            let counts: usize = measured.sketches.iter().map(|sketch| CELL_COUNTS + sketch.buckets()).sum();
            CELL_COUNTS * measured.cells.len() + counts
        });
        counts.sum::<usize>() + self.track_counts()
    }

    /// Adds the values of other rows: an answer to the same question, or to a part of its time. A cell has no keys: a row
    /// that both answers hold is counted twice. So answers may be put together only if no row is in both: the store merges
    /// rows by key before it counts them, and several histories must each hold rows (or times) that the others do not.
    ///
    /// # Errors
    /// If it is none. Nothing was added then.
    pub fn merge(&mut self, other: Self) -> Result<(), UnlikeBuckets> {
        let shift_ns = other.steps.origin_ns - self.steps.origin_ns;
        let shift = usize::try_from(shift_ns / self.steps.step_ns).map_err(|_| UnlikeBuckets)?;
        let (mine, theirs) = (self.metrics.iter(), other.metrics.iter());
        if other.steps.step_ns != self.steps.step_ns
            || shift_ns % self.steps.step_ns != 0
            || shift + other.steps.count > self.steps.count
            || (other.with_sketches, other.with_tracks) != (self.with_sketches, self.with_tracks)
            || !mine.map(|measured| measured.metric).eq(theirs.map(|measured| measured.metric))
        {
            return Err(UnlikeBuckets);
        }
        self.read(other.rollup_ns);
        if self.groups.is_empty() && self.steps == other.steps {
            // Nothing to add to: the other's cells are the answer, without a second copy of them.
            *self = Self { rollup_ns: self.rollup_ns, ..other };
            return Ok(());
        }
        let groups: Vec<usize> = other.groups.iter().map(|name| self.group(name)).collect();
        let places: Vec<usize> = groups.iter().map(|&group| self.place(group, shift)).collect();
        let lanes = other.lanes.iter().filter_map(|(group, gpu)| Some((*groups.get(*group)?, gpu)));
        let lanes: Vec<usize> = lanes.map(|(group, gpu)| self.lane(group, gpu)).collect();
        let lanes: Vec<usize> = lanes.into_iter().map(|lane| self.place(lane, shift)).collect();
        let steps = other.steps.count.max(1);
        for (mine, theirs) in self.metrics.iter_mut().zip(other.metrics) {
            for (&place, cells) in places.iter().zip(theirs.cells.chunks(steps)) {
                let own = mine.cells.get_mut(place..place + cells.len()).unwrap_or_default();
                own.iter_mut().zip(cells).for_each(|(own, cell)| own.merge(cell));
            }
            for (&place, sketches) in places.iter().zip(theirs.sketches.chunks(steps)) {
                let own = mine.sketches.get_mut(place..place + sketches.len()).unwrap_or_default();
                own.iter_mut().zip(sketches).for_each(|(own, sketch)| own.merge(sketch));
            }
            for (&place, tracks) in lanes.iter().zip(theirs.tracks.chunks(steps)) {
                let own = mine.tracks.get_mut(place..place + tracks.len()).unwrap_or_default();
                own.iter_mut().zip(tracks).for_each(|(own, track)| own.merge(track));
            }
        }
        Ok(())
    }

    /// Whether another answer to the same question has values of a metric in a group's step that this one has, too.
    pub fn meets(&self, other: &Self) -> bool {
        let shift = usize::try_from((other.steps.origin_ns - self.steps.origin_ns) / self.steps.step_ns);
        let Ok(shift) = shift else { return false };
        let steps = other.steps.count.max(1);
        other.groups.iter().enumerate().any(|(group, name)| {
            let Some(&own) = self.index.get(name) else { return false };
            let (here, there) = (self.place(own, shift), other.place(group, 0));
            self.metrics.iter().zip(&other.metrics).any(|(mine, theirs)| {
                let mine = mine.cells.get(here..).unwrap_or_default().iter();
                let theirs = theirs.cells.get(there..there + steps).unwrap_or_default();
                mine.zip(theirs).any(|(mine, theirs)| mine.count > 0 && theirs.count > 0)
            })
        })
    }

    /// Whether this answer, made of merged rows, can stand for the sum of those of so many histories: no cell has fewer values than
    /// the one of them with the most must have had. It has fewer where a rollup outlives its rows.
    pub fn covers(&self, sum: &Self, histories: usize) -> bool {
        let histories = histories.max(1) as u64;
        let steps = self.steps.count;
        sum.steps == self.steps
            && sum.groups.iter().enumerate().all(|(group, name)| {
                let there = sum.place(group, 0);
                let here = self.index.get(name).map(|own| self.place(*own, 0));
                self.metrics.iter().zip(&sum.metrics).all(|(mine, theirs)| {
                    let of = |cells: &[Cell], at: usize| cells.get(at).map_or(0, |cell| cell.count);
                    (0..steps).all(|step| {
                        let rows = here.map_or(0, |here| of(&mine.cells, here + step));
                        rows.saturating_mul(histories) >= of(&theirs.cells, there + step)
                    })
                })
            })
    }

    /// How many values each metric has, in the order asked.
    pub fn values(&self) -> Vec<u64> {
        let of_cells = |measured: &Measured| measured.cells.iter().map(|cell| cell.count).sum();
        self.metrics.iter().map(of_cells).collect()
    }

    /// The lines of a chart: one for each metric, aggregate and group (by name) that has a value.
    pub fn series(&self, aggregates: &[Aggregate]) -> Vec<BucketSeries> {
        let mut groups: Vec<(usize, &GroupName)> = self.groups.iter().enumerate().collect();
        groups.sort_unstable_by_key(|(_, name)| *name);
        let mut lanes: Vec<Vec<usize>> = vec![Vec::new(); self.groups.len()];
        for (lane, (group, _)) in self.lanes.iter().enumerate() {
            lanes.get_mut(*group).into_iter().for_each(|lanes| lanes.push(lane));
        }
        let mut series = Vec::new();
        for measured in &self.metrics {
            for &aggregate in aggregates {
                for &(group, name) in &groups {
                    let places = self.place(group, 0)..self.place(group + 1, 0);
                    let cells = measured.cells.get(places.clone()).unwrap_or_default();
                    if cells.iter().all(|cell| cell.count == 0) {
                        continue;
                    }
                    let values = if aggregate.needs_tracks() {
                        self.moved(measured, aggregate, lanes.get(group).map_or(&[], Vec::as_slice))
                    } else {
                        let value = |(place, cell)| measured.value(aggregate, cell, place);
                        places.zip(cells).map(value).collect()
                    };
                    let (metric, group) = (measured.metric, Arc::clone(name));
                    series.push(BucketSeries { metric, aggregate, group, values });
                }
            }
        }
        series
    }

    /// By how much the values of some lanes moved in each step, in all.
    fn moved(&self, measured: &Measured, aggregate: Aggregate, lanes: &[usize]) -> Vec<Option<f64>> {
        let mut sums: Vec<Option<f64>> = vec![None; self.steps.count];
        for &lane in lanes {
            let places = self.place(lane, 0)..self.place(lane + 1, 0);
            let tracks = measured.tracks.get(places).unwrap_or_default();
            let mut before = None;
            for (sum, track) in sums.iter_mut().zip(tracks).filter(|(_, track)| !track.is_empty()) {
                let moved = match aggregate {
                    Aggregate::Rate => track.rate(before),
                    Aggregate::Delta => Some(track.delta(before)),
                    _ => Some(track.increase(before)),
                };
                *sum = moved.map(|moved| sum.unwrap_or(0.0) + moved).or(*sum);
                before = Some(track);
            }
        }
        sums.into_iter().map(|sum| sum.filter(|sum| sum.is_finite())).collect()
    }
}

impl Measured {
    fn value(&self, aggregate: Aggregate, cell: &Cell, place: usize) -> Option<f64> {
        let value = match aggregate {
            Aggregate::Min => cell.min,
            Aggregate::Max => cell.max,
            Aggregate::Mean => cell.sum / float(cell.count),
            Aggregate::Last => cell.last,
            Aggregate::Count => float(cell.count),
            Aggregate::Quantile(percent) => self.quantile(percent, cell, place)?,
            Aggregate::Rate | Aggregate::Increase | Aggregate::Delta => return None,
        };
        (cell.count > 0 && value.is_finite()).then_some(value)
    }

    /// By nearest rank: the smallest value that at least so many per cent of the values do not exceed.
    fn quantile(&self, percent: u8, cell: &Cell, place: usize) -> Option<f64> {
        let rank = cell.count.saturating_mul(percent.min(100).into()).div_ceil(100);
        if rank == cell.count {
            return Some(cell.max);
        }
        if rank <= 1 {
            return Some(cell.min);
        }
        let value = self.sketches.get(place)?.at_rank(rank)?.clamp(cell.min, cell.max);
        let is_whole = matches!(self.metric.metric().column_type, ColumnType::I32 | ColumnType::I64);
        Some(if is_whole { value.trunc() } else { value })
    }
}

/// Room for a number of values, and an eighth more: a vector that grows by itself takes up to twice what it needs.
fn make_room<T>(values: &mut Vec<T>, count: usize) {
    if values.capacity() < count {
        values.reserve_exact(count + count / 8 - values.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_aligned_and_ends_inclusive() {
        let steps =
            |start, end, step| TimeSteps::new(start, end, step, 0).map(|s| (s.origin_ns, s.count)).unwrap();
        assert_eq!(steps(0, 0, 10), (0, 1));
        assert_eq!(steps(0, 9, 10), (0, 1));
        assert_eq!(steps(0, 10, 10), (0, 2));
        assert_eq!(steps(13, 29, 10), (10, 2));
        assert_eq!(steps(-1, 0, 10), (-10, 2));
        assert_eq!(steps(5, 17, 7), (0, 3));
    }

    #[test]
    fn endless_and_backward_ranges_are_refused() {
        assert!(matches!(TimeSteps::new(1, 0, 1, 0), Err(QueryError::Range { .. })));
        assert!(matches!(TimeSteps::new(0, 1, 0, 0), Err(QueryError::Range { .. })));
        assert!(matches!(TimeSteps::new(0, 1, -5, 0), Err(QueryError::Range { .. })));
        assert!(matches!(TimeSteps::new(i64::MIN, 0, 3_600_000_000_000, 0), Err(QueryError::Range { .. })));
        assert!(matches!(TimeSteps::new(-1, i64::MAX, i64::MAX, 0), Err(QueryError::Range { .. })));
        assert!(matches!(TimeSteps::new(i64::MIN, i64::MAX, 1 << 62, 0), Err(QueryError::Range { .. })));
        assert!(matches!(TimeSteps::new(0, i64::MAX, 1, 0), Err(QueryError::TooManyBuckets { .. })));
    }

    #[test]
    fn cells_are_not_made_beyond_what_an_answer_may_have() {
        let power = MetricId::of("power_w");
        let mut buckets = Buckets::new(TimeSteps::new(0, 9_999, 1, 0).unwrap(), &[power, power], &[]);
        for gpu in 0..1_000 {
            buckets.group(&Arc::from([Some(Arc::from(format!("GPU-{gpu}")))]));
        }
        let cells: usize = buckets.metrics.iter().map(|measured| measured.cells.len()).sum();
        assert_eq!((buckets.groups.len(), cells as u64), (1_000, POINTS_MAX));
        assert!(matches!(buckets.check(1), Err(QueryError::TooManyPoints { .. })));
    }

    #[test]
    fn groups_that_are_added_before_their_values_change_no_answer() {
        let (steps, power) = (TimeSteps::new(0, 29, 10, 0).unwrap(), MetricId::of("power_w"));
        let part = |values: [(&str, f64); 2]| {
            let mut part = Buckets::new(steps, &[power], &[]);
            for (gpu, value) in values {
                let group = part.group(&Arc::from([Some(Arc::from(gpu))]));
                let place = part.place(group, 1);
                part.metrics[0].cells[place] =
                    Cell { count: 1, sum: value, min: value, max: value, last_ns: 15, last: value };
            }
            part
        };
        let parts = [part([("b", 1.0), ("a", 2.0)]), part([("c", 3.0), ("b", 5.0)])];
        let (mut one_by_one, mut at_once) =
            (Buckets::new(steps, &[power], &[]), Buckets::new(steps, &[power], &[]));
        at_once.add_groups_of(&parts);
        for part in parts {
            one_by_one.merge(part.clone()).unwrap();
            at_once.merge(part).unwrap();
        }
        assert_eq!(at_once.groups(), one_by_one.groups());
        let all = [Aggregate::Count, Aggregate::Mean, Aggregate::Last];
        assert_eq!(at_once.series(&all), one_by_one.series(&all));
        assert_eq!(at_once.values(), [4]);
    }

    #[test]
    fn answers_to_other_questions_do_not_merge() {
        let (power, load) = (MetricId::of("power_w"), MetricId::of("utilization_pct"));
        let steps = |start, end, step| TimeSteps::new(start, end, step, 0).unwrap();
        let mut whole = Buckets::new(steps(0, 99, 10), &[power], &[]);
        assert_eq!(whole.merge(Buckets::new(steps(20, 59, 10), &[power], &[])), Ok(()));
        for other in [
            Buckets::new(steps(0, 99, 10), &[load], &[]),
            Buckets::new(steps(0, 99, 10), &[power], &[Aggregate::P90]),
            Buckets::new(steps(0, 99, 10), &[power], &[Aggregate::Rate]),
            Buckets::new(steps(0, 99, 20), &[power], &[]),
            Buckets::new(steps(0, 109, 10), &[power], &[]),
            Buckets::new(steps(-10, 9, 10), &[power], &[]),
        ] {
            assert_eq!(whole.merge(other), Err(UnlikeBuckets));
        }
    }
}
