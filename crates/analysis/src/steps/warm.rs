//! Steps at the begin that are none yet: what compiles and fills caches rises and falls, too, and is cut to pieces that are as long as
//! a step.

use gpuvitals_core::number::float;

use super::step::WARM_UP;
use super::wave::{mean_between, middle, sums, whole};
use crate::robust::Spread;

/// Deviations from which the height of a step is not the usual one.
const DEVIATIONS: f64 = 3.0;
/// The same as a share of what the signal rises and falls within the steps: these may be very even.
const SWING_SHARE: f64 = 0.15;
/// The same as a share of the usual height: a power drifts by less while a machine gets warm.
const DRIFT_SHARE: f64 = 0.1;
/// Share of the values of the steps that is below the swing, and above it.
const SWING_TAIL: f64 = 0.1;
/// So many usual steps without a pause between them begin the run: after the compiling of a step comes one that is like the others.
const USUAL_MIN: usize = 3;
/// One step of so many may be warm-up by its height: what goes on for longer is a part of the run.
const PART_MAX: usize = 5;

/// How many of these steps, which are by time, are warm-up by the height of a signal in them and by their length; none if that is a
/// large part of them.
pub(super) fn warm_up(values: &[f64], steps: &[(f64, f64)]) -> Option<usize> {
    let sums = sums(values);
    let places = |(from, to): &(f64, f64)| (whole(*from), whole(*to).min(values.len()));
    let height = |step: &(f64, f64)| {
        let (from, to) = places(step);
        mean_between(&sums, from, to)
    };
    let heights: Vec<f64> = steps.iter().map(height).collect();
    let usual = Spread::of(heights.iter().copied())?;
    let length = middle(steps.iter().map(|(from, to)| to - from));
    let within = steps.iter().flat_map(|step| {
        let (from, to) = places(step);
        values.get(from..to).unwrap_or_default().iter().copied()
    });
    let most =
        (DEVIATIONS * usual.deviation).max(SWING_SHARE * swing(within)).max(DRIFT_SHARE * usual.median.abs());
    let is_usual: Vec<bool> = heights
        .iter()
        .zip(steps)
        .map(|(height, (from, to))| (height - usual.median).abs() <= most && to - from <= WARM_UP * length)
        .collect();
    let mut runs = is_usual.windows(USUAL_MIN).zip(steps.windows(USUAL_MIN));
    let first = runs.position(|(are_usual, run)| are_usual.iter().all(|is| *is) && is_unbroken(run))?;
    (first <= steps.len() / PART_MAX).then_some(first)
}

/// Whether each of these steps begins where the one before it ends.
fn is_unbroken(steps: &[(f64, f64)]) -> bool {
    steps.iter().zip(steps.iter().skip(1)).all(|(step, next)| next.0 <= step.1)
}

/// How far values rise and fall, without the highest and the lowest of them.
fn swing(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let at = |share: f64| sorted.get(whole(share * float(last))).copied().unwrap_or(0.0);
    at(1.0 - SWING_TAIL) - at(SWING_TAIL)
}
