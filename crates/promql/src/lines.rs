//! Rows and figures of a history as the values of series.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvitals_core::batch::{RowKeys, Value};
use gpuvitals_core::catalogue::ColumnType;
use gpuvitals_core::history::{Buckets, Cell, GroupColumn, GroupName};
use gpuvitals_core::{Batch, IdentityColumn, MetricId, Table};
use gpuvitals_exposition::ColumnSeries;

use crate::point::{Point, Points};

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

/// Values of rows, by group: those of the series' columns, and those of the one that stands in.
#[derive(Debug, Default)]
pub(crate) struct Lines(HashMap<GroupName, (Vec<Point>, Vec<Point>)>);

impl Lines {
    /// Adds the values of a page of rows. Returns how many.
    pub(crate) fn add(&mut self, batch: &Batch, series: &ColumnSeries) -> usize {
        let groups = Groups::of(batch, series);
        let columns: Vec<_> =
            columns_of(series).into_iter().filter_map(|metric| batch.metric(metric)).collect();
        let instead = series.instead.and_then(|metric| batch.metric(metric));
        let of = |value: Value| if series.column.is_some() { series.value(value).as_f64() } else { 1.0 };
        let mut came = 0;
        for (row, &time_ns) in batch.timestamps().iter().enumerate() {
            let first = columns.iter().find_map(|values| values.value(row));
            let other = instead.as_ref().and_then(|values| values.value(row));
            let count = first.iter().len() + other.iter().len();
            let Some(group) = groups.of_row(batch, row).filter(|_| count > 0) else { continue };
            came += count;
            let line = match self.0.get_mut(&group) {
                Some(line) => line,
                None => self.0.entry(group).or_default(),
            };
            line.0.extend(first.map(|value| Point { time_ns, value: of(value) }));
            line.1.extend(other.map(|value| Point { time_ns, value: of(value) }));
        }
        came
    }

    /// The values of each group.
    pub(crate) fn points(self) -> impl Iterator<Item = (GroupName, Points)> {
        self.0
            .into_iter()
            .map(|(group, (own, instead))| (group, Points::Each(if own.is_empty() { instead } else { own })))
    }
}

/// The groups of a batch's rows.
struct Groups {
    keys: Option<RowKeys>,
    /// By key, unless the holder is part of them.
    names: Vec<GroupName>,
    with_holder: bool,
}

impl Groups {
    fn of(batch: &Batch, series: &ColumnSeries) -> Self {
        let keys = RowKeys::of(batch.records(), batch.table()).ok();
        let all = keys.iter().flat_map(|keys| &keys.keys);
        let names = all.map(|key| -> GroupName { Arc::new([Some(Arc::clone(key))]) }).collect();
        Self { keys, names, with_holder: series.names_holder() }
    }

    fn of_row(&self, batch: &Batch, row: usize) -> Option<GroupName> {
        let keys = self.keys.as_ref()?;
        let key = *keys.ids.get(row)? as usize;
        if !self.with_holder {
            return self.names.get(key).cloned();
        }
        let identity = batch.identity(row);
        let holder = HOLDER.into_iter().map(|column| identity.shared(column).cloned());
        Some(std::iter::once(keys.keys.get(key).cloned()).chain(holder).collect())
    }
}

/// Figures of values, by group.
#[derive(Debug, Default)]
pub(crate) struct Figures(HashMap<GroupName, Vec<Cell>>);

impl Figures {
    /// Adds those of an answer. Returns how many.
    pub(crate) fn add(&mut self, answer: &Buckets) -> usize {
        let mut came = 0;
        for measured in answer.metrics() {
            for (number, group) in answer.groups().iter().enumerate() {
                let range = answer.place(number, 0)..answer.place(number + 1, 0);
                let cells = measured.cells.get(range).unwrap_or_default();
                let own = self.0.entry(Arc::clone(group)).or_default();
                let before = own.len();
                own.extend(cells.iter().filter(|cell| cell.count > 0));
                came += own.len() - before;
            }
        }
        came
    }

    /// The newest value of each, or with `are_kept` the figures, in the unit of the series and the order of their times.
    pub(crate) fn points(
        self,
        series: &ColumnSeries,
        are_kept: bool,
    ) -> impl Iterator<Item = (GroupName, Points)> {
        self.0.into_iter().filter(|(_, cells)| !cells.is_empty()).map(move |(group, mut cells)| {
            cells.sort_by_key(|cell| cell.last_ns);
            let Some(column) = series.column else {
                cells.dedup_by_key(|cell| cell.last_ns);
                let here = |cell: &Cell| Point { time_ns: cell.last_ns, value: 1.0 };
                return (group, Points::Each(cells.iter().map(here).collect()));
            };
            let of = |value: f64| series.value(typed(value, column)).as_f64();
            if !are_kept {
                let newest = |cell: &Cell| Point { time_ns: cell.last_ns, value: of(cell.last) };
                return (group, Points::Each(cells.iter().map(newest).collect()));
            }
            let factor = series.value(Value::Float(1.0)).as_f64();
            let convert = |cell: &Cell| Cell {
                sum: cell.sum * factor,
                min: of(cell.min),
                max: of(cell.max),
                last: of(cell.last),
                ..*cell
            };
            (group, Points::Cells(cells.iter().map(convert).collect()))
        })
    }
}

/// A figure as a value of the column's type.
#[expect(clippy::cast_possible_truncation, reason = "it was one")]
fn typed(value: f64, column: MetricId) -> Value {
    match column.metric().column_type {
        ColumnType::I32 | ColumnType::I64 => Value::Int(value as i64),
        ColumnType::F32 => Value::Float32(value as f32),
        ColumnType::F64 => Value::Float(value),
    }
}
