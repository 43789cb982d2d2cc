//! The phases of a run: those that its marks name, and those around its steps.

use std::ops::Range;

use gpuvitals_analysis::steps::{RunPhase, RunStep, StepSignals};

use crate::marks::RecordedMark;
use crate::steps::{OUTSIDE, RunSteps, begins_of};

impl RunSteps {
    /// The phases that marks name, in the order of time, the last one to the end of the run, and the steps outside of them; where marks
    /// name none, those around the steps.
    pub fn phases(
        marks: &[RecordedMark],
        end_ns: i64,
        steps: Option<&Self>,
        signals: &StepSignals,
    ) -> Vec<RunPhase> {
        let (warm_up, steps) =
            steps.map(|known| (known.warm_up.as_slice(), known.steps.as_slice())).unwrap_or_default();
        let mut named: Vec<(&str, i64)> = marks
            .iter()
            .filter_map(|mark| Some((mark.content.phase.as_deref()?, mark.monotonic_ns)))
            .collect();
        if named.is_empty() {
            return signals.phases(warm_up, steps);
        }
        let begins = begins_of(marks);
        // The next step ends a phase that it is no part of.
        let next_step = |(name, from_ns): (&str, i64)| {
            let next = begins.get(begins.partition_point(|begin_ns| *begin_ns <= from_ns));
            next.copied().filter(|_| OUTSIDE.contains(&name))
        };
        // Every rank may mark the same phase: the first of them begins it.
        named.dedup_by(|later, first| {
            later.0 == first.0 && next_step(*first).is_none_or(|step_ns| later.1 <= step_ns)
        });
        let ends = named.iter().skip(1).map(|(_, at_ns)| *at_ns).chain([end_ns]);
        let mut phases: Vec<RunPhase> = named
            .iter()
            .zip(ends)
            .map(|(&(name, from_ns), to_ns)| {
                let to_ns = next_step((name, from_ns)).map_or(to_ns, |step_ns| to_ns.min(step_ns));
                RunPhase { name: name.to_owned(), from_ns, to_ns }
            })
            .filter(|phase| !phase.name.is_empty() && phase.from_ns < phase.to_ns)
            .collect();
        let others = [("warm-up", warm_up), ("steady", steps)];
        let others: Vec<RunPhase> =
            others.into_iter().flat_map(|(name, steps)| outside(&phases, name, steps)).collect();
        phases.extend(others);
        phases.sort_by_key(|phase| phase.from_ns);
        phases
    }
}

/// The times of these steps that lie in no phase, as phases of this name. Both are by time.
fn outside(phases: &[RunPhase], name: &str, steps: &[RunStep]) -> Vec<RunPhase> {
    let mut found: Vec<RunPhase> = Vec::new();
    let mut add = |time: Range<i64>| match found.last_mut() {
        _ if time.is_empty() => {}
        Some(last) if last.to_ns == time.start => last.to_ns = time.end,
        _ => found.push(RunPhase { name: name.to_owned(), from_ns: time.start, to_ns: time.end }),
    };
    for step in steps {
        let mut from_ns = step.from_ns;
        let first = phases.partition_point(|phase| phase.to_ns <= from_ns);
        for phase in phases.iter().skip(first).take_while(|phase| phase.from_ns < step.to_ns) {
            add(from_ns..phase.from_ns);
            from_ns = from_ns.max(phase.to_ns);
        }
        add(from_ns..step.to_ns);
    }
    found
}
