//! Throttled time if the firmware counts it: from MI300 on an AMD GPU reports no state but the number of its
//! steps under each limit.

use gpuvitals_core::batch::{MetricColumn, Value};
use gpuvitals_core::{Batch, MetricId};

/// All steps.
pub(crate) const STEPS: MetricId = MetricId::of("throttle_sample_count");
pub(crate) const STEPS_AT_POWER_LIMIT: MetricId = MetricId::of("throttle_ppt_count");
pub(crate) const STEPS_OF_HEAT: [MetricId; 4] = [
    MetricId::of("throttle_prochot_count"),
    MetricId::of("throttle_socket_thermal_count"),
    MetricId::of("throttle_vr_thermal_count"),
    MetricId::of("throttle_hbm_thermal_count"),
];
/// Steps at the power limit, then those at a thermal limit.
const UNDER: [MetricId; 5] = {
    let [prochot, socket, regulator, memory] = STEPS_OF_HEAT;
    [STEPS_AT_POWER_LIMIT, prochot, socket, regulator, memory]
};
/// The counters have 32 bits and wrap.
const WRAP: i64 = 1 << 32;

/// The columns of the counters, looked up once a batch.
#[derive(Debug)]
pub struct StepColumns<'a> {
    steps: Option<MetricColumn<'a>>,
    under: [Option<MetricColumn<'a>>; UNDER.len()],
}

/// The counters at one instant.
#[derive(Debug, Clone, Copy)]
pub struct Steps {
    steps: i64,
    under: [Option<i64>; UNDER.len()],
}

/// Shares of the time since the reading before, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// At the power limit.
    pub power: f64,
    /// At a thermal limit: the longest of them.
    pub heat: f64,
}

/// Shares from successive readings of one GPU's counters.
#[derive(Debug, Clone, Default)]
pub struct Residency {
    before: Option<Steps>,
}

impl<'a> StepColumns<'a> {
    /// The columns of a batch.
    pub fn of(batch: &'a Batch) -> Self {
        Self { steps: batch.metric(STEPS), under: UNDER.map(|id| batch.metric(id)) }
    }

    /// The counters of a row; none if it lacks the steps or any limit.
    pub fn at(&self, row: usize) -> Option<Steps> {
        let under = self.under.map(|column| whole(column, row));
        let steps = whole(self.steps, row)?;
        under.iter().any(Option::is_some).then_some(Steps { steps, under })
    }
}

impl Shares {
    /// Under any limit. Several limits may apply at the same time, so the longest is a lower bound.
    pub fn any(self) -> f64 {
        self.power.max(self.heat)
    }
}

impl Residency {
    /// Whether there was a reading: other throttling columns are derived from these counters and contain
    /// less.
    pub fn is_told(&self) -> bool {
        self.before.is_some()
    }

    /// Takes a reading. The first has no time before it, so its shares are 0; none while the counters do not
    /// move, and after they restarted.
    pub fn read(&mut self, now: Steps) -> Option<Shares> {
        let Some(before) = self.before else {
            self.before = Some(now);
            return Some(Shares { power: 0.0, heat: 0.0 });
        };
        let steps = risen(now.steps, before.steps);
        if steps == 0 {
            return None;
        }
        self.before = Some(now);
        let mut shares = [0.0_f64; UNDER.len()];
        for ((share, now), before) in shares.iter_mut().zip(now.under).zip(before.under) {
            if let (Some(now), Some(before)) = (now, before) {
                let under = risen(now, before);
                // More steps under a limit than in total.
                if under > steps || steps > WRAP / 2 {
                    return None;
                }
                *share = number(under) / number(steps);
            }
        }
        let [power, heat @ ..] = shares;
        Some(Shares { power, heat: heat.into_iter().fold(0.0, f64::max) })
    }
}

/// The whole number of a row.
pub(crate) fn whole(column: Option<MetricColumn<'_>>, row: usize) -> Option<i64> {
    match column?.value(row)? {
        Value::Int(value) => Some(value),
        Value::Float32(_) | Value::Float(_) => None,
    }
}

fn risen(now: i64, before: i64) -> i64 {
    now.saturating_sub(before).rem_euclid(WRAP)
}

#[expect(clippy::cast_precision_loss, reason = "counts of 32 bits")]
fn number(count: i64) -> f64 {
    count as f64
}
