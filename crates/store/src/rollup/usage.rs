//! The use of a GPU in rollups: a [`Stay`] a row, in columns of their own.

use std::sync::Arc;

use arrow_array::builder::{Float64Builder, Int64Builder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use gpuvitals_core::MetricId;
use gpuvitals_core::history::tally::Run;
use gpuvitals_core::throttle::{ByLimit, Residency};
use gpuvitals_core::usage::{CountedSpan, CounterSpan, PowerSpan, SeenPower, Stay, StayFold, UseColumns};

use super::figure::{FIRST_NS, LAST_NS};
use super::runs::Runs;

const COUNTER: MetricId = MetricId::of("energy_mj");

/// A column of floats.
type Float = (&'static str, fn(&Stay) -> Option<f64>);
/// A column of whole numbers.
type Whole = (&'static str, fn(&Stay) -> Option<i64>);

const FLOATS: [Float; 29] = [
    ("use_seen_s", |stay| Some(stay.seconds)),
    ("use_busy_s", |stay| Some(stay.busy_s)),
    ("use_idle_s", |stay| Some(stay.idle_s)),
    ("use_throttled_s", |stay| Some(stay.throttled_s)),
    ("use_throttled_before", |stay| stay.throttled_before),
    ("use_throttled_after", |stay| stay.throttled_after),
    ("use_utilization_after_pct", |stay| stay.utilization_after),
    ("use_power_first_w", |stay| stay.power.map(|power| power.first.1)),
    ("use_power_last_w", |stay| stay.power.map(|power| power.last.1)),
    ("use_power_max_w", |stay| stay.power.map(|power| power.max_w)),
    ("use_power_j", |stay| stay.power.map(|power| power.joules)),
    ("use_power_idle_j", |stay| stay.power.map(|power| power.idle_joules)),
    ("use_power_open_j", |stay| stay.power.map(|power| power.open_joules)),
    ("use_power_seen_s", |stay| stay.power.map(|power| power.seconds)),
    ("use_power_limit_w", |stay| Some(stay.limit_w)),
    ("use_counter_first_j", |stay| stay.counter.map(|counter| counter.first.1)),
    ("use_counter_last_j", |stay| stay.counter.map(|counter| counter.last.1)),
    ("use_power_is_average", |stay| stay.power.map(|power| f64::from(u8::from(power.is_average)))),
    ("use_utilization_open_s", |stay| Some(stay.utilization_open_s)),
    ("use_throttled_open_s", |stay| Some(stay.throttled_open_s)),
    ("use_counter_fell", |stay| stay.counter.map(|counter| f64::from(u8::from(counter.fell)))),
    // Where the counter fell; else it is the last less the first.
    ("use_counter_rise_j", |stay| stay.counter.filter(|counter| counter.fell).map(|counter| counter.rise_j)),
    // Where counter and power are not known of the same time all along; else it is the whole.
    ("use_compared_counted_j", |stay| compared(stay).map(|seen| seen.counted_j)),
    ("use_compared_power_j", |stay| compared(stay).map(|seen| seen.integrated_j)),
    ("use_compared_s", |stay| compared(stay).map(|seen| seen.seen_s)),
    // Power before the first reading of the counter and after the last; null: there is none.
    ("use_before_counter_j", |stay| around(stay, 0).map(|seen| seen.joules)),
    ("use_before_counter_s", |stay| around(stay, 0).map(|seen| seen.seconds)),
    ("use_after_counter_j", |stay| around(stay, 1).map(|seen| seen.joules)),
    ("use_after_counter_s", |stay| around(stay, 1).map(|seen| seen.seconds)),
];
const WHOLES: [Whole; 7] = [
    ("use_pace_ns", |stay| Some(stay.pace_ns)),
    ("use_power_first_ns", |stay| stay.power.map(|power| power.first.0)),
    ("use_power_last_ns", |stay| stay.power.map(|power| power.last.0)),
    ("use_counter_first_ns", |stay| stay.counter.map(|counter| counter.first.0)),
    ("use_counter_last_ns", |stay| stay.counter.map(|counter| counter.last.0)),
    // Where it is not the last row.
    ("use_throttled_told_ns", |stay| Some(stay.throttled_told_ns).filter(|told_ns| *told_ns != stay.last_ns)),
    ("use_utilization_told_ns", |stay| {
        Some(stay.utilization_told_ns).filter(|told_ns| *told_ns != stay.last_ns)
    }),
];

fn around(stay: &Stay, side: usize) -> Option<SeenPower> {
    stay.counter?.around.get(side).copied().filter(|seen| seen.seconds > 0.0)
}

/// What counter and power say of the same time, where that is not all of both.
fn compared(stay: &Stay) -> Option<CountedSpan> {
    let counter = stay.counter?;
    let whole = whole_span(counter.rise_j, stay.power);
    let is_near = |one: f64, other: f64| (one - other).abs() <= 1e-9 * one.abs().max(other.abs());
    let is_whole = is_near(whole.counted_j, counter.seen.counted_j)
        && is_near(whole.integrated_j, counter.seen.integrated_j)
        && is_near(whole.seen_s, counter.seen.seen_s);
    (!is_whole).then_some(counter.seen)
}

fn whole_span(rise_j: f64, power: Option<PowerSpan>) -> CountedSpan {
    let (integrated_j, seen_s) = power.map_or((0.0, 0.0), |power| (power.joules, power.seconds));
    CountedSpan { counted_j: rise_j, integrated_j, seen_s }
}

/// Whether a column of a rollup is one of these.
pub(crate) fn is_use(column: &str) -> bool {
    column.starts_with("use_")
}

/// Names of the columns that [`StayColumns`] reads.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FLOATS
        .iter()
        .map(|column| column.0)
        .chain(WHOLES.iter().map(|column| column.0))
        .chain([FIRST_NS, LAST_NS])
}

/// Whether rows with these columns have a column of the table. The columns about an energy counter stand only where one was read.
fn is_needed(name: &str, rows: &Schema) -> bool {
    let is_counters = name.contains("_counter_") || name.starts_with("use_compared_");
    !is_counters || rows.column_with_name(COUNTER.metric().column).is_some()
}

/// The fields, in order, of a rollup of rows with these columns.
pub(super) fn fields(rows: &Schema) -> impl Iterator<Item = Field> {
    let floats = FLOATS.iter().map(|(name, _)| Field::new(*name, DataType::Float64, true));
    let wholes = WHOLES.iter().map(|(name, _)| Field::new(*name, DataType::Int64, true));
    floats.chain(wholes).filter(|field| is_needed(field.name(), rows))
}

/// The columns of a rollup of rows with these columns, as [`fields`] names them.
pub(super) fn arrays(stays: &[Stay], rows: &Schema) -> impl Iterator<Item = ArrayRef> {
    let floats = FLOATS.iter().filter(|(name, _)| is_needed(name, rows)).map(move |(_, value)| {
        let mut column = Float64Builder::with_capacity(stays.len());
        for stay in stays {
            column.append_option(value(stay));
        }
        Arc::new(column.finish()) as ArrayRef
    });
    let wholes = WHOLES.iter().filter(|(name, _)| is_needed(name, rows)).map(move |(_, value)| {
        let mut column = Int64Builder::with_capacity(stays.len());
        for stay in stays {
            column.append_option(value(stay));
        }
        Arc::new(column.finish()) as ArrayRef
    });
    floats.chain(wholes)
}

/// The use of some GPUs' rows by the finest runs, from which that by coarser ones follows.
#[derive(Debug)]
pub(super) struct Stays {
    starts: Vec<usize>,
    stays: Vec<Stay>,
}

impl Stays {
    /// Of rows in these runs.
    pub(super) fn of(records: &RecordBatch, times: &[i64], runs: &Runs) -> Self {
        let columns = UseColumns::of(records);
        let mut stays = Vec::with_capacity(runs.runs.len());
        for of_gpu in runs.by_gpu() {
            let (mut fold, mut counted) = (StayFold::default(), Residency::default());
            for (number, run) in (0..).zip(of_gpu) {
                for row in run.start..run.end {
                    let Some(&time_ns) = times.get(row) else { continue };
                    let stay = columns.stay(row, time_ns, &mut counted);
                    fold.push(number, stay, &mut |_, stay| stays.push(stay));
                }
            }
            fold.finish(&mut |_, stay| stays.push(stay));
        }
        Self { starts: runs.runs.iter().map(|run| run.start).collect(), stays }
    }

    /// By runs that are made of these: one for each.
    pub(super) fn by(&self, runs: &Runs) -> Vec<Stay> {
        let mut joined = Vec::with_capacity(runs.runs.len());
        for of_gpu in runs.by_gpu() {
            let mut fold = StayFold::default();
            for (number, run) in (0..).zip(of_gpu) {
                let first = self.starts.partition_point(|start| *start < run.start);
                let end = self.starts.partition_point(|start| *start < run.end);
                for stay in self.stays.get(first..end).unwrap_or_default() {
                    fold.push(number, stay.clone(), &mut |_, stay| joined.push(stay));
                }
            }
            fold.finish(&mut |_, stay| joined.push(stay));
        }
        joined
    }
}

impl Runs {
    /// The runs of each GPU.
    fn by_gpu(&self) -> impl Iterator<Item = &[Run]> {
        let ends = self.gpus.iter().skip(1).map(|(_, first)| *first).chain([self.runs.len()]);
        let of_gpu = self.gpus.iter().zip(ends).map(|((_, first), end)| self.runs.get(*first..end));
        of_gpu.map(Option::unwrap_or_default)
    }
}

/// The use in rows of a rollup.
#[derive(Debug)]
pub(crate) struct StayColumns {
    floats: [Option<Float64Array>; FLOATS.len()],
    wholes: [Option<Int64Array>; WHOLES.len()],
    first_ns: Option<Int64Array>,
    last_ns: Option<Int64Array>,
}

impl StayColumns {
    /// The columns that there are.
    pub(crate) fn of(records: &RecordBatch) -> Self {
        let whole = |name: &str| records.column_by_name(name)?.as_primitive_opt::<Int64Type>().cloned();
        let float = |name: &str| records.column_by_name(name)?.as_primitive_opt::<Float64Type>().cloned();
        Self {
            floats: FLOATS.map(|(name, _)| float(name)),
            wholes: WHOLES.map(|(name, _)| whole(name)),
            first_ns: whole(FIRST_NS),
            last_ns: whole(LAST_NS),
        }
    }

    /// The use in a row; none if the row has none.
    pub(crate) fn stay(&self, row: usize) -> Option<Stay> {
        let floats = self.floats.each_ref().map(|column| {
            column.as_ref().filter(|column| column.is_valid(row)).map(|column| column.value(row))
        });
        let wholes = self.wholes.each_ref().map(|column| whole(column.as_ref(), row));
        let [
            seconds,
            busy_s,
            idle_s,
            throttled_s,
            throttled_before,
            throttled_after,
            utilization_after,
            rest @ ..,
        ] = floats;
        let [first_w, last_w, max_w, joules, idle_joules, open_joules, power_s, limit_w, rest @ ..] = rest;
        let [counter_first, counter_last, is_average, utilization_open_s, throttled_open_s, rest @ ..] = rest;
        let [fell, rise_j, counted_j, integrated_j, compared_s, rest @ ..] = rest;
        let around = rest.as_chunks::<2>().0;
        let around = [0, 1].map(|side| match around.get(side) {
            Some(&[Some(joules), Some(seconds)]) => SeenPower { joules, seconds },
            _ => SeenPower::default(),
        });
        let [pace_ns, first_w_ns, last_w_ns, counter_first_ns, counter_last_ns, throttled_ns, told_ns] =
            wholes;
        let is = |flag: Option<f64>| flag.is_some_and(|flag| flag > 0.0);
        let power = first_w_ns.zip(first_w).zip(last_w_ns.zip(last_w)).map(|(first, last)| PowerSpan {
            is_average: is(is_average),
            first,
            last,
            joules: joules.unwrap_or(0.0),
            seconds: power_s.unwrap_or(0.0),
            idle_joules: idle_joules.unwrap_or(0.0),
            open_joules: open_joules.unwrap_or(0.0),
            max_w: max_w.unwrap_or(0.0),
        });
        let counter = counter_first_ns.zip(counter_first).zip(counter_last_ns.zip(counter_last));
        let counter = counter.map(|(first, last)| {
            let rise_j = rise_j.unwrap_or(last.1 - first.1);
            let seen = match (counted_j, integrated_j, compared_s) {
                (Some(counted_j), Some(integrated_j), Some(seen_s)) => {
                    CountedSpan { counted_j, integrated_j, seen_s }
                }
                _ => whole_span(rise_j, power),
            };
            CounterSpan { first, last, fell: is(fell), rise_j, seen, around }
        });
        let last_ns = whole(self.last_ns.as_ref(), row)?;
        Some(Stay {
            first_ns: whole(self.first_ns.as_ref(), row)?,
            last_ns,
            pace_ns: pace_ns?,
            seconds: seconds?,
            busy_s: busy_s?,
            idle_s: idle_s?,
            utilization_open_s: utilization_open_s?,
            throttled_s: throttled_s?,
            throttled_open_s: throttled_open_s?,
            throttled_before,
            throttled_after,
            throttled_told_ns: throttled_ns.unwrap_or(last_ns),
            throttled_by: ByLimit::default(),
            utilization_after,
            utilization_told_ns: told_ns.unwrap_or(last_ns),
            power,
            counter,
            limit_w: limit_w.unwrap_or(0.0),
        })
    }
}

fn whole(column: Option<&Int64Array>, row: usize) -> Option<i64> {
    column.filter(|column| column.is_valid(row)).map(|column| column.value(row))
}
