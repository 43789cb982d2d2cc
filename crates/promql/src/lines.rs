//! Rows and figures of a history as the values of series.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::batch::{RowKeys, Value};
use gpuvitals_core::catalogue::ColumnType;
use gpuvitals_core::history::{Aggregate, Buckets, Cell, GroupColumn, GroupName, TimeSteps, Track};
use gpuvitals_core::{Batch, IdentityColumn, MetricId, Table};
use gpuvitals_exposition::ColumnSeries;

use crate::point::{Moved, Point, Points};

/// The columns that name the holder of a GPU.
pub(crate) const HOLDER: [IdentityColumn; 4] =
    [IdentityColumn::Pod, IdentityColumn::Namespace, IdentityColumn::Container, IdentityColumn::Job];
/// Columns of which every GPU with rows has one.
const PRESENCE: [MetricId; 6] = [
    MetricId::of("utilization_pct"),
    MetricId::of("power_w"),
    MetricId::of("temperature_c"),
    MetricId::of("memory_used_mb"),
    MetricId::of("gpu_clock_mhz"),
    MetricId::of("power_average_w"),
];

/// The columns, any of which has the values of the series.
pub(crate) fn columns_of(series: &ColumnSeries) -> Vec<MetricId> {
    series.column.map_or_else(|| PRESENCE.to_vec(), |column| vec![column])
}

/// The table of the series' column.
pub(crate) fn table_of(series: &ColumnSeries) -> Table {
    series.column.map_or(Table::GpuEvents, |column| column.metric().table)
}

/// The GPU or host, and where the labels name the holder, that too.
pub(crate) fn group_by(series: &ColumnSeries) -> Vec<GroupColumn> {
    let holder = HOLDER.into_iter().map(GroupColumn::Identity).filter(|_| series.names_holder());
    std::iter::once(GroupColumn::Gpu).chain(holder).collect()
}

/// Values of rows, by group.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    index: HashMap<GroupName, usize>,
    lines: Vec<(GroupName, Vec<Point>)>,
}

impl Lines {
    /// Adds the values of a page of rows; of several columns the first that has one. Returns how many.
    pub(crate) fn add(&mut self, batch: &Batch, series: &ColumnSeries, columns: &[MetricId]) -> usize {
        let Ok(keys) = RowKeys::of(batch.records(), batch.table()) else { return 0 };
        let columns: Vec<_> =
            columns.iter().filter_map(|metric| Some((*metric, batch.metric(*metric)?))).collect();
        // Without a holder a key is a group.
        let mut lines: Vec<Option<usize>> = vec![None; keys.keys.len()];
        let mut came = 0;
        for ((row, &time_ns), &id) in batch.timestamps().iter().enumerate().zip(&keys.ids) {
            let found = columns.iter().find_map(|(metric, values)| Some((*metric, values.value(row)?)));
            let (Some((metric, value)), Some(known)) = (found, lines.get_mut(id as usize)) else { continue };
            let line = known.filter(|_| !series.names_holder()).unwrap_or_else(|| {
                let identity = series.names_holder().then(|| batch.identity(row));
                let holder =
                    identity.iter().flat_map(|identity| HOLDER.map(|it| identity.shared(it).cloned()));
                let group = std::iter::once(keys.keys.get(id as usize).cloned()).chain(holder);
                self.line(group.collect())
            });
            *known = Some(line);
            let value = if series.column.is_some() { series.value(metric, value).as_f64() } else { 1.0 };
            if let Some((_, points)) = self.lines.get_mut(line) {
                points.push(Point { time_ns, value });
                came += 1;
            }
        }
        came
    }

    fn line(&mut self, group: GroupName) -> usize {
        *self.index.entry(group).or_insert_with_key(|group| {
            self.lines.push((Arc::clone(group), Vec::new()));
            self.lines.len() - 1
        })
    }

    /// The values of each group.
    pub(crate) fn points(self) -> impl Iterator<Item = (GroupName, Points)> {
        self.lines.into_iter().map(|(group, points)| (group, Points::Each(points)))
    }
}

/// What is kept of each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The newest value.
    Newest,
    /// The figures of the values of each step.
    Figures,
    /// How the values moved.
    Moves,
}

impl Shape {
    fn empty(self, capacity: usize) -> Points {
        match self {
            Self::Newest => Points::Each(Vec::with_capacity(capacity)),
            Self::Figures => Points::Cells(Vec::with_capacity(capacity)),
            Self::Moves => Points::Moves(Vec::with_capacity(capacity)),
        }
    }
}

/// The figures of a group, by step.
struct GroupFigures<'a> {
    steps: TimeSteps,
    cells: &'a [Cell],
    tracks: &'a [Track],
}

impl GroupFigures<'_> {
    /// Steps with values. A step of a rollup may end later than the one that it begins in: a value counts within that.
    fn cells(&self) -> impl Iterator<Item = (usize, Cell)> {
        let there = self.cells.iter().enumerate().filter(|(_, cell)| cell.count > 0);
        there.map(|(step, cell)| {
            let end_ns = self.steps.time(step + 1).saturating_sub(1);
            (step, Cell { last_ns: cell.last_ns.min(end_ns), ..*cell })
        })
    }

    fn add_to(&self, points: &mut Points, of: &Conversion) {
        let newest = |(_, cell): (usize, Cell)| Point { time_ns: cell.last_ns, value: of.value(cell.last) };
        match points {
            Points::Each(points) => points.extend(self.cells().map(newest)),
            Points::Cells(cells) => cells.extend(self.cells().map(|(_, cell)| of.cell(&cell))),
            Points::Moves(moves) => {
                moves.extend(self.cells().map(|(step, cell)| of.moved(&cell, self.tracks.get(step))));
            }
        }
    }
}

/// Figures of values, by group, in the unit of the series.
#[derive(Debug)]
pub(crate) struct Figures {
    series: &'static ColumnSeries,
    shape: Shape,
    points: HashMap<GroupName, Points>,
    /// Most values of a step.
    pub(crate) most: u64,
    /// Width of the steps of the coarsest rollup among them, nanoseconds; 0: rows alone.
    pub(crate) rollup_ns: i64,
}

impl Figures {
    pub(crate) fn new(series: &'static ColumnSeries, shape: Shape) -> Self {
        // A series that only says that the GPU is there has no figures.
        let shape = if series.column.is_some() { shape } else { Shape::Newest };
        Self { series, shape, points: HashMap::new(), most: 0, rollup_ns: 0 }
    }

    /// The aggregates that it is made of.
    pub(crate) fn aggregates(&self) -> Vec<Aggregate> {
        match self.shape {
            Shape::Newest => vec![Aggregate::Last],
            Shape::Figures => vec![Aggregate::Min, Aggregate::Max, Aggregate::Mean, Aggregate::Last],
            Shape::Moves => vec![Aggregate::Increase, Aggregate::Last],
        }
    }

    /// Adds those of an answer about other GPUs or columns. Returns how many.
    pub(crate) fn add(&mut self, answer: &Buckets) -> usize {
        self.rollup_ns = self.rollup_ns.max(answer.rollup_ns());
        let lanes: HashMap<usize, usize> =
            answer.lanes().iter().enumerate().map(|(lane, (group, _))| (*group, lane)).collect();
        let places = |at: usize| answer.place(at, 0)..answer.place(at + 1, 0);
        let mut came = 0;
        for measured in answer.metrics() {
            let of = Conversion::new(self.series, measured.metric);
            for (number, group) in answer.groups().iter().enumerate() {
                let cells = measured.cells.get(places(number)).unwrap_or_default();
                let tracks = lanes.get(&number).and_then(|lane| measured.tracks.get(places(*lane)));
                let figures =
                    GroupFigures { steps: answer.steps(), cells, tracks: tracks.unwrap_or_default() };
                let count = figures.cells().count();
                if count == 0 {
                    continue;
                }
                came += count;
                self.most = figures.cells().map(|(_, cell)| cell.count).fold(self.most, u64::max);
                let own = self.points.entry(Arc::clone(group)).or_insert_with(|| self.shape.empty(count));
                figures.add_to(own, &of);
            }
        }
        came
    }

    /// Those of each group, in the order of their times.
    pub(crate) fn points(self) -> impl Iterator<Item = (GroupName, Points)> {
        self.points.into_iter().map(|(group, mut points)| {
            match &mut points {
                Points::Each(points) => {
                    points.sort_by_key(|point| point.time_ns);
                    // Of several columns.
                    points.dedup_by_key(|point| point.time_ns);
                }
                Points::Cells(cells) => cells.sort_by_key(|cell| cell.last_ns),
                Points::Moves(moves) => moves.sort_by_key(|moved| moved.track.last_ns),
            }
            (group, points)
        })
    }
}

/// From a column to the unit of a series.
struct Conversion {
    series: &'static ColumnSeries,
    column: MetricId,
    column_type: ColumnType,
    factor: f64,
}

impl Conversion {
    fn new(series: &'static ColumnSeries, column: MetricId) -> Self {
        let factor = series.value(column, Value::Float(1.0)).as_f64();
        Self { series, column, column_type: column.metric().column_type, factor }
    }

    /// A figure that was a value of the column.
    #[expect(clippy::cast_possible_truncation, reason = "it was one")]
    fn value(&self, value: f64) -> f64 {
        if self.series.column.is_none() {
            return 1.0;
        }
        let value = match self.column_type {
            ColumnType::I32 | ColumnType::I64 => Value::Int(value as i64),
            ColumnType::F32 => Value::Float32(value as f32),
            ColumnType::F64 => Value::Float(value),
        };
        self.series.value(self.column, value).as_f64()
    }

    fn cell(&self, cell: &Cell) -> Cell {
        Cell {
            sum: cell.sum * self.factor,
            min: self.value(cell.min),
            max: self.value(cell.max),
            last: self.value(cell.last),
            ..*cell
        }
    }

    /// Of a rollup without tracks nothing is known but the newest value.
    fn moved(&self, cell: &Cell, track: Option<&Track>) -> Moved {
        let track = track.filter(|track| !track.is_empty()).copied();
        let track = track.unwrap_or_else(|| Track::of(cell.last_ns, cell.last));
        let (first, last) = (self.value(track.first), self.value(track.last));
        let (falls, last_ns) = (track.falls * self.factor, track.last_ns.min(cell.last_ns));
        let first_ns = track.first_ns.min(last_ns);
        Moved { count: cell.count, track: Track { first_ns, first, last_ns, last, falls } }
    }
}
