//! A step.

use gpuvitals_core::integral::seconds;

use crate::robust::median;

/// Steps at the begin that last longer than the median times this are warm-up: they compile, fill caches, load data.
pub(super) const WARM_UP: f64 = 1.5;

/// A step of a run, by the clock of the rows that it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunStep {
    /// When it began.
    pub from_ns: i64,
    /// When it ended.
    pub to_ns: i64,
}

impl RunStep {
    /// How long it took, seconds.
    pub fn duration_s(self) -> f64 {
        seconds(self.to_ns.saturating_sub(self.from_ns))
    }
}

/// How many of these steps, which are by time, are warm-up: those before the first one of about the usual length.
pub fn warm_up_steps(steps: &[RunStep]) -> usize {
    let mut durations: Vec<f64> = steps.iter().map(|step| step.duration_s()).collect();
    let usual = median(&mut durations).unwrap_or(0.0);
    steps.iter().position(|step| step.duration_s() <= WARM_UP * usual).unwrap_or(0)
}
