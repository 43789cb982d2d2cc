//! Of several machines in one run, the one for which the others wait in its steps.

use std::collections::BTreeMap;

use gpuvitals_core::number::float;

use crate::robust::median;

/// Fewest steps that tell it.
const STEPS_MIN: usize = 5;
/// It works longest in more than this share of the steps.
const SHARE_MIN: f64 = 0.5;
/// Its work in a step is so many times that of the others: less is the noise of equal machines.
const TIMES_MIN: f64 = 1.1;

/// The machine for which the others wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LastOfSteps {
    /// Its place among the machines.
    pub at: usize,
    /// Steps that all of them have.
    pub steps: usize,
    /// Share of these in which it worked longest.
    pub share: f64,
    /// Its middle work in a step, seconds.
    pub worked_s: f64,
    /// That of the others.
    pub others_s: f64,
}

/// The one that works longest in most steps, by how long each machine itself worked in each step, seconds. No clock is compared with
/// another. None: they are alike, they have too few steps in common, or there is one machine.
pub fn last_of_steps<K: Ord>(machines: &[BTreeMap<K, f64>]) -> Option<LastOfSteps> {
    let (first, rest) = machines.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let of_all = |(step, worked): (&K, &f64)| -> Option<Vec<f64>> {
        let rest = rest.iter().map(|machine| machine.get(step).copied());
        std::iter::once(Some(*worked)).chain(rest).collect()
    };
    let common: Vec<Vec<f64>> = first.iter().filter_map(of_all).collect();
    if common.len() < STEPS_MIN {
        return None;
    }
    let mut lasts = vec![0_usize; machines.len()];
    for worked in &common {
        let longest = worked.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        if let Some(count) = longest.and_then(|(at, _)| lasts.get_mut(at)) {
            *count += 1;
        }
    }
    let (at, count) = lasts.into_iter().enumerate().max_by_key(|(_, count)| *count)?;
    let of_others = |worked: &Vec<f64>| {
        let others = worked.iter().enumerate().filter(|(other, _)| *other != at);
        median(&mut others.map(|(_, worked)| *worked).collect::<Vec<_>>())
    };
    let others_s = median(&mut common.iter().filter_map(of_others).collect::<Vec<_>>())?;
    let worked_s =
        median(&mut common.iter().filter_map(|worked| worked.get(at).copied()).collect::<Vec<_>>())?;
    let share = float(count) / float(common.len());
    let found = LastOfSteps { at, steps: common.len(), share, worked_s, others_s };
    (share > SHARE_MIN && worked_s >= TIMES_MIN * others_s).then_some(found)
}
