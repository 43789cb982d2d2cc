//! The steps and phases of a run: what its marks say, and where they say nothing, what its signals show.
//!
//! This is the one rule for steps: a comparison and a report of a run have the same.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::Range;

use gpuvitals_analysis::steps::{FoundSteps, RunStep, StepSignals, warm_up_steps};
use serde::Serialize;

use crate::mark::MarkContent;
use crate::marks::RecordedMark;

/// Words that begin the mark of a step.
const WORDS: [&str; 5] = ["step", "iteration", "iter", "it", "batch"];
/// Phases that are no part of a step: one of them ends the step that it follows.
pub(crate) const OUTSIDE: [&str; 7] = ["", "idle", "load", "checkpoint", "eval", "evaluation", "validation"];
/// Fewest steps that say how long one is.
const STEPS_MIN: usize = 5;
/// Steps by which a rank may be behind the first one when it marks the same, where a run has more of them.
const RANKS_APART: usize = 10;
/// Name of the value that says how many tokens a step took.
const TOKENS: &str = "tokens";
/// Least certainty of steps that signals show.
const CERTAINTY_MIN: f64 = 0.7;

/// Where steps are known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepOrigin {
    /// The program said so.
    Marks,
    /// Power, utilisation and the like repeat.
    Signals,
}

/// The steps of a run, by the clock of its rows.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSteps {
    /// Those after the warm-up, by time.
    pub steps: Vec<RunStep>,
    /// Those of the warm-up.
    pub warm_up: Vec<RunStep>,
    /// Where they are known from.
    pub origin: StepOrigin,
    /// How sure it is that these are the steps, 0 to 1.
    pub certainty: f64,
}

impl RunSteps {
    /// The steps that marks tell, in the order of time; none if they tell too few.
    pub fn marked(marks: &[RecordedMark]) -> Option<Self> {
        let mut steps = marked(marks);
        let warm_up = steps.drain(..warm_up_steps(&steps)).collect();
        Self { steps, warm_up, origin: StepOrigin::Marks, certainty: 1.0 }.enough()
    }

    /// The steps that signals show; none if these do not repeat surely.
    pub fn shown(signals: &StepSignals) -> Option<Self> {
        let found = signals.steps().filter(|found| found.certainty >= CERTAINTY_MIN)?;
        let FoundSteps { steps, warm_up, certainty } = found;
        Self { steps, warm_up, origin: StepOrigin::Signals, certainty }.enough()
    }

    /// Itself; none of too few steps.
    fn enough(self) -> Option<Self> {
        (self.steps.len() >= STEPS_MIN).then_some(self)
    }

    /// How many tokens each step took, by the values of that name.
    pub fn tokens(&self, marks: &[RecordedMark]) -> Vec<f64> {
        self.values(marks, TOKENS)
    }

    /// The sum of the values of this name in each step. A value is of the step that began before it: one that stands where a step
    /// begins is of the step before that.
    pub fn values(&self, marks: &[RecordedMark], name: &str) -> Vec<f64> {
        let values: Vec<(i64, f64)> = marks
            .iter()
            .filter(|mark| mark.content.value_name.as_deref() == Some(name))
            .filter_map(|mark| Some((mark.monotonic_ns, mark.content.value?)))
            .collect();
        let first_after = |from_ns: i64| values.partition_point(|(at_ns, _)| *at_ns <= from_ns);
        let begins = || self.steps.iter().map(|step| first_after(step.from_ns));
        // A step that was begun last and did not end has its own.
        let last = self.steps.last().filter(|_| self.origin == StepOrigin::Marks);
        let open = last.and_then(|last| begins_of(marks).into_iter().find(|from_ns| *from_ns > last.from_ns));
        let ends = begins().skip(1).chain([open.map_or(values.len(), first_after)]);
        let within = begins().zip(ends).map(|(from, to)| values.get(from..to).unwrap_or_default());
        within.map(|values| values.iter().map(|(_, value)| value).sum()).collect()
    }
}

/// The steps between marks. The last mark begins a step whose end is not known, unless a phase ends it.
pub(crate) fn marked(marks: &[RecordedMark]) -> Vec<RunStep> {
    let begins = begins_of(marks);
    let ends: Vec<i64> = marks
        .iter()
        .filter(|mark| mark.content.phase.as_deref().is_some_and(|phase| OUTSIDE.contains(&phase)))
        .filter(|mark| mark.content.step.is_none())
        .map(|mark| mark.monotonic_ns)
        .collect();
    let end = |time: Range<i64>| {
        let place = ends.partition_point(|end| *end <= time.start);
        ends.get(place).copied().filter(|end| *end < time.end)
    };
    let next = begins.iter().skip(1).copied().map(Some).chain([None]);
    begins
        .iter()
        .zip(next)
        .filter_map(|(&from_ns, next)| {
            let to_ns = end(from_ns..next.unwrap_or(i64::MAX)).or(next)?;
            (from_ns < to_ns).then_some(RunStep { from_ns, to_ns })
        })
        .collect()
}

/// When steps begin: by the marks that number one; without those by the word that most texts begin with, because a program may
/// mark steps and batches within them. A text without a number is another step each time.
pub(crate) fn begins_of(marks: &[RecordedMark]) -> Vec<i64> {
    let numbered = firsts(marks.iter().filter_map(|mark| Some((mark.content.step?, mark.monotonic_ns))));
    if !numbered.is_empty() {
        return numbered;
    }
    let has_number = |text: &str| text.bytes().any(|byte| byte.is_ascii_digit());
    let of_word = |word: &str| {
        let told = marks.iter().filter(|mark| word_of(&mark.content.text) == Some(word)).enumerate();
        firsts(told.map(|(place, mark)| {
            let text = mark.content.text.trim();
            ((text, (!has_number(text)).then_some(place)), mark.monotonic_ns)
        }))
    };
    WORDS.into_iter().rev().map(of_word).max_by_key(Vec::len).unwrap_or_default()
}

/// When steps begin that are marked by name. Every rank of a run may mark the same step: the first of them begins it. A program may
/// count anew in each epoch, too: a name that comes again after all others, or after enough of them, is another one. Of epochs with
/// fewer steps than say how long one is nothing is known.
fn firsts<K: Eq + Hash>(marks: impl Iterator<Item = (K, i64)>) -> Vec<i64> {
    let marks: Vec<(K, i64)> = marks.collect();
    let names = marks.iter().map(|(name, _)| name).collect::<HashSet<_>>().len();
    let apart = if names < STEPS_MIN { RANKS_APART } else { names.min(RANKS_APART) };
    let mut places: HashMap<K, usize> = HashMap::new();
    let mut begins = Vec::new();
    for (name, at_ns) in marks {
        if places.get(&name).is_none_or(|place| begins.len() - place >= apart) {
            places.insert(name, begins.len());
            begins.push(at_ns);
        }
    }
    begins
}

/// Whether a mark says something of the steps or phases of its run.
pub(crate) fn tells_of_steps(content: &MarkContent) -> bool {
    content.step.is_some()
        || content.phase.is_some()
        || content.value_name.as_deref() == Some(TOKENS)
        || word_of(&content.text).is_some()
}

/// The word of a mark of a step: `step 12`, `Step=12`, `iter_12`, `step`.
fn word_of(text: &str) -> Option<&'static str> {
    let text = text.trim();
    let letters = text.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (word, rest) = text.split_at_checked(letters)?;
    let is_number = |byte: u8| byte.is_ascii_digit() || b" _-=:#/".contains(&byte);
    let word = WORDS.into_iter().find(|known| known.eq_ignore_ascii_case(word))?;
    rest.bytes().all(is_number).then_some(word)
}

#[cfg(test)]
mod tests {
    use gpuvitals_analysis::steps::RunPhase;

    use super::*;

    fn said(second: i64, content: MarkContent) -> RecordedMark {
        let time_ns = second * 1_000_000_000;
        RecordedMark { timestamp_ns: time_ns, monotonic_ns: time_ns, content }
    }

    fn at(times: &[(i64, &str)]) -> Vec<RecordedMark> {
        times.iter().map(|&(second, text)| said(second, text.into())).collect()
    }

    #[test]
    fn a_mark_of_a_step_is_a_word_with_a_number() {
        for (text, word) in [
            ("step 12", Some("step")),
            ("Step=12", Some("step")),
            ("iter_12/100", Some("iter")),
            ("step", Some("step")),
            ("stepping 3", None),
            ("step 3 loss 0.5", None),
            ("epoch 1", None),
            ("", None),
            ("ü 1", None),
        ] {
            assert_eq!(word_of(text), word, "{text}");
        }
    }

    #[test]
    fn steps_lie_between_their_marks_and_begin_after_the_warm_up() {
        let mut marks = vec![(0, "load"), (10, "step 0"), (40, "step 1")];
        marks.extend([(50, "step 2"), (60, "step 3"), (70, "step 4"), (80, "step 5"), (90, "step 6")]);
        marks.insert(5, (65, "checkpoint"));
        let found = RunSteps::marked(&at(&marks)).unwrap();
        assert_eq!((found.steps.len(), found.warm_up.len()), (5, 1), "{found:?}");
        assert!(found.steps.iter().all(|step| (step.duration_s() - 10.0).abs() < 1e-9), "{found:?}");
        assert_eq!(found.steps[0].from_ns, 40_000_000_000);
    }

    #[test]
    fn a_phase_that_is_no_part_of_a_step_ends_it_and_values_are_of_the_step_that_they_follow() {
        let step = |second: i64, number: i64| {
            let value_name = Some("tokens".to_owned());
            said(
                second,
                MarkContent { step: Some(number), value_name, value: Some(7.0), ..MarkContent::default() },
            )
        };
        let phase = |second: i64, name: &str| {
            said(second, MarkContent { phase: Some(name.to_owned()), ..MarkContent::default() })
        };
        let mut marks: Vec<RecordedMark> = (0..6).map(|number| step(10 * number, number)).collect();
        marks.insert(4, phase(35, "forward"));
        marks.extend([phase(55, "checkpoint"), step(90, 6), phase(100, "")]);
        let found = RunSteps::marked(&marks).unwrap();
        let durations: Vec<f64> = found.steps.iter().map(|step| step.duration_s()).collect();
        assert_eq!(durations, [10.0, 10.0, 10.0, 10.0, 10.0, 5.0, 10.0]);
        assert_eq!(found.values(&marks, "tokens"), [7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 0.0]);
        let signals = StepSignals::new(1);
        let phases = RunSteps::phases(&marks, 120_000_000_000, Some(&found), &signals);
        let names: Vec<_> =
            phases.iter().map(|phase| (phase.name.as_str(), phase.to_ns / 1_000_000_000)).collect();
        assert_eq!(names, [("steady", 35), ("forward", 55), ("checkpoint", 90), ("steady", 100)]);
    }

    #[test]
    fn a_step_ends_a_phase_that_it_is_no_part_of_and_steps_outside_of_phases_are_steady() {
        let phase = |second: i64, name: &str| {
            said(second, MarkContent { phase: Some(name.to_owned()), ..MarkContent::default() })
        };
        let step = |second: i64, number: i64| {
            said(second, MarkContent { step: Some(number), ..MarkContent::default() })
        };
        let spans = |marks: &[RecordedMark]| {
            let (found, signals) = (RunSteps::marked(marks), StepSignals::new(1));
            let found = RunSteps::phases(marks, 200_000_000_000, found.as_ref(), &signals);
            let span = |phase: &RunPhase| {
                (phase.name.clone(), phase.from_ns / 1_000_000_000, phase.to_ns / 1_000_000_000)
            };
            found.iter().map(span).collect::<Vec<_>>()
        };
        let span = |name: &str, from: i64, to: i64| (name.to_owned(), from, to);
        // The first step lasts longer, and a checkpoint stands between two others.
        let mut marks = vec![phase(0, "load"), step(20, 0)];
        marks.extend((1..7).map(|number| step(40 + 10 * number, number)));
        marks.extend([phase(105, "checkpoint"), step(120, 7), step(130, 8), phase(140, "")]);
        let wanted = [
            span("load", 0, 20),
            span("warm-up", 20, 50),
            span("steady", 50, 105),
            span("checkpoint", 105, 120),
            span("steady", 120, 140),
        ];
        assert_eq!(spans(&marks), wanted);
        // A second checkpoint, after a step, is another one.
        let mut twice = marks.clone();
        twice.insert(twice.len() - 1, phase(135, "checkpoint"));
        let checkpoints = spans(&twice).into_iter().filter(|(name, ..)| name == "checkpoint");
        let wanted = [span("checkpoint", 105, 120), span("checkpoint", 135, 140)];
        assert_eq!(checkpoints.collect::<Vec<_>>(), wanted);
        // Steps are a part of this one.
        marks[0] = phase(0, "train");
        let wanted = [span("train", 0, 105), span("checkpoint", 105, 120), span("steady", 120, 140)];
        assert_eq!(spans(&marks), wanted);
    }

    #[test]
    fn a_step_that_every_rank_marks_is_one_and_one_without_a_number_is_another_each_time() {
        let text: Vec<String> = (0..9).map(|step| format!("step {step}")).collect();
        let of_ranks: Vec<_> =
            (0_i64..).zip(&text).flat_map(|(at, text)| [(10 * at, text.as_str()); 8]).collect();
        // One of them is late for each step.
        let late =
            of_ranks.iter().enumerate().map(|(at, (time, text))| (time + i64::from(at % 8 == 7), *text));
        let marks = at(&late.collect::<Vec<_>>());
        let numbered: Vec<RecordedMark> = (0_i64..)
            .zip(&marks)
            .map(|(place, mark)| {
                let content = MarkContent { step: Some(place / 8), ..MarkContent::from("forward") };
                RecordedMark { content, ..mark.clone() }
            })
            .collect();
        for marks in [marks, numbered] {
            let found = RunSteps::marked(&marks).unwrap();
            assert_eq!(found.steps.len(), 8, "{found:?}");
            assert!(found.steps.iter().all(|step| (step.duration_s() - 10.0).abs() < 1e-9), "{found:?}");
        }
        let unnumbered: Vec<_> = (0..9).map(|step| (10 * step, "step")).collect();
        assert_eq!(RunSteps::marked(&at(&unnumbered)).unwrap().steps.len(), 8);
    }

    #[test]
    fn a_program_may_count_its_steps_anew_in_each_epoch() {
        let text: Vec<String> = (0..3).flat_map(|_| 0..20).map(|step| format!("step {step}")).collect();
        let marks =
            at(&(0_i64..).map(|step| 10 * step).zip(text.iter().map(String::as_str)).collect::<Vec<_>>());
        assert_eq!(RunSteps::marked(&marks).unwrap().steps.len(), 59);
        let short: Vec<String> = (0..5).flat_map(|_| 0..8).map(|step| format!("step {step}")).collect();
        let marks =
            at(&(0_i64..).map(|step| 10 * step).zip(short.iter().map(String::as_str)).collect::<Vec<_>>());
        let found = RunSteps::marked(&marks).unwrap();
        assert_eq!(found.steps.len(), 39);
        assert!(found.steps.iter().all(|step| (step.duration_s() - 10.0).abs() < 1e-9), "{found:?}");
    }

    #[test]
    fn what_a_step_without_an_end_took_is_not_of_the_one_before_it() {
        let marks: Vec<RecordedMark> = (0..7)
            .flat_map(|number| {
                let tokens = Some("tokens".to_owned());
                let value =
                    MarkContent { value_name: tokens, value: Some(1_000.0), ..MarkContent::default() };
                let step = MarkContent { step: Some(number), ..MarkContent::default() };
                [said(10 * number, step), said(10 * number + 9, value)]
            })
            .collect();
        let found = RunSteps::marked(&marks).unwrap();
        assert_eq!(found.tokens(&marks), [1_000.0; 6]);
    }

    #[test]
    fn a_phase_that_every_rank_marks_is_one() {
        let phase = |second: i64, name: &str| {
            said(second, MarkContent { phase: Some(name.to_owned()), ..MarkContent::default() })
        };
        let marks = [phase(0, "load"), phase(1, "load"), phase(10, "train"), phase(11, "train")];
        let signals = StepSignals::new(1);
        let found = RunSteps::phases(&marks, 30_000_000_000, None, &signals);
        let spans: Vec<_> = found
            .iter()
            .map(|phase| (phase.name.as_str(), phase.from_ns / 1_000_000_000, phase.to_ns / 1_000_000_000))
            .collect();
        assert_eq!(spans, [("load", 0, 10), ("train", 10, 30)]);
    }

    #[test]
    fn too_few_steps_are_none() {
        assert_eq!(RunSteps::marked(&at(&[(0, "step 0"), (1, "step 1"), (2, "step 2")])), None);
        assert_eq!(RunSteps::marked(&[]), None);
        assert_eq!(RunSteps::shown(&StepSignals::new(1)), None);
    }
}
