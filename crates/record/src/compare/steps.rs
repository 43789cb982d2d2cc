//! The steps of a run, by its marks.

use std::collections::HashSet;

use gpuvitals_analysis::robust::median;
use gpuvitals_core::integral::seconds;

use crate::marks::RecordedMark;

/// Words that begin the mark of a step.
const WORDS: [&str; 5] = ["step", "iteration", "iter", "it", "batch"];
/// Fewest steps that say how long one is.
const STEPS_MIN: usize = 5;
/// Steps at the begin that last longer than the median times this are warm-up: they compile, fill caches, load data.
const WARM_UP: f64 = 1.5;

/// A step: from its mark to the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) from_ns: i64,
    pub(super) to_ns: i64,
}

impl Step {
    pub(super) fn duration_s(self) -> f64 {
        seconds(self.to_ns - self.from_ns)
    }
}

/// Whether a mark with this text is one of a step.
pub(super) fn is_step(text: &str) -> bool {
    word_of(text).is_some()
}

/// The steps that marks tell, without those of the warm-up; none if they tell too few. The last mark begins a step whose end is not
/// known.
pub(super) fn steps(marks: &[RecordedMark]) -> Vec<Step> {
    // Every rank of a run may mark the same step: the first of them begins it. A text without a number is another step each time.
    let mut numbered = HashSet::new();
    let has_number = |text: &str| text.bytes().any(|byte| byte.is_ascii_digit());
    let told: Vec<(&str, i64)> = marks
        .iter()
        .filter_map(|mark| Some((word_of(&mark.content.text)?, mark)))
        .filter(|(_, mark)| !has_number(&mark.content.text) || numbered.insert(mark.content.text.trim()))
        .map(|(word, mark)| (word, mark.monotonic_ns))
        .collect();
    // The word that most of them have: a program may mark steps and batches within them.
    let with = |word: &str| told.iter().filter(|(known, _)| *known == word).count();
    let Some(word) = WORDS.into_iter().rev().max_by_key(|&word| with(word)) else { return Vec::new() };
    let begins: Vec<i64> =
        told.iter().filter(|(known, _)| *known == word).map(|(_, time_ns)| *time_ns).collect();
    let mut steps: Vec<Step> = begins
        .iter()
        .zip(begins.iter().skip(1))
        .filter(|(from, to)| from < to)
        .map(|(&from_ns, &to_ns)| Step { from_ns, to_ns })
        .collect();
    let mut durations: Vec<f64> = steps.iter().map(|step| step.duration_s()).collect();
    let Some(usual) = median(&mut durations) else { return Vec::new() };
    let warm = steps.iter().position(|step| step.duration_s() <= WARM_UP * usual).unwrap_or(0);
    steps.drain(..warm);
    if steps.len() < STEPS_MIN { Vec::new() } else { steps }
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
    use super::*;

    fn at(times: &[(i64, &str)]) -> Vec<RecordedMark> {
        let mark = |&(second, text): &(i64, &str)| RecordedMark {
            timestamp_ns: second * 1_000_000_000,
            monotonic_ns: second * 1_000_000_000,
            content: text.into(),
        };
        times.iter().map(mark).collect()
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
        let found = steps(&at(&marks));
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(found.iter().all(|step| (step.duration_s() - 10.0).abs() < 1e-9), "{found:?}");
        assert_eq!(found[0].from_ns, 40_000_000_000);
    }

    #[test]
    fn a_step_that_every_rank_marks_is_one_and_one_without_a_number_is_another_each_time() {
        let text: Vec<String> = (0..9).map(|step| format!("step {step}")).collect();
        let of_ranks: Vec<_> =
            (0_i64..).zip(&text).flat_map(|(at, text)| [(10 * at, text.as_str()); 8]).collect();
        // One of them is late for each step.
        let late =
            of_ranks.iter().enumerate().map(|(at, (time, text))| (time + i64::from(at % 8 == 7), *text));
        let found = steps(&at(&late.collect::<Vec<_>>()));
        assert_eq!(found.len(), 8, "{found:?}");
        assert!(found.iter().all(|step| (step.duration_s() - 10.0).abs() < 1e-9), "{found:?}");
        let unnumbered: Vec<_> = (0..9).map(|step| (10 * step, "step")).collect();
        assert_eq!(steps(&at(&unnumbered)).len(), 8);
    }

    #[test]
    fn too_few_steps_are_none() {
        assert!(steps(&at(&[(0, "step 0"), (1, "step 1"), (2, "step 2")])).is_empty());
        assert!(steps(&[]).is_empty());
    }
}
