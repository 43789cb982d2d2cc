//! Sums over a signal whose values stand at equal distances.

use gpuvitals_core::number::float;

use crate::robust::median;

/// Neighbours as one, at twice the distance.
pub(super) fn folded(values: &[f64]) -> Vec<f64> {
    values.as_chunks::<2>().0.iter().map(|[first, second]| f64::midpoint(*first, *second)).collect()
}

/// The sum of the values before each place, and of all.
pub(super) fn sums(values: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let later = values.iter().map(|value| {
        sum += value;
        sum
    });
    std::iter::once(0.0).chain(later).collect()
}

/// The mean of the values from one place up to another one, by their sums.
pub(super) fn mean_between(sums: &[f64], from: usize, to: usize) -> f64 {
    let sum = at(sums, to) - at(sums, from);
    sum / float(to.saturating_sub(from).max(1))
}

/// Values less the mean of those around them.
pub(super) fn without_trend(values: &[f64], around: usize) -> Vec<f64> {
    let sums = sums(values);
    let mean = |place: usize| {
        mean_between(&sums, place.saturating_sub(around), (place + around + 1).min(values.len()))
    };
    values.iter().enumerate().map(|(place, value)| value - mean(place)).collect()
}

/// Values less the straight line through them.
pub(super) fn without_line(values: &[f64]) -> Vec<f64> {
    let middle = (float(values.len()) - 1.0) / 2.0;
    let mean = mean(values);
    let places = || (0..values.len()).map(|place| float(place) - middle);
    let spread: f64 = places().map(|place| place * place).sum();
    let slope = places().zip(values).map(|(place, value)| place * (value - mean)).sum::<f64>()
        / spread.max(f64::MIN_POSITIVE);
    places().zip(values).map(|(place, value)| value - mean - slope * place).collect()
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / float(values.len().max(1))
}

/// Median; 0 of nothing.
pub(super) fn middle(values: impl IntoIterator<Item = f64>) -> f64 {
    median(&mut values.into_iter().collect::<Vec<f64>>()).unwrap_or(0.0)
}

/// How alike two signals are whose mean is 0: 1 where one is a multiple of the other, 0 where they have nothing in common.
pub(super) fn likeness(first: &[f64], second: &[f64]) -> f64 {
    let (mut both, mut own, mut other) = (0.0, 0.0, 0.0);
    for (a, b) in first.iter().zip(second) {
        both += a * b;
        own += a * a;
        other += b * b;
    }
    let most = (own * other).sqrt();
    if most > 0.0 { both / most } else { 0.0 }
}

/// The value at a place; 0 beyond the ends.
pub(super) fn at(values: &[f64], place: usize) -> f64 {
    values.get(place).copied().unwrap_or(0.0)
}

/// The value between two places; the first or last one beyond the ends.
pub(super) fn between(values: &[f64], place: f64) -> f64 {
    let last = values.len().saturating_sub(1);
    let place = place.clamp(0.0, float(last));
    let before = whole(place);
    let share = place - float(before);
    at(values, before) * (1.0 - share) + at(values, (before + 1).min(last)) * share
}

/// How far a parabola through three values has its top from the middle one, at most one place.
pub(super) fn top_of(before: f64, middle: f64, after: f64) -> f64 {
    let bend = before - 2.0 * middle + after;
    if bend < 0.0 { (0.5 * (before - after) / bend).clamp(-1.0, 1.0) } else { 0.0 }
}

/// Without its fraction; 0 of what is below it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "places are far below 2^52")]
pub(super) fn whole(value: f64) -> usize {
    value.max(0.0) as usize
}
