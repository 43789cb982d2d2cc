//! Steps of a training, found from what its GPUs did: no mark is needed.
//!
//! Power, the use of tensor cores and multiprocessors, utilisation and the traffic of links repeat with every step. The time
//! after which they repeat is the period; begins of steps are a chain of rises at about that distance; each is moved to where its
//! step fits the usual one, which also says how sure it is. Signals of all GPUs are added
//! up, and each metric counts by how clearly it repeats.

mod bounds;
mod chain;
mod even;
mod last;
mod period;
mod phases;
mod power;
mod signals;
mod step;
mod usual;
mod warm;
mod wave;

pub use last::{LastOfSteps, last_of_steps};
pub use phases::RunPhase;
pub use signals::StepSignals;
pub use step::{RunStep, warm_up_steps};

use gpuvitals_core::number::float;

use crate::robust::Spread;

use bounds::{FIT_SHARE, PAUSE_FROM, STEPS_MIN};
use period::{period, strongest};
use signals::Binned;
use usual::{BEGIN, Begin, WHOLE};
use wave::{folded, likeness, middle, without_trend};

/// Least strength of a signal's repetition, and least likeness of its steps to the usual one: noise and the load of a server that
/// answers requests have less.
const STRENGTH_MIN: f64 = 0.4;
const FIT_MIN: f64 = 0.75;
/// Deviation of the lengths of steps, in usual ones, from which they are different.
const UNEVEN_FROM: f64 = 0.03;
/// Fewest rows that show the begin of a step by itself.
const ROWS_MIN: f64 = 2.0;
/// Fewest rows of a step.
const STEP_ROWS_MIN: f64 = 4.0;
/// Most bins of a step in which its begin is looked for.
const STEP_BINS_MAX: f64 = 128.0;
/// Bins around one whose mean is taken away before signals are weighed against each other.
const TREND_BINS: usize = 256;
/// Lengths of a step, in usual ones, that are even.
const EVEN: std::ops::RangeInclusive<f64> = 0.75..=1.0 / 0.75;

/// Steps that signals show.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundSteps {
    /// Those after the warm-up, by time. Where work pauses, a step is as long as the others.
    pub steps: Vec<RunStep>,
    /// Those of the warm-up: they last longer, or the GPUs did something else in them.
    pub warm_up: Vec<RunStep>,
    /// How sure it is that these are the steps, 0 to 1: how well they fit the usual one, times the share of them that are about as
    /// long as the median.
    pub certainty: f64,
}

impl StepSignals {
    /// The steps; none if the signals do not repeat, or too seldom.
    pub fn steps(&self) -> Option<FoundSteps> {
        let Binned { first_ns, width_ns, row_ns, reading_ns, signals } = self.binned()?;
        let mut level = together(&signals)?;
        let (row, reading) = (bins(row_ns, width_ns), bins(reading_ns, width_ns));
        let repeated = period(&level, reading).filter(|shift| shift.strength() >= STRENGTH_MIN)?;
        if repeated.places < STEP_ROWS_MIN * row {
            return None;
        }
        let (mut length, mut scale) = (repeated.places, 1.0);
        while length > STEP_BINS_MAX {
            level = folded(&level);
            (length, scale) = (length / 2.0, scale * 2.0);
        }
        let begins = begins(&level, length, row / scale)?;
        let fit = middle(begins.iter().map(|begin| begin.fit)).clamp(0.0, 1.0);
        let places: Vec<f64> = begins.iter().map(|begin| begin.place).collect();
        let usual = usual_length(&places, length);
        // The value of a bin is that of its middle.
        let places = even::evened(&places, usual).into_iter().map(|place| (place + 0.5) * scale);
        let usual = usual * scale;
        let spans = steps(&places.collect::<Vec<f64>>(), usual);
        let is_even = |step: &&(f64, f64)| EVEN.contains(&((step.1 - step.0) / usual));
        let even = float(spans.iter().filter(is_even).count()) / float(spans.len());
        let time = |place: f64| first_ns.saturating_add(nanoseconds(place, width_ns));
        let step = |&(from, to): &(f64, f64)| RunStep { from_ns: time(from), to_ns: time(to) };
        let mut steps: Vec<RunStep> = spans.iter().map(step).collect();
        // The first signal is the power, where it is read.
        let power = signals.first().map(Vec::as_slice).unwrap_or_default();
        let warm = warm::warm_up(power, &spans).unwrap_or_else(|| warm_up_steps(&steps));
        let warm_up = steps.drain(..warm).collect();
        Some(FoundSteps { steps, warm_up, certainty: fit * even })
    }
}

/// One signal of all: each counts by how clearly it repeats. Traffic of links may be high where the work is low; it is turned
/// over then.
fn together(signals: &[Vec<f64>]) -> Option<Vec<f64>> {
    let mut weighed: Vec<(f64, Vec<f64>)> = signals
        .iter()
        .filter_map(|signal| {
            let weight = strongest(signal)?.strength();
            let trendless = without_trend(signal, TREND_BINS);
            let square = trendless.iter().map(|value| value * value).sum::<f64>() / float(signal.len());
            let (middle, scale) = (middle(signal.iter().copied()), square.sqrt().max(f64::MIN_POSITIVE));
            Some((weight, signal.iter().map(|value| weight * (value - middle) / scale).collect()))
        })
        .collect();
    weighed.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut weighed = weighed.into_iter().map(|(_, signal)| signal);
    let mut sum = weighed.next()?;
    for signal in weighed {
        let alike = likeness(&without_trend(&sum, TREND_BINS), &without_trend(&signal, TREND_BINS));
        let sign = if alike < 0.0 { -1.0 } else { 1.0 };
        sum.iter_mut().zip(&signal).for_each(|(sum, value)| *sum += sign * value);
    }
    Some(sum)
}

/// Where steps begin; none if too few are like the others. A row is so many values long.
fn begins(values: &[f64], length: f64, row: f64) -> Option<Vec<Begin>> {
    let chain = chain::chain(values, length);
    if chain.len() < STEPS_MIN {
        return None;
    }
    let places: Vec<f64> = chain.iter().map(|place| float(*place)).collect();
    let usual = usual_length(&places, length);
    let mut begins = usual::fitted(values, &places, usual, WHOLE);
    let fit = middle(begins.iter().map(|begin| begin.fit));
    if is_uneven(&begins, usual) && BEGIN.places(usual) >= ROWS_MIN * row {
        let places: Vec<f64> = begins.iter().map(|begin| begin.place).collect();
        let closer = usual::fitted(values, &places, usual, BEGIN);
        for (begin, closer) in begins.iter_mut().zip(closer) {
            *begin = Begin { place: closer.place, fit: begin.fit.max(closer.fit) };
        }
    }
    begins.retain(|begin| begin.fit >= FIT_SHARE * fit);
    begins.sort_by(|a, b| a.place.total_cmp(&b.place));
    begins.dedup_by(|later, kept| later.place - kept.place < length / 4.0);
    (begins.len() >= STEPS_MIN && fit >= FIT_MIN).then_some(begins)
}

/// Whether steps are of different lengths.
fn is_uneven(begins: &[Begin], usual: f64) -> bool {
    let distances = begins.iter().zip(begins.iter().skip(1)).map(|(from, to)| to.place - from.place);
    let spread = Spread::of(distances.filter(|distance| *distance < PAUSE_FROM * usual));
    spread.is_some_and(|spread| spread.deviation > UNEVEN_FROM * usual)
}

/// The median distance of begins that no pause lies between.
fn usual_length(places: &[f64], about: f64) -> f64 {
    let distances = places.iter().zip(places.iter().skip(1)).map(|(from, to)| to - from);
    let middle = middle(distances.filter(|distance| *distance < PAUSE_FROM * about));
    if middle > 0.0 { middle } else { about }
}

/// From begin to begin; before a pause as long as usual.
fn steps(places: &[f64], usual: f64) -> Vec<(f64, f64)> {
    let next = places.iter().skip(1).map(Some).chain([None]);
    let end = |from: f64, next: Option<&f64>| {
        next.copied().filter(|next| next - from < PAUSE_FROM * usual).unwrap_or(from + usual)
    };
    places.iter().zip(next).map(|(from, next)| (*from, end(*from, next))).collect()
}

fn bins(span_ns: i64, width_ns: i64) -> f64 {
    float(span_ns) / float(width_ns)
}

#[expect(clippy::cast_possible_truncation, reason = "some hours")]
fn nanoseconds(bins: f64, width_ns: i64) -> i64 {
    (bins * float(width_ns)).round() as i64
}
