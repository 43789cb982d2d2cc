//! The steps of a query, and the range of time that is worked on.

use crate::history::TimeSteps;

/// Aligned steps over a range of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepGrid {
    /// All steps of the answer.
    pub steps: TimeSteps,
    /// First instant wanted; may be inside a step.
    pub start_ns: i64,
    /// Last instant wanted, inclusive.
    pub end_ns: i64,
}

/// Relation of a stretch of time to the rows of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stretch {
    /// Outside of the range that is asked for.
    Outside,
    /// Rows may have twins elsewhere and must be merged first.
    Contested,
    /// Within this step.
    Step(usize),
}

impl StepGrid {
    /// Of these steps between two instants, both inclusive.
    pub fn new(steps: TimeSteps, start_ns: i64, end_ns: i64) -> Self {
        Self { steps, start_ns, end_ns }
    }

    /// The wanted steps between two instants: first and last.
    pub fn between(&self, min_ns: i64, max_ns: i64) -> (usize, usize) {
        let step = |time_ns: i64| self.steps.at(time_ns.clamp(self.start_ns, self.end_ns));
        (step(min_ns), step(max_ns))
    }

    /// The earlier and the later half of its steps; none if it is within one.
    pub fn halves(&self) -> Option<(Self, Self)> {
        let (first, last) = self.between(self.start_ns, self.end_ns);
        let middle_ns = self.steps.time(first + (last - first).div_ceil(2));
        let before = Self { end_ns: middle_ns.saturating_sub(1), ..*self };
        (first < last).then_some((before, Self { start_ns: middle_ns, ..*self }))
    }

    /// The relation of the time to a part with these contested times (ascending, disjoint, inclusive), and
    /// the longest stretch around it, inclusive, with the same relation.
    pub fn stretch(&self, time_ns: i64, contested: &[(i64, i64)]) -> (Stretch, i64, i64) {
        if time_ns < self.start_ns {
            return (Stretch::Outside, i64::MIN, self.start_ns - 1);
        }
        if time_ns > self.end_ns {
            return (Stretch::Outside, self.end_ns + 1, i64::MAX);
        }
        let at = contested.partition_point(|&(_, to)| to < time_ns);
        let next = contested.get(at);
        if let Some(&(from, to)) = next
            && from <= time_ns
        {
            return (Stretch::Contested, from.max(self.start_ns), to.min(self.end_ns));
        }
        let after = at
            .checked_sub(1)
            .and_then(|at| contested.get(at))
            .map_or(i64::MIN, |&(_, to)| to.saturating_add(1));
        let before = next.map_or(i64::MAX, |&(from, _)| from.saturating_sub(1));
        let step = self.steps.at(time_ns);
        let from = self.steps.time(step);
        let to = from.saturating_add(self.steps.step_ns - 1);
        (Stretch::Step(step), from.max(after).max(self.start_ns), to.min(before).min(self.end_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(start_ns: i64, end_ns: i64, step_ns: i64) -> StepGrid {
        StepGrid::new(TimeSteps::new(start_ns, end_ns, step_ns, 0).unwrap(), start_ns, end_ns)
    }

    #[test]
    fn stretches_reach_to_the_ends_of_time() {
        let late = grid(i64::MAX - 1, i64::MAX, 10);
        assert_eq!(late.stretch(i64::MAX, &[]), (Stretch::Step(0), i64::MAX - 1, i64::MAX));
        let early = grid(i64::MIN, i64::MIN + 1, 1);
        assert_eq!(early.stretch(i64::MIN, &[]), (Stretch::Step(0), i64::MIN, i64::MIN));
        assert_eq!(early.stretch(i64::MAX, &[]).0, Stretch::Outside);
    }

    #[test]
    fn stretches_are_the_longest_of_one_kind() {
        let grid = grid(12, 47, 10);
        let contested = [(20, 20), (33, 41)];
        let stretch = |time| grid.stretch(time, &contested);
        assert_eq!(stretch(3), (Stretch::Outside, i64::MIN, 11));
        assert_eq!(stretch(12), (Stretch::Step(0), 12, 19));
        assert_eq!(stretch(20), (Stretch::Contested, 20, 20));
        assert_eq!(stretch(25), (Stretch::Step(1), 21, 29));
        assert_eq!(stretch(31), (Stretch::Step(2), 30, 32));
        assert_eq!(stretch(40), (Stretch::Contested, 33, 41));
        assert_eq!(stretch(42), (Stretch::Step(3), 42, 47));
        assert_eq!(stretch(48), (Stretch::Outside, 48, i64::MAX));
    }

    #[test]
    fn halves_share_no_step_and_leave_no_gap() {
        let grid = grid(12, 47, 10);
        let (before, rest) = grid.halves().unwrap();
        assert_eq!((before.start_ns, before.end_ns, rest.start_ns, rest.end_ns), (12, 29, 30, 47));
        let (before, rest) = rest.halves().unwrap();
        assert_eq!((before.start_ns, before.end_ns, rest.start_ns, rest.end_ns), (30, 39, 40, 47));
        assert_eq!(rest.halves(), None);
    }
}
