//! The latest value of each metric, with its age.

use gpuvitals_analysis::integral::Pace;
use gpuvitals_core::batch::{MetricColumn, Value};
use gpuvitals_core::catalogue::{METRICS, Tier};
use gpuvitals_core::{Batch, MetricId};

/// Least usual distance between two values of the rare tier, and of the others, which come every second.
const RARE_NS: i64 = 60_000_000_000;
const OTHERS_NS: i64 = 1_000_000_000;

/// The latest value of one metric.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latest {
    /// None: the latest reading had no value.
    value: Option<Value>,
    at_ns: i64,
    pace: Pace,
}

impl Latest {
    /// Replaces the previous value, unless the new one came late.
    pub(crate) fn renew(slot: &mut Option<Self>, metric: MetricId, value: Value, at_ns: i64) {
        let mut pace = Pace::new(if metric.metric().tier == Tier::Rare { RARE_NS } else { OTHERS_NS });
        if let Some(latest) = slot {
            if latest.makes_late(at_ns) {
                return;
            }
            pace = latest.pace;
            pace.step(at_ns.saturating_sub(latest.at_ns));
        }
        *slot = Some(Self { value: Some(value), at_ns, pace });
    }

    /// The value, if no later reading lacked it and it is not older than five times its usual distance from
    /// the one before.
    pub(crate) fn fresh(&self, now_ns: i64) -> Option<Value> {
        let age_ns = now_ns.saturating_sub(self.at_ns).saturating_abs();
        self.value.filter(|_| age_ns <= self.pace.limit_ns())
    }

    /// An older reading came late and is left out, unless it is so much older that the clock was set back.
    fn makes_late(&self, at_ns: i64) -> bool {
        let ahead_ns = self.at_ns.saturating_sub(at_ns);
        ahead_ns > 0 && ahead_ns <= self.pace.limit_ns()
    }
}

/// The latest values of one GPU or host.
#[derive(Debug)]
pub(crate) struct Values(Vec<Option<Latest>>);

impl Values {
    pub(crate) fn new() -> Self {
        Self(vec![None; METRICS.len()])
    }

    /// Takes the latest values of these rows of a batch, which are in order of time.
    pub(crate) fn take(&mut self, batch: &Batch, rows: &[usize]) {
        let times = batch.timestamps();
        for (metric, column) in batch.metrics() {
            let last = rows.iter().rev().find_map(|&row| Some((column.value(row)?, *times.get(row)?)));
            if let Some((value, at_ns)) = last {
                self.set(metric, value, at_ns);
            }
        }
    }

    /// A row of this instant has no value: the one before is not shown in its place.
    pub(crate) fn forget(&mut self, metric: MetricId, at_ns: i64) {
        if let Some(Some(latest)) = self.0.get_mut(usize::from(metric.0))
            && !latest.makes_late(at_ns)
        {
            latest.value = None;
        }
    }

    fn set(&mut self, metric: MetricId, value: Value, at_ns: i64) {
        if let Some(slot) = self.0.get_mut(usize::from(metric.0)) {
            Latest::renew(slot, metric, value, at_ns);
        }
    }

    /// Whether the metric has ever had a value.
    pub(crate) fn has_had(&self, metric: MetricId) -> bool {
        self.0.get(usize::from(metric.0)).is_some_and(Option::is_some)
    }

    /// The latest value of a metric, if it is fresh.
    pub(crate) fn fresh(&self, metric: MetricId, now_ns: i64) -> Option<Value> {
        self.0.get(usize::from(metric.0))?.as_ref()?.fresh(now_ns)
    }
}

/// A column's value in a row as a number.
pub(crate) fn number(column: Option<MetricColumn<'_>>, row: usize) -> Option<f64> {
    column?.value(row).map(Value::as_f64)
}

/// A column's value in a row as bits.
pub(crate) fn bits(column: Option<MetricColumn<'_>>, row: usize) -> Option<i64> {
    match column?.value(row)? {
        Value::Int(bits) => Some(bits),
        Value::Float32(_) | Value::Float(_) => None,
    }
}
