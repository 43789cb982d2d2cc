//! The usual course of a step, and where each step lies by it.
//!
//! Steps are laid over each other, and each is moved until it fits the usual course best. So the whole course of a step says
//! where it begins, and not one edge.

use gpuvitals_core::number::float;

use super::bounds::FIT_SHARE;
use super::wave::{between, likeness, mean, middle, top_of, whole};

/// Part of a period before a begin that is compared even after a pause.
const AFTER_PAUSE: f64 = 0.1;
/// Distance from the step before, in periods, from which there may be a pause in between: it may be shorter than a step.
const PAUSE_WITHIN: f64 = 1.2;
/// Values of a course, at least and at most.
const POINTS_MIN: usize = 24;
const POINTS_MAX: usize = 96;
/// Most steps that the usual course is made from.
const STEPS_MAX: usize = 400;
/// How far a step is moved at once: so many times, by this part of a period.
const MOVES: usize = 6;
const MOVE: f64 = 1.0 / 48.0;
/// Part of a period before the begin in which the lull is looked for, and after it the height of the work.
const LULL_WITHIN: f64 = 0.3;
/// The lull may reach that much beyond the begin: this is where it was first thought to be.
const LULL_AFTER: f64 = 0.1;
/// Share of the way from the lull to the work from which the lull is over.
const OUT_OF_LULL: f64 = 0.25;
/// Part of a period after that in which the height of the first rise is measured.
const FIRST_RISE: f64 = 0.15;

/// Where a step begins, and how well it fits the usual course, up to 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begin {
    pub(super) place: f64,
    pub(super) fit: f64,
}

/// What is compared of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Compared {
    /// The part of a period before and after its begin.
    reach: f64,
    /// How often steps are moved, and a usual course made anew.
    rounds: usize,
}

/// The whole step.
pub(super) const WHOLE: Compared = Compared { reach: 0.45, rounds: 3 };
/// Its begin alone, where steps are of different lengths: the end of one says nothing of the begin of the next.
pub(super) const BEGIN: Compared = Compared { reach: 0.15, rounds: 2 };

impl Compared {
    /// Places before and after a begin.
    pub(super) fn places(self, period: f64) -> f64 {
        self.reach * period
    }
}

/// Moves begins to where the steps fit each other, and then all of them to where the work rises.
pub(super) fn fitted(values: &[f64], places: &[f64], period: f64, compared: Compared) -> Vec<Begin> {
    let mut begins: Vec<Begin> = places.iter().map(|place| Begin { place: *place, fit: 0.0 }).collect();
    let points = whole(2.0 * period).clamp(POINTS_MIN, POINTS_MAX);
    let part = |point: usize| (2.0 * float(point) / (float(points) - 1.0) - 1.0) * compared.places(period);
    let offsets: Vec<f64> = (0..points).map(part).collect();
    for _ in 0..compared.rounds {
        let mut usual = course(values, &begins, &offsets);
        level(&mut usual);
        for begin in &mut begins {
            *begin = moved(values, *begin, &offsets, (usual.as_slice(), period));
        }
    }
    let usual = course(values, &begins, &offsets);
    fit_after_pauses(values, &mut begins, (usual.as_slice(), offsets.as_slice()), period);
    let rise = rise(&usual, &offsets, period);
    for begin in &mut begins {
        begin.place += rise;
    }
    begins
}

/// The course that steps usually have around their begin.
fn course(values: &[f64], begins: &[Begin], offsets: &[f64]) -> Vec<f64> {
    let every = begins.len().div_ceil(STEPS_MAX).max(1);
    let chosen = || begins.iter().step_by(every);
    let usual = |offset: &f64| middle(chosen().map(|begin| between(values, begin.place + offset)));
    offsets.iter().map(usual).collect()
}

fn level(values: &mut [f64]) {
    let mean = mean(values);
    for value in values {
        *value -= mean;
    }
}

/// A begin where its step fits the usual course best.
fn moved(values: &[f64], begin: Begin, offsets: &[f64], (usual, period): (&[f64], f64)) -> Begin {
    let move_by = |times: usize| (float(times) - float(MOVES)) * MOVE * period;
    let fit = |times: usize| {
        let place = begin.place + move_by(times);
        let mut own: Vec<f64> = offsets.iter().map(|offset| between(values, place + offset)).collect();
        level(&mut own);
        likeness(&own, usual)
    };
    let fits: Vec<f64> = (0..=2 * MOVES).map(fit).collect();
    let best = fits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    let Some((times, &best)) = best else { return begin };
    let beside = match fits.get(times.wrapping_sub(1)).zip(fits.get(times + 1)) {
        Some((before, after)) => top_of(*before, best, *after),
        None => 0.0,
    };
    Begin { place: begin.place + move_by(times) + beside * MOVE * period, fit: best }
}

/// Before the first step and after a pause nothing is like a step: what follows says whether one begins. A place in the pause fits
/// badly, and the pause goes on.
fn fit_after_pauses(values: &[f64], begins: &mut [Begin], (usual, offsets): (&[f64], &[f64]), period: f64) {
    let from = offsets.iter().take_while(|offset| **offset < -AFTER_PAUSE * period).count();
    let mut after: Vec<f64> = usual.iter().skip(from).copied().collect();
    level(&mut after);
    let least = FIT_SHARE * middle(begins.iter().map(|begin| begin.fit));
    let mut before = f64::NEG_INFINITY;
    for begin in begins {
        if begin.place - before > PAUSE_WITHIN * period {
            let own = offsets.iter().skip(from).map(|offset| between(values, begin.place + offset));
            let mut own: Vec<f64> = own.collect();
            level(&mut own);
            begin.fit = begin.fit.max(likeness(&own, &after));
        }
        if begin.fit >= least {
            before = begin.place;
        }
    }
}

/// How far from the begin the course rises out of the lull before it. Work may rise in more than one go: the first one counts, and
/// its middle.
fn rise(course: &[f64], offsets: &[f64], period: f64) -> f64 {
    let points = || offsets.iter().copied().zip(course.iter().copied());
    let within = |from: f64, to: f64| -> Vec<f64> {
        let part = from..=to;
        points().filter(|(offset, _)| part.contains(offset)).map(|(_, value)| value).collect()
    };
    let crossing = |height: f64, near: f64| {
        let crossings = points()
            .zip(points().skip(1))
            .filter(|(before, after)| before.1 < height && after.1 >= height)
            .map(|(before, after)| {
                before.0 + (after.0 - before.0) * (height - before.1) / (after.1 - before.1)
            });
        crossings.min_by(|a, b| (a - near).abs().total_cmp(&(b - near).abs())).unwrap_or(near)
    };
    let lull = within(-LULL_WITHIN * period, LULL_AFTER * period).into_iter().fold(f64::INFINITY, f64::min);
    let work = middle(within(0.0, LULL_WITHIN * period));
    let out = crossing(lull + OUT_OF_LULL * (work - lull), 0.0);
    let first = within(out, out + FIRST_RISE * period);
    if first.is_empty() { out } else { crossing(f64::midpoint(lull, middle(first)), out) }
}
