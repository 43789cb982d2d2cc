//! The places at which steps begin: a chain of rises at about equal distances, as a beat is found in music.

use gpuvitals_core::number::float;

use super::wave::{mean_between, sums, whole};

/// Distances of rises that belong to one run of steps, in periods.
const NEAREST: f64 = 0.55;
const FARTHEST: f64 = 1.8;
/// Part of a period over which a rise is measured, before and after it.
const RISE_PART: f64 = 0.1;
/// Share of a usual rise from which one is worth a place in the chain.
const RISE_MIN: f64 = 0.35;
/// A rise counts at most this many usual ones: the begin of the work is a large one.
const RISE_MAX: f64 = 1.5;
/// What a distance costs that is not the period, times the square of the logarithm of its ratio.
const UNEVEN: f64 = 6.0;
/// What a pause costs that is longer than the farthest distance.
const PAUSE: f64 = 1.5;

/// The best way to a place: its worth, and the place before.
#[derive(Debug, Clone, Copy, Default)]
struct Link {
    worth: f64,
    before: Option<usize>,
}

/// Where steps of about this length begin.
pub(super) fn chain(values: &[f64], period: f64) -> Vec<usize> {
    let rises = rises(values, period);
    let Some(usual) = usual(&rises, period) else { return Vec::new() };
    let (near, far) = (whole(NEAREST * period).max(1), whole((FARTHEST * period).ceil()));
    let costs: Vec<f64> =
        (near..=far).map(|distance| UNEVEN * (float(distance) / period).ln().powi(2)).collect();
    let mut worths: Vec<f64> = Vec::with_capacity(rises.len());
    let mut links: Vec<Option<usize>> = Vec::with_capacity(rises.len());
    let mut after_pause = Link { worth: f64::NEG_INFINITY, before: None };
    for (place, rise) in rises.iter().enumerate() {
        let mut best = Link::default();
        let latest = place.checked_sub(near);
        let known = latest.and_then(|latest| worths.get(place.saturating_sub(far)..=latest));
        for (back, (worth, cost)) in known.unwrap_or_default().iter().rev().zip(&costs).enumerate() {
            let worth = worth - cost;
            if worth > best.worth {
                best = Link { worth, before: latest.and_then(|latest| latest.checked_sub(back)) };
            }
        }
        if let Some(earlier) = place.checked_sub(far + 1)
            && let Some(&worth) = worths.get(earlier)
            && worth - PAUSE > after_pause.worth
        {
            after_pause = Link { worth: worth - PAUSE, before: Some(earlier) };
        }
        if after_pause.worth > best.worth {
            best = after_pause;
        }
        worths.push(best.worth + (rise / usual).min(RISE_MAX) - RISE_MIN);
        links.push(best.before);
    }
    let last = worths.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(place, _)| place);
    let mut places: Vec<usize> =
        std::iter::successors(last, |place| links.get(*place).copied().flatten()).collect();
    places.reverse();
    places
}

/// How much higher a signal is after each place than before it.
fn rises(values: &[f64], period: f64) -> Vec<f64> {
    let (sums, part) = (sums(values), whole((RISE_PART * period).round()).max(1));
    let rise = |place: usize| {
        if place == 0 {
            return 0.0;
        }
        let after = mean_between(&sums, place, (place + part).min(values.len()));
        after - mean_between(&sums, place.saturating_sub(part), place)
    };
    (0..values.len()).map(rise).collect()
}

/// The median of the largest rise of each period; none if nothing rises.
fn usual(rises: &[f64], period: f64) -> Option<f64> {
    let largest = rises.chunks(whole(period).max(1)).map(|part| part.iter().copied().fold(0.0, f64::max));
    crate::robust::median(&mut largest.collect::<Vec<f64>>()).filter(|usual| *usual > 0.0)
}
