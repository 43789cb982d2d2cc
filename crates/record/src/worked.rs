//! How long a machine worked in each step of its run, and did not wait for the others.

use std::collections::{BTreeMap, HashMap};

use gpuvitals_analysis::steps::{RunStep, warm_up_steps};
use gpuvitals_core::integral::seconds;

use crate::marks::RecordedMark;
use crate::steps::marked;

/// The phase in which a program waits for the other machines of its run.
const WAIT: &str = "wait";

/// How long the machine worked in each numbered step after the warm-up, seconds: the step without its phases `wait`, each of which lasts
/// until the next phase, or to the end of the step. By the number, and how often that came before, as a program may count anew in each
/// epoch. Empty: no mark says when it waits.
pub fn worked_s(marks: &[RecordedMark]) -> BTreeMap<(i64, usize), f64> {
    let phase = |mark: &RecordedMark| Some((mark.monotonic_ns, mark.content.phase.as_deref()? == WAIT));
    let phases: Vec<(i64, bool)> = marks.iter().filter_map(phase).collect();
    let mut worked = BTreeMap::new();
    if !phases.iter().any(|(_, is_wait)| *is_wait) {
        return worked;
    }
    let steps = marked(marks);
    let warm_up = warm_up_steps(&steps);
    let mut times: HashMap<i64, usize> = HashMap::new();
    for step in steps.iter().skip(warm_up) {
        let Some(number) = number_at(marks, step.from_ns) else { continue };
        let time = times.entry(number).or_default();
        let lasted_ns = step.to_ns.saturating_sub(step.from_ns);
        worked.insert((number, *time), seconds(lasted_ns.saturating_sub(waited_ns(&phases, step))));
        *time += 1;
    }
    worked
}

/// How long a machine waited in a step, by when phases begin and whether they are such.
fn waited_ns(phases: &[(i64, bool)], step: &RunStep) -> i64 {
    let from = phases.partition_point(|(at_ns, _)| *at_ns < step.from_ns);
    let to = phases.partition_point(|(at_ns, _)| *at_ns < step.to_ns);
    let of_step = phases.get(from..to).unwrap_or_default();
    let ends = of_step.iter().skip(1).map(|(at_ns, _)| *at_ns).chain([step.to_ns]);
    let waits = of_step.iter().zip(ends).filter(|((_, is_wait), _)| *is_wait);
    waits.map(|((at_ns, _), end_ns)| end_ns.saturating_sub(*at_ns)).sum()
}

/// The number of the step that begins at this time. Marks are by time.
fn number_at(marks: &[RecordedMark], from_ns: i64) -> Option<i64> {
    let first = marks.partition_point(|mark| mark.monotonic_ns < from_ns);
    let mut there = marks.iter().skip(first).take_while(|mark| mark.monotonic_ns == from_ns);
    there.find_map(|mark| mark.content.step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark::MarkContent;

    fn mark(ms: i64, step: Option<i64>, phase: Option<&str>) -> RecordedMark {
        let monotonic_ns = ms * 1_000_000;
        let content = MarkContent { step, phase: phase.map(str::to_owned), ..MarkContent::default() };
        RecordedMark { timestamp_ns: monotonic_ns, monotonic_ns, content }
    }

    #[test]
    fn a_step_without_its_waiting_is_work() {
        let mut marks = Vec::new();
        for step in 0..7 {
            let from_ms = step * 1_000;
            marks.push(mark(from_ms, Some(step % 6), None));
            // The next step, too, ends a wait that nothing else ends.
            marks.push(mark(from_ms + 400, None, Some("wait")));
            if step == 2 {
                marks.push(mark(from_ms + 500, None, Some("train")));
                marks.push(mark(from_ms + 900, None, Some("wait")));
            }
        }
        let worked: Vec<((i64, usize), f64)> = worked_s(&marks).into_iter().collect();
        let wanted = [(0, 0.4), (1, 0.4), (2, 0.8), (3, 0.4), (4, 0.4), (5, 0.4)];
        assert_eq!(worked, wanted.map(|(number, worked)| ((number, 0), worked)), "the last one has no end");
        let silent: Vec<RecordedMark> = (0..7).map(|step| mark(step * 1_000, Some(step), None)).collect();
        assert!(worked_s(&silent).is_empty(), "nobody says when it waits");
    }
}
