//! Begins of steps made as even as they are.
//!
//! A begin is known to some error. If one is found too late, the step before it is too long and the one after it too short. So
//! neighbours that differ against each other say how large the error is, and how far begins may be drawn towards a line.

use gpuvitals_core::number::float;

use super::bounds::PAUSE_FROM;
use super::wave::{mean, whole};

/// Largest difference from the usual length that counts, in periods: one wild step says nothing of the error.
const DIFFERENCE_MAX: f64 = 0.3;
/// Least part of the differences that is the steps' own.
const OWN_MIN: f64 = 1e-3;

/// Draws the begins between two pauses towards the line on which they would be without error.
pub(super) fn evened(begins: &[f64], period: f64) -> Vec<f64> {
    let runs = || begins.chunk_by(|before, after| after - before < PAUSE_FROM * period);
    let (mut squares, mut products) = (Vec::new(), Vec::new());
    for run in runs() {
        let lengths: Vec<f64> = run.iter().zip(run.iter().skip(1)).map(|(from, to)| to - from).collect();
        let usual = mean(&lengths);
        let most = DIFFERENCE_MAX * period;
        let apart: Vec<f64> = lengths.iter().map(|length| (length - usual).clamp(-most, most)).collect();
        squares.extend(apart.iter().map(|apart| apart * apart));
        products.extend(apart.iter().zip(apart.iter().skip(1)).map(|(first, second)| first * second));
    }
    let (error, all) = (-mean(&products), mean(&squares));
    if error <= 0.0 || all <= 0.0 {
        return begins.to_vec();
    }
    let own = (all - 2.0 * error).max(OWN_MIN * all) / error;
    // The gain of a steady Kalman filter for a place that wanders.
    let gain = f64::midpoint(-own, (own * own + 4.0 * own).sqrt());
    runs().flat_map(|run| drawn(run, gain)).collect()
}

/// A run of begins, each drawn towards its neighbours before and after it.
fn drawn(run: &[f64], gain: f64) -> Vec<f64> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return Vec::new() };
    let usual = (last - first) / float(run.len() - 1).max(1.0);
    let line = || (0..run.len()).map(|step| first + float(step) * usual);
    let beside: Vec<f64> = run.iter().zip(line()).map(|(begin, line)| begin - line).collect();
    let forward = followed(beside.iter().copied(), gain);
    let mut backward = followed(beside.iter().rev().copied(), gain);
    backward.reverse();
    line().zip(forward.iter().zip(&backward)).map(|(line, (a, b))| line + f64::midpoint(*a, *b)).collect()
}

/// Values followed at a gain, from the mean of the first ones on.
fn followed(values: impl Iterator<Item = f64> + Clone, gain: f64) -> Vec<f64> {
    let first: Vec<f64> = values.clone().take(whole(1.0 / gain) + 1).collect();
    let mut place = mean(&first);
    values
        .map(|value| {
            place += gain * (value - place);
            place
        })
        .collect()
}
