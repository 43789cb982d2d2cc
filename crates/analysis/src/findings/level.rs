//! How much a GPU does as a rule, beside which it is seen that it stands still.

use gpuvitals_core::MetricId;

use super::threshold::{HUNG_BUSY_PCT, HUNG_POWER, LOADED_FROM_PCT, WINDOW_MINUTES};

/// What tells of work beside power, where it is read, and the value of full activity.
pub(super) const ACTIVITIES: [(MetricId, f64); 4] = [
    (MetricId::of("tensor_active_ratio"), 1.0),
    (MetricId::of("sm_active_ratio"), 1.0),
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
    /// Power, W.
    pub power_w: f64,
    /// Those of `ACTIVITIES` that are read, each in its metric's unit.
    pub activities: Activities,
}

impl WorkLevel {
    /// With a minute more, if it is one of work as before: its utilisation in % and its power in W.
    pub(super) fn with(
        level: Option<Self>,
        (busy, power_w): (Option<f64>, Option<f64>),
        mut activities: Activities,
    ) -> Option<Self> {
        let (Some(busy), Some(power_w)) = (busy, power_w) else { return level };
        let Some(before) = level.filter(|_| busy >= LOADED_FROM_PCT) else {
            let first = Self { minutes: 1, power_w, activities };
            return level.or((busy >= LOADED_FROM_PCT).then_some(first));
        };
        if busy >= HUNG_BUSY_PCT && power_w <= HUNG_POWER.1 * before.power_w {
            return level;
        }
        let minutes = (before.minutes + 1).min(WINDOW_MINUTES);
        #[expect(clippy::cast_precision_loss, reason = "some minutes")]
        let mean = |before: f64, now: f64| before + (now - before) / minutes as f64;
        for (now, before) in activities.iter_mut().zip(before.activities) {
            *now = before.zip(*now).map(|(before, now)| mean(before, now)).or(*now).or(before);
        }
        Some(Self { minutes, power_w: mean(before.power_w, power_w), activities })
    }
}
