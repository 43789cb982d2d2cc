//! How much a GPU does as a rule, beside which it is seen that it stands still.

use gpuvitals_core::MetricId;
use gpuvitals_core::number::float;
use gpuvitals_core::time::MINUTE_NS;

use super::threshold::{HUNG_BUSY_PCT, HUNG_POWER, LOADED_FROM_PCT, WINDOW_MINUTES};

pub(super) const SM_ACTIVE: MetricId = MetricId::of("sm_active_ratio");
/// What tells of work beside power, where it is read, and the value of full activity.
pub(super) const ACTIVITIES: [(MetricId, f64); 4] = [
    (MetricId::of("tensor_active_ratio"), 1.0),
    (SM_ACTIVE, 1.0),
    (MetricId::of("dram_active_ratio"), 1.0),
    (MetricId::of("memory_utilization_pct"), 100.0),
];
/// Values of [`ACTIVITIES`], each in its metric's unit; none: not read.
pub(super) type Activities = [Option<f64>; ACTIVITIES.len()];

/// How a GPU works as a rule: means over its last loaded minutes, ten at most.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WorkLevel {
    /// How many minutes.
    pub minutes: usize,
    /// End of the last one, nanoseconds UTC since 1970.
    pub until_ns: i64,
    /// From one row to the next, nanoseconds, in the minute with most of them: the one in which a GPU falls silent has few.
    pub interval_ns: i64,
    /// Power in these minutes, W.
    pub power_w: f64,
    /// Those of `ACTIVITIES` that are read, each in its metric's unit.
    pub activities: Activities,
}

/// What a minute says of work.
pub(super) struct MinuteOfWork {
    pub(super) end_ns: i64,
    /// Rows with a utilisation.
    pub(super) rows: u64,
    /// Utilisation in %, and power in W.
    pub(super) busy: Option<f64>,
    pub(super) power_w: Option<f64>,
    pub(super) activities: Activities,
}

impl WorkLevel {
    /// With a minute more, if it is one of work as before.
    pub(super) fn with(level: Option<Self>, minute: &MinuteOfWork) -> Option<Self> {
        let &MinuteOfWork { end_ns, rows, busy: Some(busy), power_w: Some(power_w), mut activities } = minute
        else {
            return level;
        };
        let interval_ns = MINUTE_NS / i64::try_from(rows.max(1)).unwrap_or(i64::MAX);
        let Some(before) = level.filter(|_| busy >= LOADED_FROM_PCT) else {
            let first = Self { minutes: 1, until_ns: end_ns, interval_ns, power_w, activities };
            return level.or((busy >= LOADED_FROM_PCT).then_some(first));
        };
        if before.is_far_above(busy, power_w) {
            return level;
        }
        let minutes = (before.minutes + 1).min(WINDOW_MINUTES);
        let mean = |before: f64, now: f64| before + (now - before) / float(minutes);
        for (now, before) in activities.iter_mut().zip(before.activities) {
            *now = before.zip(*now).map(|(before, now)| mean(before, now)).or(*now).or(before);
        }
        let power_w = mean(before.power_w, power_w);
        let interval_ns = interval_ns.min(before.interval_ns);
        Some(Self { minutes, until_ns: end_ns, interval_ns, power_w, activities })
    }

    /// Whether a GPU that says that it is busy, with this utilisation in %, does far less by its power in W.
    pub(super) fn is_far_above(&self, busy: f64, power_w: f64) -> bool {
        busy >= HUNG_BUSY_PCT && power_w <= HUNG_POWER.1 * self.power_w
    }
}
