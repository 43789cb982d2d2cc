//! Who is the last in the steps of a job: the one for whom the others wait.
//!
//! In a step all members wait for the slowest one, so all of them take as long as it does. What differs is their own work: without
//! the time in which they wait for each other.

use super::wave::{middle, number};
use crate::robust::median;

/// Fewest members that are compared: of two, one is always the last.
const MEMBERS_MIN: usize = 3;
/// Fewest steps that say who is the last.
const STEPS_MIN: usize = 5;
/// Least work of the last one, as a multiple of the others' median: somebody is always the last by a little.
const BEHIND_FROM: f64 = 1.05;
/// Least share of the steps in which it is.
const SHARE_MIN: f64 = 0.5;

/// The member of a job for whom the others wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LastOfSteps {
    /// Its place among the members.
    pub member: usize,
    /// Share of the steps in which it was the last by 5 % or more, 0 to 1.
    pub share: f64,
    /// Its own work as a multiple of the others' median, in the middle step.
    pub ratio: f64,
}

/// Who is the last in half of the steps or more, by the own work of each member in each step, seconds; none: nobody is, or too
/// little is known. A step in which a member is missing does not count.
pub fn last_of_steps(steps: &[Vec<Option<f64>>]) -> Option<LastOfSteps> {
    let members = steps.iter().map(Vec::len).max().filter(|members| *members >= MEMBERS_MIN)?;
    let whole: Vec<Vec<f64>> = steps
        .iter()
        .filter(|step| step.len() == members)
        .filter_map(|step| step.iter().copied().collect())
        .collect();
    if whole.len() < STEPS_MIN {
        return None;
    }
    let lasts: Vec<(usize, f64)> = whole.iter().filter_map(|step| last_of(step)).collect();
    let share = |member: usize| {
        let is_last = |(last, ratio): &&(usize, f64)| *last == member && *ratio >= BEHIND_FROM;
        number(lasts.iter().filter(is_last).count()) / number(whole.len())
    };
    let (member, share) =
        (0..members).map(|member| (member, share(member))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let ratio = middle(lasts.iter().filter(|(last, _)| *last == member).map(|(_, ratio)| *ratio));
    (share >= SHARE_MIN).then_some(LastOfSteps { member, share, ratio })
}

/// Who worked longest in a step, and how long compared with the median of the others.
fn last_of(step: &[f64]) -> Option<(usize, f64)> {
    let (last, longest) = step.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let others = step.iter().enumerate().filter(|(member, _)| *member != last).map(|(_, work)| *work);
    let usual = median(&mut others.collect::<Vec<f64>>()).filter(|usual| *usual > 0.0)?;
    Some((last, longest / usual))
}
