//! The latest value of each metric, with its age.

use gpuvitals_analysis::integral::Pace;
use gpuvitals_core::batch::{MetricColumn, Value};
use gpuvitals_core::catalogue::{METRICS, Tier};
use gpuvitals_core::{Batch, MetricId};

/// First guess of the distance between two values of the rare tier; the others come every second.
const RARE_NS: i64 = 60_000_000_000;

#[derive(Debug, Clone, Copy)]
struct Latest {
    value: Value,
    at_ns: i64,
    pace: Pace,
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

    /// A value older than the one there is late and left out, unless it is so much older that the clock was set back.
    fn set(&mut self, metric: MetricId, value: Value, at_ns: i64) {
        let Some(slot) = self.0.get_mut(usize::from(metric.0)) else { return };
        let mut pace = Pace::new(if metric.metric().tier == Tier::Rare { RARE_NS } else { 0 });
        if let Some(latest) = slot {
            let distance_ns = at_ns.saturating_sub(latest.at_ns);
            if distance_ns < 0 && distance_ns.saturating_neg() <= latest.pace.limit_ns() {
                return;
            }
            pace = latest.pace;
            pace.step(distance_ns);
        }
        *slot = Some(Latest { value, at_ns, pace });
    }

    /// The latest value, if it is not older than five times its usual distance from the one before.
    pub(crate) fn fresh(&self, metric: MetricId, now_ns: i64) -> Option<Value> {
        let latest = self.0.get(usize::from(metric.0))?.as_ref()?;
        let age_ns = now_ns.saturating_sub(latest.at_ns).saturating_abs();
        (age_ns <= latest.pace.limit_ns()).then_some(latest.value)
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
