//! What jobs and pods use, as counters: the sums of the rows of `gpu_usage` that this process makes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_array::DictionaryArray;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Int32Type;
use gpuvitals_core::batch::{MetricColumn, RowKeys, Value, numbers, text_at};
use gpuvitals_core::figures::{Family, Kind, Labels, Number};
use gpuvitals_core::number::float;
use gpuvitals_core::time::HOUR_NS;
use gpuvitals_core::usage::{NOBODY, UNOBSERVED};
use gpuvitals_core::{Batch, IdentityColumn, Table};

/// Most series of a metric: all holders but these are one, [`OTHER`].
const SERIES_MAX: usize = 500;
/// The holder that stands for the rest.
const OTHER: &str = "other";
/// A holder of which no row came for so long has ended: its series end, and others have room.
const ENDED_AFTER_NS: i64 = HOUR_NS;
/// Rows of hours that ended before so long do not come again.
const ROWS_KEPT_NS: i64 = 2 * HOUR_NS;
/// What names a holder beside its whole name.
const NAMES: [IdentityColumn; 4] =
    [IdentityColumn::Namespace, IdentityColumn::Pod, IdentityColumn::Container, IdentityColumn::Job];

/// Counters of what holders of GPUs use, from the beginning of this process.
#[derive(Debug, Default)]
pub struct JobMeters {
    named: BTreeMap<Arc<str>, JobMeter>,
    /// Of those that had no place when they used it: it never falls.
    other: UsedTotals,
    /// By hour and key, the highest sums of each row: what has fallen and rises again is not counted twice.
    rows: HashMap<(i64, Arc<str>), UsedTotals, foldhash::fast::RandomState>,
}

/// A holder with series of its own.
#[derive(Debug)]
struct JobMeter {
    labels: Labels,
    totals: UsedTotals,
    /// As of when its newest row is, nanoseconds UTC since 1970.
    last_ns: i64,
}

/// Sums of what was used; none: not known.
#[derive(Debug, Clone, Copy, Default)]
struct UsedTotals {
    held_ns: Option<i64>,
    busy_ns: Option<i64>,
    wasted_ns: Option<i64>,
    used_mj: Option<i64>,
}

/// The columns of a batch.
struct UsedColumns<'a> {
    holder: Option<&'a DictionaryArray<Int32Type>>,
    as_of_ns: Option<MetricColumn<'a>>,
    held_ns: Option<MetricColumn<'a>>,
    known_ns: Option<MetricColumn<'a>>,
    busy_ns: Option<MetricColumn<'a>>,
    used_mj: Option<MetricColumn<'a>>,
}

impl<'a> UsedColumns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let column = |name: &str| batch.records().column_by_name(name);
        let number = |name: &str| column(name).and_then(numbers);
        Self {
            holder: column("holder").and_then(|column| column.as_dictionary_opt::<Int32Type>()),
            as_of_ns: number("as_of_ns"),
            held_ns: number("held_ns"),
            known_ns: number("known_ns"),
            busy_ns: number("busy_ns"),
            used_mj: number("used_mj"),
        }
    }

    fn totals(&self, row: usize) -> UsedTotals {
        let busy_ns = whole_number(self.busy_ns, row);
        let wasted = |known_ns: i64| Some(known_ns - busy_ns?);
        UsedTotals {
            held_ns: whole_number(self.held_ns, row),
            busy_ns,
            wasted_ns: whole_number(self.known_ns, row).and_then(wasted),
            used_mj: whole_number(self.used_mj, row),
        }
    }
}

fn whole_number(numbers: Option<MetricColumn<'_>>, row: usize) -> Option<i64> {
    match numbers?.value(row)? {
        Value::Int(number) => Some(number),
        Value::Float32(_) | Value::Float(_) => None,
    }
}

impl UsedTotals {
    /// Each of two values by a rule.
    fn each(self, other: Self, rule: impl Fn(Option<i64>, Option<i64>) -> Option<i64>) -> Self {
        Self {
            held_ns: rule(self.held_ns, other.held_ns),
            busy_ns: rule(self.busy_ns, other.busy_ns),
            wasted_ns: rule(self.wasted_ns, other.wasted_ns),
            used_mj: rule(self.used_mj, other.used_mj),
        }
    }

    /// By how much it is above earlier sums of the same row.
    fn since(self, before: Self) -> Self {
        self.each(before, |now, before| Some((now? - before.unwrap_or(0)).max(0)))
    }

    fn and(self, more: Self) -> Self {
        self.each(more, |sum, more| more.map(|more| sum.unwrap_or(0).saturating_add(more)).or(sum))
    }
}

impl JobMeters {
    /// Takes rows of `gpu_usage` as they are made; of each the whole sum of its hour so far.
    pub fn take(&mut self, batch: &Batch) {
        let Ok(keys) = RowKeys::whole(batch.records(), Table::GpuUsage) else { return };
        let columns = UsedColumns::of(batch);
        let mut newest_ns = i64::MIN;
        for (row, (id, &hour_ns)) in keys.ids.iter().zip(batch.timestamps()).enumerate() {
            let holder = columns.holder.and_then(|texts| text_at(texts, row));
            let is_work = |holder: &&str| ![NOBODY, UNOBSERVED].contains(holder);
            let (Some(key), Some(holder)) = (keys.keys.get(*id as usize), holder.filter(is_work)) else {
                continue;
            };
            let last_ns = whole_number(columns.as_of_ns, row).unwrap_or(hour_ns);
            newest_ns = newest_ns.max(last_ns);
            let totals = columns.totals(row);
            let counted = self.rows.entry((hour_ns, Arc::clone(key))).or_default();
            let more = totals.since(*counted);
            *counted = totals.each(*counted, Ord::max);
            if let Some(meter) = self.meter(holder, batch, row) {
                meter.totals = meter.totals.and(more);
                meter.last_ns = meter.last_ns.max(last_ns);
            } else {
                self.other = self.other.and(more);
            }
        }
        if newest_ns > i64::MIN {
            self.rows.retain(|(hour_ns, _), _| newest_ns.saturating_sub(*hour_ns) <= ROWS_KEPT_NS);
            self.named.retain(|_, meter| newest_ns.saturating_sub(meter.last_ns) <= ENDED_AFTER_NS);
        }
    }

    /// The series of a holder; none: it has no place.
    fn meter(&mut self, holder: &str, batch: &Batch, row: usize) -> Option<&mut JobMeter> {
        if !self.named.contains_key(holder) {
            if self.named.len() + 1 >= SERIES_MAX {
                return None;
            }
            let identity = batch.identity(row);
            let named = NAMES
                .into_iter()
                .filter_map(|column| Some((column.name(), identity.get(column)?.to_owned())));
            let labels = std::iter::once(("holder", holder.to_owned())).chain(named).collect();
            let meter = JobMeter { labels, totals: UsedTotals::default(), last_ns: i64::MIN };
            self.named.insert(Arc::from(holder), meter);
        }
        self.named.get_mut(holder)
    }

    /// The families with all counters; none before a holder used a GPU.
    pub fn families(&self) -> Vec<Family> {
        let seconds = |name: &'static str, help: &'static str, of: fn(&UsedTotals) -> Option<i64>| {
            self.family(name, help, |totals| of(totals).map(Number::Nanoseconds))
        };
        let energy = "Energy of the GPUs of a job, pod or user since this process began.";
        let joules = |totals: &UsedTotals| totals.used_mj.map(|used_mj| Number::F64(float(used_mj) / 1e3));
        let families = [
            seconds(
                "gpu_job_held_seconds_total",
                "Time that a job, pod or user has held GPUs since this process began, of each GPU; `other`: all beyond 499.",
                |totals| totals.held_ns,
            ),
            seconds(
                "gpu_job_busy_seconds_total",
                "The part of it in which they worked: time times utilisation.",
                |totals| totals.busy_ns,
            ),
            seconds(
                "gpu_job_wasted_seconds_total",
                "The rest of it, where the utilisation is known.",
                |totals| totals.wasted_ns,
            ),
            self.family("gpu_job_energy_joules_total", energy, joules),
        ];
        families.into_iter().filter(|family| !family.samples.is_empty()).collect()
    }

    fn family(
        &self,
        name: &'static str,
        help: &'static str,
        value: impl Fn(&UsedTotals) -> Option<Number>,
    ) -> Family {
        let named = self.named.values().map(|meter| (meter.labels.clone(), &meter.totals));
        let other = (vec![("holder", OTHER.to_owned())], &self.other);
        let samples = named.chain([other]).filter_map(|(labels, totals)| Some((labels, value(totals)?)));
        samples.fold(Family::new(name, Kind::Counter, help), |family, (labels, number)| {
            family.with(labels, number)
        })
    }
}
