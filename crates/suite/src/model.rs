//! The plainest history there is: a map from GPU and time to columns.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gpuvitals_core::history::{Aggregate, BucketQuery, GroupColumn, RowsQuery, Selector};
use gpuvitals_core::usage::{HOLDER_COLUMNS, UseQuery};
use gpuvitals_core::{IdentityColumn, Table};

use crate::rows::{Cells, TestRow, batches, cells};

/// The texts of a group.
pub(crate) type Group = Vec<Option<String>>;

/// By metric (its place in the question), aggregate, group and start of the step.
pub(crate) type Values = BTreeMap<(usize, Aggregate, Group, i64), f64>;

/// Times and values of a GPU in a step, in the order of time.
type Step = Vec<(i64, f64)>;

/// All rows by table, those of one key joined.
#[derive(Debug, Default)]
pub struct Model {
    tables: BTreeMap<Table, BTreeMap<(String, i64), Cells>>,
}

impl Model {
    /// Adds rows, in the order of their arrival.
    pub fn add(&mut self, rows: &[TestRow]) {
        if rows.is_empty() {
            return;
        }
        for batch in batches(rows) {
            let table = batch.table();
            let of_table = self.tables.entry(table).or_default();
            let keys = rows.iter().flat_map(|row| row.keys().map(|(of, key)| (of, (key, row.time_ns))));
            for (at, (_, key)) in keys.filter(|(of, _)| *of == table).enumerate() {
                of_table.entry(key).or_default().extend(cells(&batch, at));
            }
        }
    }

    fn table(&self, table: Table) -> impl Iterator<Item = (&(String, i64), &Cells)> {
        self.tables.get(&table).into_iter().flatten()
    }

    /// Rows of the page, and how many there are in all.
    pub fn rows(&self, query: &RowsQuery) -> (Vec<Cells>, usize) {
        let is_wanted = |key: &str, time: i64, cells: &Cells| {
            is_one_of(&query.gpus, key)
                && query.start_ns.is_none_or(|start| start <= time)
                && query.end_ns.is_none_or(|end| time <= end)
                && selects(&query.selector, cells)
        };
        let mut found: Vec<(i64, &str, &Cells)> = self
            .table(query.table)
            .filter(|((key, time), cells)| is_wanted(key, *time, cells))
            .map(|((key, time), cells)| (*time, key.as_str(), cells))
            .collect();
        if query.newest_first {
            found.sort_by_key(|(time, key, _)| (Reverse(*time), *key));
        } else {
            found.sort_by_key(|(time, key, _)| (*time, *key));
        }
        let total = found.len();
        if let Some(after) = &query.after {
            let place = |time: i64| if query.newest_first { -i128::from(time) } else { time.into() };
            let end = (place(after.timestamp_ns), after.key.as_ref());
            found.retain(|(time, key, _)| (place(*time), *key) > end);
        }
        let is_shown = |name: &str| {
            name == "timestamp_ns"
                || name == "gpu"
                || IdentityColumn::by_name(name).is_some()
                || query.table.key().any(|column| column.name == name)
                || query.metrics.as_ref().is_none_or(|names| names.iter().any(|one| one == name))
        };
        let slim = |cells: &Cells| {
            let shown = cells.iter().filter(|(name, _)| is_shown(name));
            shown.map(|(name, text)| (name.clone(), text.clone())).collect()
        };
        let page = found.into_iter().skip(query.offset).take(query.limit);
        (page.map(|(.., cells)| slim(cells)).collect(), total)
    }

    /// Values, as far as there are.
    pub(crate) fn buckets(&self, query: &BucketQuery) -> Values {
        let mut values = Values::new();
        for (place, metric) in query.metrics.iter().enumerate() {
            for ((aggregate, group, step), value) in self.measured(query, metric.metric().column) {
                values.insert((place, aggregate, group, step), value);
            }
        }
        values
    }

    /// Values of one column.
    fn measured(&self, query: &BucketQuery, column: &str) -> BTreeMap<(Aggregate, Group, i64), f64> {
        let mut steps: BTreeMap<(Group, &str, i64), Step> = BTreeMap::new();
        for ((key, time), cells) in self.table(query.table) {
            let text = |column: &GroupColumn| match column {
                GroupColumn::Gpu => Some(key.clone()),
                GroupColumn::Identity(column) => cells.get(column.name()).cloned(),
            };
            if let Some(value) = cells.get(column)
                && is_one_of(&query.gpus, key)
                && (query.start_ns..=query.end_ns).contains(time)
                && selects(&query.selector, cells)
            {
                let group = query.group_by.iter().map(text).collect();
                let step = time - (time - query.phase_ns).rem_euclid(query.step_ns);
                steps.entry((group, key, step)).or_default().push((*time, value.parse().unwrap()));
            }
        }
        let mut found = BTreeMap::new();
        let mut all: BTreeMap<(Group, i64), Step> = BTreeMap::new();
        let mut before: BTreeMap<(Group, &str), (i64, f64)> = BTreeMap::new();
        for ((group, gpu, step), values) in steps {
            let base = before.insert((group.clone(), gpu), values[values.len() - 1]);
            for (aggregate, moved) in moved(base, &values) {
                *found.entry((aggregate, group.clone(), step)).or_default() += moved;
            }
            all.entry((group, step)).or_default().extend(values);
        }
        for ((group, step), values) in all {
            for &aggregate in query.aggregates.iter().filter(|aggregate| !aggregate.needs_tracks()) {
                found.insert((aggregate, group.clone(), step), aggregated(aggregate, &values));
            }
        }
        found.retain(|(aggregate, ..), _| query.aggregates.contains(aggregate));
        found
    }

    /// Which GPUs rows of a range have, under which holders, in which steps.
    pub(crate) fn used(&self, query: &UseQuery) -> BTreeSet<(String, Group, Option<i64>)> {
        let rows = self.table(Table::GpuEvents);
        let rows = rows.filter(|((key, time), _)| {
            is_one_of(&query.gpus, key) && (query.start_ns..=query.end_ns).contains(time)
        });
        let used = rows.map(|((key, time), cells)| {
            let holder = HOLDER_COLUMNS.iter().map(|column| cells.get(column.name()).cloned());
            let holder = query.told_apart.told(holder).collect();
            (key.clone(), holder, query.step_ns.map(|step_ns| time - time.rem_euclid(step_ns)))
        });
        used.collect()
    }

    /// By GPU, at an instant.
    pub(crate) fn latest(&self, at_ns: i64) -> BTreeMap<&str, Latest<'_>> {
        let mut gpus: BTreeMap<&str, Latest<'_>> = BTreeMap::new();
        let rows = self.table(Table::GpuEvents).filter(|((_, time), _)| *time <= at_ns);
        for ((key, time), cells) in rows {
            let first_ns = *time;
            let gpu =
                gpus.entry(key).or_insert(Latest { first_ns, last_ns: first_ns, values: BTreeMap::new() });
            gpu.last_ns = *time;
            gpu.values.extend(cells.iter().map(|(name, text)| (name.as_str(), (*time, text.as_str()))));
        }
        gpus
    }
}

/// The latest state of a GPU.
pub(crate) struct Latest<'a> {
    /// Time of the oldest row.
    pub(crate) first_ns: i64,
    /// Time of the newest row.
    pub(crate) last_ns: i64,
    /// By column the newest value, with its time.
    pub(crate) values: BTreeMap<&'a str, (i64, &'a str)>,
}

fn is_one_of(gpus: &[Arc<str>], key: &str) -> bool {
    let subject = key.split('\0').next();
    gpus.is_empty() || gpus.iter().any(|gpu| Some(gpu.as_ref()) == subject)
}

fn selects(selector: &Selector, cells: &Cells) -> bool {
    selector.selects(|column| cells.get(column.name()).map(String::as_str))
}

/// By how much values of one GPU moved since the one before.
fn moved(before: Option<(i64, f64)>, values: &[(i64, f64)]) -> Vec<(Aggregate, f64)> {
    let (since_ns, mut last) = before.unwrap_or(values[0]);
    let delta = values[values.len() - 1].1 - last;
    let mut increase = 0.0;
    for (_, value) in values {
        // A counter that falls has begun anew at 0.
        increase += if *value < last { *value } else { value - last };
        last = *value;
    }
    let mut moved = vec![(Aggregate::Delta, delta), (Aggregate::Increase, increase)];
    let span_ns = values[values.len() - 1].0 - since_ns;
    if span_ns > 0 {
        #[expect(clippy::cast_precision_loss, reason = "times of tests are close together")]
        moved.push((Aggregate::Rate, increase / (span_ns as f64 / 1e9)));
    }
    moved
}

fn aggregated(aggregate: Aggregate, values: &[(i64, f64)]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    sorted.sort_by(f64::total_cmp);
    let count = u32::try_from(sorted.len()).unwrap();
    match aggregate {
        Aggregate::Min => sorted[0],
        Aggregate::Max => sorted[sorted.len() - 1],
        Aggregate::Mean => sorted.iter().sum::<f64>() / f64::from(count),
        // The smallest value that at least so many per cent of the values do not exceed.
        Aggregate::Quantile(percent) => {
            let enough = |value: f64| {
                sorted.iter().filter(|&&other| other <= value).count() * 100
                    >= sorted.len() * usize::from(percent)
            };
            sorted.iter().copied().find(|&value| enough(value)).unwrap()
        }
        // Of several that were taken at once the largest.
        Aggregate::Last => {
            let newest = values.iter().map(|(time, _)| *time).max().unwrap();
            let at_once = values.iter().filter(|(time, _)| *time == newest);
            at_once.map(|(_, value)| *value).fold(f64::MIN, f64::max)
        }
        Aggregate::Count => f64::from(count),
        Aggregate::Rate | Aggregate::Increase | Aggregate::Delta => {
            panic!("{aggregate:?} is not made of values alone")
        }
    }
}
