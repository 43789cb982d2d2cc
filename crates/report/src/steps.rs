//! The steps and phases of a run, by the clock of its courses.

use std::collections::BTreeMap;
use std::ops::Range;

use gpuvitals_analysis::robust::median;
use gpuvitals_analysis::steps::{RunPhase, RunStep, StepSignals};
use gpuvitals_core::energy::EnergyInterval;
use gpuvitals_core::integral::{rounded, seconds};
use gpuvitals_record::{RecordedMark, RunSteps};

use crate::figures::{PhaseFigures, StepFigures};

/// One step of so many is longer than the figure that is shown beside the median.
const TAIL: usize = 20;

/// What a recording says of its steps.
#[derive(Debug, Default)]
pub(crate) struct StepsOfRun {
    pub(crate) figures: Option<StepFigures>,
    pub(crate) phases: Vec<PhaseFigures>,
    /// Of each step after the warm-up, seconds.
    pub(crate) durations_s: Vec<f64>,
}

/// A recording whose steps are looked for, by its own clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepSource<'a> {
    /// All of them, by time.
    pub(crate) marks: &'a [RecordedMark],
    pub(crate) signals: &'a StepSignals,
    /// When the run began and ended.
    pub(crate) from_ns: i64,
    pub(crate) to_ns: i64,
    /// The recorded machine.
    pub(crate) node: Option<&'a str>,
}

impl StepsOfRun {
    pub(crate) fn of(source: StepSource<'_>) -> Self {
        let StepSource { marks, signals, .. } = source;
        let known = RunSteps::marked(marks).or_else(|| RunSteps::shown(signals));
        let phases = RunSteps::phases(marks, source.to_ns, known.as_ref(), signals);
        let durations =
            |known: &RunSteps| -> Vec<f64> { known.steps.iter().map(|step| step.duration_s()).collect() };
        Self {
            figures: known.as_ref().and_then(|known| source.figures(known)),
            phases: source.phases(&phases),
            durations_s: known.as_ref().map(durations).unwrap_or_default(),
        }
    }

    /// Whether there is anything to show.
    pub(crate) fn is_empty(&self) -> bool {
        self.figures.is_none() && self.phases.is_empty()
    }
}

impl StepSource<'_> {
    fn figures(&self, known: &RunSteps) -> Option<StepFigures> {
        let mut sorted: Vec<f64> = known.steps.iter().map(|step| step.duration_s()).collect();
        sorted.sort_by(f64::total_cmp);
        let tail = sorted.len() - 1 - sorted.len() / TAIL;
        let longest = known.steps.iter().max_by(|a, b| a.duration_s().total_cmp(&b.duration_s()))?;
        let energy = |step: &RunStep| self.signals.energy_j(step.from_ns..step.to_ns);
        let taken: Vec<(f64, &RunStep)> =
            known.steps.iter().filter_map(|step| Some((energy(step)?, step))).collect();
        let joules = median(&mut taken.iter().map(|(joules, _)| *joules).collect::<Vec<f64>>());
        let (energy_error, energy_interval) = joules.map(|joules| self.error(&usual(&taken, joules))).unzip();
        let tokens: f64 = known.tokens(self.marks).iter().sum();
        let lasted_s: f64 = sorted.iter().sum();
        Some(StepFigures {
            node: self.node.map(str::to_owned),
            count: known.steps.len(),
            warm_up: known.warm_up.len(),
            origin: known.origin,
            certainty: rounded(known.certainty),
            p95_s: sorted.get(tail).copied().filter(|_| sorted.len() >= TAIL).map(rounded),
            median_s: rounded(median(&mut sorted)?),
            longest_s: rounded(longest.duration_s()),
            longest_at_s: rounded(seconds(longest.from_ns.saturating_sub(self.from_ns))),
            energy_j: joules.map(rounded),
            energy_error,
            energy_interval: energy_interval.flatten(),
            tokens_per_s: (tokens > 0.0).then(|| rounded(tokens / lasted_s)),
        })
    }

    /// How far the energy of these times may be off, in words and in figures.
    fn error(&self, times: &[Range<i64>]) -> (String, Option<EnergyInterval>) {
        let interval = self.signals.energy_interval(times);
        (interval.as_ref().map_or_else(ToString::to_string, ToString::to_string), interval.ok())
    }

    /// The phases of one name as one, in the order in which they first came.
    fn phases(&self, phases: &[RunPhase]) -> Vec<PhaseFigures> {
        let mut by_name: BTreeMap<&str, Vec<Range<i64>>> = BTreeMap::new();
        for phase in phases {
            // The signals are known in slices, which begin before the first row and end after the last.
            let time = phase.from_ns.max(self.from_ns)..phase.to_ns.min(self.to_ns);
            if !time.is_empty() {
                by_name.entry(&phase.name).or_default().push(time);
            }
        }
        let whole_s = seconds(self.to_ns.saturating_sub(self.from_ns)).max(f64::MIN_POSITIVE);
        let mut figures: Vec<PhaseFigures> = by_name
            .into_iter()
            .map(|(name, times)| {
                let lasted_s: f64 = times.iter().map(|time| seconds(time.end - time.start)).sum();
                let first_ns = times.first().map_or(self.from_ns, |time| time.start);
                let joules = times.iter().cloned().map(|time| self.signals.energy_j(time));
                let joules = joules.sum::<Option<f64>>();
                let (energy_error, energy_interval) = joules.map(|_| self.error(&times)).unzip();
                PhaseFigures {
                    name: name.to_owned(),
                    at_s: rounded(seconds(first_ns.saturating_sub(self.from_ns))),
                    times: times.len(),
                    duration_s: rounded(lasted_s),
                    share: rounded(lasted_s / whole_s),
                    energy_j: joules.map(rounded),
                    energy_error,
                    energy_interval: energy_interval.flatten(),
                }
            })
            .collect();
        figures.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
        figures
    }
}

/// The time of the step that took about as much as this.
fn usual(taken: &[(f64, &RunStep)], joules: f64) -> Vec<Range<i64>> {
    let off = |(of_step, _): &&(f64, &RunStep)| (of_step - joules).abs();
    let nearest = taken.iter().min_by(|a, b| off(a).total_cmp(&off(b)));
    nearest.map(|(_, step)| step.from_ns..step.to_ns).into_iter().collect()
}
