//! Phases of a run: before, between and after its steps.

use std::ops::Range;

use super::signals::{Binned, StepSignals};
use super::step::RunStep;
use super::wave::{at, mean, middle};

/// Time that is one of idle, load or warm-up, as a whole.
const SLICE_NS: i64 = 1_000_000_000;
/// Height between rest and the work of the steps: below the first one nothing runs, from the second one on the work is that of steps.
const RESTING: f64 = 0.05;
const WORKING: f64 = 0.5;
/// Least height of the work over the rest, as a share of the work: less is no difference.
const HEIGHT_MIN: f64 = 0.1;
/// One value in so many may be below the rest.
const REST_PART: usize = 50;

/// A phase of a run, by the clock of its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPhase {
    /// `idle`, `load`, `warm-up`, `steady`, `checkpoint`, `other`; or what the program calls it.
    pub name: String,
    /// When it began.
    pub from_ns: i64,
    /// When it ended.
    pub to_ns: i64,
}

/// Where a time is, seen from the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Before,
    Between,
    After,
}

impl StepSignals {
    /// The phases around these steps, and those of the warm-up before them; none without a step.
    pub fn phases(&self, warm_up: &[RunStep], steps: &[RunStep]) -> Vec<RunPhase> {
        let all = || warm_up.iter().chain(steps);
        let (Some(first), Some(last), Some(binned)) = (all().next(), steps.last(), self.binned()) else {
            return Vec::new();
        };
        let heights = Heights::of(binned, steps);
        let mut phases = heights.around(heights.from_ns..first.from_ns, Place::Before);
        let next = all().skip(1).map(Some).chain([None]);
        for ((number, step), next) in all().enumerate().zip(next) {
            let is_warm_up = number < warm_up.len();
            let name = if is_warm_up { "warm-up" } else { "steady" };
            join(&mut phases, name, step.from_ns..step.to_ns);
            let Some(pause) = next.map(|next| step.to_ns..next.from_ns) else { continue };
            if is_warm_up {
                // What compiles has lower power than a step.
                join(&mut phases, name, pause);
            } else {
                for phase in heights.around(pause, Place::Between) {
                    join(&mut phases, &phase.name, phase.from_ns..phase.to_ns);
                }
            }
        }
        phases.extend(heights.around(last.to_ns..heights.to_ns(), Place::After));
        phases
    }
}

/// Adds a phase, or makes the last one longer. What is shorter than nothing is none.
fn join(phases: &mut Vec<RunPhase>, name: &str, time: Range<i64>) {
    if time.is_empty() {
        return;
    }
    match phases.last_mut() {
        Some(last) if last.name == name && last.to_ns >= time.start => last.to_ns = time.end,
        _ => phases.push(RunPhase { name: name.to_owned(), from_ns: time.start, to_ns: time.end }),
    }
}

/// What is hardly ever less: a bin at the begin or the end may be half full.
fn rest(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    at(&sorted, sorted.len() / REST_PART)
}

/// How much the GPUs did over time: 0 at rest, about 1 in a step.
struct Heights {
    from_ns: i64,
    width_ns: i64,
    values: Vec<f64>,
}

impl Heights {
    /// By the first signal, which is the power where it is read.
    fn of(binned: Binned, steps: &[RunStep]) -> Self {
        let Binned { first_ns, width_ns, signals, .. } = binned;
        let mut own = Self { from_ns: first_ns, width_ns, values: Vec::new() };
        own.values = signals.into_iter().next().unwrap_or_default();
        let work = middle(steps.iter().flat_map(|step| own.within(step.from_ns..step.to_ns)).copied());
        let rest = rest(&own.values);
        let height = work - rest;
        let is_clear = height > HEIGHT_MIN * work;
        // Where rest and work are the same, all of it is work.
        let share = |value: f64| if is_clear { (value - rest) / height } else { 1.0 };
        for value in &mut own.values {
            *value = share(*value);
        }
        own
    }

    fn to_ns(&self) -> i64 {
        let bins = i64::try_from(self.values.len()).unwrap_or(i64::MAX);
        self.from_ns.saturating_add(bins.saturating_mul(self.width_ns))
    }

    fn within(&self, time: Range<i64>) -> &[f64] {
        let bin = |time_ns: i64| {
            let bin = time_ns.saturating_sub(self.from_ns).div_euclid(self.width_ns);
            usize::try_from(bin).unwrap_or(0).min(self.values.len())
        };
        self.values.get(bin(time.start)..bin(time.end)).unwrap_or_default()
    }

    /// The phases of a time without steps, slice by slice; between steps as a whole.
    fn around(&self, time: Range<i64>, place: Place) -> Vec<RunPhase> {
        let mut phases = Vec::new();
        let slice_ns = if place == Place::Between { i64::MAX } else { SLICE_NS };
        let mut from_ns = time.start;
        while from_ns < time.end {
            let to_ns = from_ns.saturating_add(slice_ns).min(time.end);
            let height = mean(self.within(from_ns..to_ns));
            let name = match place {
                Place::Before | Place::After if height < RESTING => "idle",
                Place::Before if height < WORKING => "load",
                Place::Before => "warm-up",
                Place::Between if height < WORKING => "checkpoint",
                Place::Between | Place::After => "other",
            };
            join(&mut phases, name, from_ns..to_ns);
            from_ns = to_ns;
        }
        phases
    }
}
