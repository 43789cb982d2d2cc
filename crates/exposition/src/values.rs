//! The latest value of each metric, with its age.

use gpuvitals_core::batch::{MetricColumn, Value};
use gpuvitals_core::catalogue::{METRICS, Tier};
use gpuvitals_core::integral::Pace;
use gpuvitals_core::number::float;
use gpuvitals_core::{Batch, MetricId};

/// Least usual distance between two values of the rare tier, and of the others, which come every second.
const RARE_NS: i64 = 60_000_000_000;
const OTHERS_NS: i64 = 1_000_000_000;

/// Bytes over all links, both directions.
const LINK_BYTES: [MetricId; 2] =
    [MetricId::of("interconnect_tx_bytes"), MetricId::of("interconnect_rx_bytes")];
/// Bytes a second over all links, both directions.
const LINK_RATE: MetricId = MetricId::of("interconnect_bytes_per_s");

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
pub(crate) struct Values {
    /// One slot for each metric of the catalogue.
    slots: Vec<Option<Latest>>,
    /// Bytes per second over all links, from the latest two readings of the counters.
    link_rate: Option<Latest>,
}

impl Values {
    pub(crate) fn new() -> Self {
        Self { slots: vec![None; METRICS.len()], link_rate: None }
    }

    /// Takes the latest values of these rows of a batch, which are in order of time.
    pub(crate) fn take(&mut self, batch: &Batch, rows: &[usize]) {
        let times = batch.timestamps();
        let links_before = self.link_bytes();
        for (metric, column) in batch.metrics() {
            let last = rows.iter().rev().find_map(|&row| Some((column.value(row)?, *times.get(row)?)));
            if let Some((value, at_ns)) = last {
                self.set(metric, value, at_ns);
            }
        }
        if let (Some(before), Some(after)) = (links_before, self.link_bytes()) {
            self.follow_links(before, after);
        }
    }

    /// Sum of the latest byte counters of the links with the reading of the first, if one reading gave both.
    fn link_bytes(&self) -> Option<(Latest, f64)> {
        let [sent, received] = LINK_BYTES.map(|id| self.slot(id).copied());
        let (sent, received) = (sent?, received?);
        let bytes = sent.value?.as_f64() + received.value?.as_f64();
        (sent.at_ns == received.at_ns).then_some((sent, bytes))
    }

    /// No rate over a gap, nor from a counter that was reset.
    fn follow_links(&mut self, before: (Latest, f64), after: (Latest, f64)) {
        let at_ns = after.0.at_ns;
        let (time_ns, bytes) = (at_ns.saturating_sub(before.0.at_ns), after.1 - before.1);
        if time_ns == 0 {
            return;
        }
        if time_ns < 0 || bytes < 0.0 || before.0.fresh(at_ns).is_none() {
            self.link_rate = None;
            return;
        }
        let rate = Value::Float(bytes * 1e9 / float(time_ns));
        Latest::renew(&mut self.link_rate, LINK_RATE, rate, at_ns);
    }

    /// A row of this instant has no value: the one before is not shown in its place.
    pub(crate) fn forget(&mut self, metric: MetricId, at_ns: i64) {
        if let Some(Some(latest)) = self.slots.get_mut(usize::from(metric.0))
            && !latest.makes_late(at_ns)
        {
            latest.value = None;
        }
    }

    fn set(&mut self, metric: MetricId, value: Value, at_ns: i64) {
        if let Some(slot) = self.slots.get_mut(usize::from(metric.0)) {
            Latest::renew(slot, metric, value, at_ns);
        }
    }

    fn slot(&self, metric: MetricId) -> Option<&Latest> {
        self.slots.get(usize::from(metric.0))?.as_ref()
    }

    /// Whether the metric has ever had a value.
    pub(crate) fn has_had(&self, metric: MetricId) -> bool {
        self.slot(metric).is_some()
    }

    /// When the latest value of a metric was measured, if it is fresh.
    pub(crate) fn measured_ns(&self, metric: MetricId, now_ns: i64) -> Option<i64> {
        let latest = self.slot(metric)?;
        latest.fresh(now_ns).map(|_| latest.at_ns)
    }

    /// The latest value of a metric, if it is fresh.
    pub(crate) fn fresh(&self, metric: MetricId, now_ns: i64) -> Option<Value> {
        self.slot(metric)?.fresh(now_ns)
    }

    /// Bytes per second over all links, both directions: as the source gives it, else from its counters.
    pub(crate) fn link_rate(&self, now_ns: i64) -> Option<Value> {
        let counted = || {
            LINK_BYTES.iter().all(|id| self.fresh(*id, now_ns).is_some()).then_some(())?;
            self.link_rate?.fresh(now_ns)
        };
        self.fresh(LINK_RATE, now_ns).or_else(counted)
    }

    /// When the reading was that [`Self::link_rate`] ends with.
    pub(crate) fn link_rate_ns(&self, now_ns: i64) -> Option<i64> {
        let [sent, _] = LINK_BYTES;
        self.measured_ns(LINK_RATE, now_ns).or_else(|| self.measured_ns(sent, now_ns))
    }
}

/// A column's value in a row as a number.
pub(crate) fn number(column: Option<MetricColumn<'_>>, row: usize) -> Option<f64> {
    column?.value(row).map(Value::as_f64)
}
