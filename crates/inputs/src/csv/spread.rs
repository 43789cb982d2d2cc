//! Rows of one GPU within a second, in a file with whole seconds: in their order they are spread over it.

use std::collections::HashMap;

use gpuvitals_core::time::SECOND_NS;

/// Most GPUs whose last second is remembered.
const SUBJECTS_MAX: usize = 100_000;

/// Gives rows of one time and GPU times of their own.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spread {
    /// Most rows of a GPU that a second has.
    pub(super) rows: u32,
    /// Of each GPU its last second, and how many of its rows were in it before.
    last: HashMap<Vec<u8>, (i64, u32)>,
}

impl Spread {
    /// A few steps for all files, so that one which grows keeps the times that its rows had.
    pub(super) fn of(rows: u32) -> Self {
        let steps = [1, 2, 4, 10, 20, 100, 1_000, 10_000, 100_000].into_iter();
        Self { rows: steps.into_iter().find(|step| *step >= rows).unwrap_or(rows), last: HashMap::new() }
    }

    /// The time of the next row of a subject within the second that begins at `time_ns`.
    pub(super) fn place(&mut self, time_ns: i64, subject: Vec<u8>) -> i64 {
        if self.last.len() >= SUBJECTS_MAX && !self.last.contains_key(&subject) {
            self.last.clear();
        }
        let (second, rows) = self.last.entry(subject).or_insert((time_ns, 0));
        if *second != time_ns {
            (*second, *rows) = (time_ns, 0);
        }
        let number = *rows;
        *rows += 1;
        let step_ns = SECOND_NS / i64::from(self.rows);
        // More rows than any second has that was looked at: they still differ.
        let behind = i64::from(number.saturating_sub(self.rows - 1));
        time_ns + i64::from(number.min(self.rows - 1)) * step_ns + behind.min(step_ns - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_second_are_spread_in_their_order_and_each_gpu_has_its_own() {
        let mut spread = Spread::of(4);
        let mut place = |second: i64, gpu: u8| (spread.place(second * SECOND_NS, vec![gpu]), second);
        let found: Vec<i64> = [(7, 0), (7, 1), (7, 0), (7, 0), (7, 0), (7, 0), (8, 0), (8, 1)]
            .map(|(second, gpu)| {
                let (at, second) = place(second, gpu);
                at - second * SECOND_NS
            })
            .to_vec();
        let quarter = SECOND_NS / 4;
        assert_eq!(found, [0, 0, quarter, 2 * quarter, 3 * quarter, 3 * quarter + 1, 0, 0]);
    }
}
