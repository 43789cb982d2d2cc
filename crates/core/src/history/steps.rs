//! Steps divide a range of time evenly.

use std::ops::Range;

use super::error::{BUCKETS_MAX, QueryError};

/// Aligned steps of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeSteps {
    /// Start of the first step, nanoseconds UTC since 1970.
    pub origin_ns: i64,
    /// Width of a step in nanoseconds.
    pub step_ns: i64,
    /// Number of steps.
    pub count: usize,
}

impl TimeSteps {
    /// The steps of a range, both ends inclusive. They begin at the multiples of their width plus a phase.
    ///
    /// # Errors
    /// If the range ends before it starts, the step is not positive, or there are more than [`BUCKETS_MAX`].
    pub fn new(start_ns: i64, end_ns: i64, step_ns: i64, phase_ns: i64) -> Result<Self, QueryError> {
        let bad = || QueryError::Range { start_ns, end_ns, step_ns };
        if end_ns < start_ns || step_ns <= 0 {
            return Err(bad());
        }
        let phase_ns = phase_ns.rem_euclid(step_ns);
        let into_step = start_ns.checked_sub(phase_ns).ok_or_else(bad)?.rem_euclid(step_ns);
        let origin_ns = start_ns.checked_sub(into_step).ok_or_else(bad)?;
        // Within the range of instants: no difference of two of them overflows.
        let span_ns = end_ns.checked_sub(origin_ns).ok_or_else(bad)?.unsigned_abs();
        let buckets = (span_ns / step_ns.unsigned_abs()).saturating_add(1);
        let held = usize::try_from(buckets).ok().filter(|_| buckets <= BUCKETS_MAX);
        let count = held.ok_or(QueryError::TooManyBuckets { buckets, max: BUCKETS_MAX })?;
        Ok(Self { origin_ns, step_ns, count })
    }

    /// Start of a step, nanoseconds UTC since 1970.
    pub fn time(&self, step: usize) -> i64 {
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        self.origin_ns.saturating_add(step.saturating_mul(self.step_ns))
    }

    /// Start of each step.
    pub fn times(&self) -> impl Iterator<Item = i64> {
        (0..self.count).map(|step| self.time(step))
    }

    /// The step of an instant that is not before the first.
    pub fn at(&self, time_ns: i64) -> usize {
        usize::try_from((time_ns - self.origin_ns) / self.step_ns).unwrap_or(0)
    }

    /// Some of the steps.
    #[must_use]
    pub fn part(&self, steps: Range<usize>) -> Self {
        Self { origin_ns: self.time(steps.start), count: steps.len(), ..*self }
    }
}
