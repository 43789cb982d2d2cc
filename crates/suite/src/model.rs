//! The plainest history there is: a map from GPU and time to columns.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use gpuvitals_core::history::{Aggregate, BucketQuery, GroupColumn, RowsQuery, Selector};
use gpuvitals_core::usage::{HOLDER_COLUMNS, UseQuery};
use gpuvitals_core::{IdentityColumn, Table};

use crate::rows::{Cells, TestRow, batches, cells};

/// The texts of a group.
pub(crate) type Group = Vec<Option<String>>;

/// By metric (its place in the question), aggregate, group and start of the step.
pub(crate) type Values = BTreeMap<(usize, Aggregate, Group, i64), f64>;

/// Whose use, by whom, in which step.
pub(crate) type UsePlace = (String, Group, Option<i64>);

/// What a holder used: seconds held, busy, idle and throttled, and joules.
pub(crate) type Used = [f64; 5];

/// Times and values of a GPU in a step, in the order of time.
type StepValues = Vec<(i64, f64)>;

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
            let keys = rows.iter().flat_map(TestRow::keys);
            for (at, (_, key)) in keys.filter(|(of, _)| *of == table).enumerate() {
                let (row, later) = (of_table.entry(key).or_default(), cells(&batch, at));
                match table.version() {
                    None => row.extend(later),
                    // All instants have the same number of digits.
                    Some(version) if row.get(version.name) > later.get(version.name) => {}
                    Some(_) => *row = later,
                }
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
                || query.table.required().any(|column| column.name == name)
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
        let mut steps: BTreeMap<(Group, &str, i64), StepValues> = BTreeMap::new();
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
        let mut all: BTreeMap<(Group, i64), StepValues> = BTreeMap::new();
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

    /// Which GPUs rows of a range have, under which holders, in which steps, and how much they used: none where it must be judged which
    /// distances are gaps, which rollups of uneven rows know less well.
    pub(crate) fn used(&self, query: &UseQuery) -> BTreeMap<UsePlace, Option<Used>> {
        let mut used = BTreeMap::new();
        let rows: Vec<_> = self.table(Table::GpuEvents).collect();
        for of_gpu in rows.chunk_by(|((one, _), _), ((next, _), _)| one == next) {
            if of_gpu.first().is_none_or(|((key, _), _)| !is_one_of(&query.gpus, key)) {
                continue;
            }
            let is_steady = is_steady(of_gpu);
            let in_range =
                |row: &&(&(String, i64), &Cells)| (query.start_ns..=query.end_ns).contains(&row.0.1);
            let of_gpu: Vec<_> = of_gpu.iter().filter(in_range).collect();
            for (at, ((key, time), cells)) in of_gpu.iter().enumerate() {
                let holder = HOLDER_COLUMNS.iter().map(|column| cells.get(column.name()).cloned());
                let holder = query.told_apart.told(holder).collect();
                let step = query.step_ns.map(|step_ns| time - time.rem_euclid(step_ns));
                let place = used.entry((key.clone(), holder, step)).or_insert(is_steady.then_some([0.0; 5]));
                if let (Some(sums), Some(((_, until), next))) = (place, of_gpu.get(at + 1)) {
                    let more = used_between((*time, cells), (*until, next));
                    sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
                }
            }
        }
        used
    }

    /// By GPU, at an instant.
    pub(crate) fn latest(&self, at_ns: i64) -> BTreeMap<&str, LatestState<'_>> {
        let mut gpus: BTreeMap<&str, LatestState<'_>> = BTreeMap::new();
        let rows = self.table(Table::GpuEvents).filter(|((_, time), _)| *time <= at_ns);
        for ((key, time), cells) in rows {
            let first_ns = *time;
            let gpu = gpus.entry(key).or_insert(LatestState {
                first_ns,
                last_ns: first_ns,
                values: BTreeMap::new(),
            });
            gpu.last_ns = *time;
            gpu.values.extend(cells.iter().map(|(name, text)| (name.as_str(), (*time, text.as_str()))));
        }
        gpus
    }
}

/// Longest distance that is no gap, however the others are.
const NO_GAP_NS: i64 = 4_000_000_000;

fn number(cells: &Cells, column: &str) -> Option<f64> {
    cells.get(column).map(|text| text.parse().unwrap())
}

/// Whether there is nothing to judge in rows of a GPU: no gap, all states told, and either power or a counter.
fn is_steady(rows: &[(&(String, i64), &Cells)]) -> bool {
    let has = |column: &str| rows.iter().all(|(_, cells)| cells.contains_key(column));
    let has_not = |column: &str| !rows.iter().any(|(_, cells)| cells.contains_key(column));
    let has_energy = has("power_w") && has_not("energy_mj") || has("energy_mj") && has_not("power_w");
    let is_close = rows.windows(2).all(|pair| pair[1].0.1 - pair[0].0.1 <= NO_GAP_NS);
    has_energy && has("utilization_pct") && has("throttled") && is_close
}

/// What is used between two rows of a steady GPU.
fn used_between((from_ns, one): (i64, &Cells), (until_ns, next): (i64, &Cells)) -> Used {
    #[expect(clippy::cast_precision_loss, reason = "times of tests are close together")]
    let seconds = (until_ns - from_ns) as f64 / 1e9;
    let at = |cells, column| number(cells, column).unwrap();
    let percent = at(one, "utilization_pct");
    let joules = if one.contains_key("power_w") {
        f64::midpoint(at(one, "power_w"), at(next, "power_w")) * seconds
    } else {
        // What a counter that was reset had counted before is not known.
        (at(next, "energy_mj") - at(one, "energy_mj")).max(0.0) / 1e3
    };
    let idle_s = if percent < 1.0 { seconds } else { 0.0 };
    [seconds, seconds * percent / 100.0, idle_s, seconds * at(one, "throttled"), joules]
}

/// The latest state of a GPU.
pub(crate) struct LatestState<'a> {
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
