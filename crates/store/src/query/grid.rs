//! Buckets of time.

use gpuvitals_core::history::{BUCKETS_MAX, QueryError};

/// Aligned buckets over a range of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Start of the first bucket, a multiple of the step.
    pub(crate) origin_ns: i64,
    /// Width of a bucket.
    pub(crate) step_ns: i64,
    /// How many.
    pub(crate) buckets: usize,
    /// First instant wanted; may be inside the first bucket.
    pub(crate) start_ns: i64,
    /// Last instant wanted, inclusive.
    pub(crate) end_ns: i64,
}

/// Relation of a stretch of time to the rows of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stretch {
    /// Not wanted.
    Outside,
    /// Rows may have twins elsewhere and must be merged first.
    Contested,
    /// Within this bucket.
    Bucket(usize),
}

impl Grid {
    /// The buckets of a range, both ends inclusive.
    ///
    /// # Errors
    /// If the range ends before it starts, the step is not positive, or there are more than [`BUCKETS_MAX`].
    pub(crate) fn new(start_ns: i64, end_ns: i64, step_ns: i64) -> Result<Self, QueryError> {
        let bad = || QueryError::Range { start_ns, end_ns, step_ns };
        if end_ns < start_ns || step_ns <= 0 {
            return Err(bad());
        }
        let origin_ns = start_ns.div_euclid(step_ns).checked_mul(step_ns).ok_or_else(bad)?;
        // Within the range of instants: no difference of two of them overflows.
        let span_ns = end_ns.checked_sub(origin_ns).ok_or_else(bad)?.unsigned_abs();
        let buckets = (span_ns / step_ns.unsigned_abs()).saturating_add(1);
        let held = usize::try_from(buckets).ok().filter(|_| buckets <= BUCKETS_MAX);
        let buckets = held.ok_or(QueryError::TooManyBuckets { buckets, max: BUCKETS_MAX })?;
        Ok(Self { origin_ns, step_ns, buckets, start_ns, end_ns })
    }

    /// Start of a bucket.
    pub(crate) fn time(&self, bucket: usize) -> i64 {
        let bucket = i64::try_from(bucket).unwrap_or(i64::MAX);
        self.origin_ns.saturating_add(bucket.saturating_mul(self.step_ns))
    }

    /// The buckets before a bucket, and the rest.
    pub(crate) fn split(&self, at: usize) -> (Self, Self) {
        let time = self.time(at);
        let before = Self { buckets: at, end_ns: time.saturating_sub(1), ..*self };
        let rest =
            Self { origin_ns: time, start_ns: time.max(self.start_ns), buckets: self.buckets - at, ..*self };
        (before, rest)
    }

    /// The relation of the time to a part with these contested times (ascending, disjoint, inclusive), and
    /// the longest stretch around it, inclusive, with the same relation.
    pub(crate) fn stretch(&self, time_ns: i64, contested: &[(i64, i64)]) -> (Stretch, i64, i64) {
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
        let bucket = usize::try_from((time_ns - self.origin_ns) / self.step_ns).unwrap_or(usize::MAX);
        let from = self.time(bucket);
        let to = from.saturating_add(self.step_ns - 1);
        (Stretch::Bucket(bucket), from.max(after).max(self.start_ns), to.min(before).min(self.end_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_aligned_and_ends_inclusive() {
        let grid = |start, end, step| Grid::new(start, end, step).map(|g| (g.origin_ns, g.buckets)).unwrap();
        assert_eq!(grid(0, 0, 10), (0, 1));
        assert_eq!(grid(0, 9, 10), (0, 1));
        assert_eq!(grid(0, 10, 10), (0, 2));
        assert_eq!(grid(13, 29, 10), (10, 2));
        assert_eq!(grid(-1, 0, 10), (-10, 2));
        assert_eq!(grid(5, 17, 7), (0, 3));
    }

    #[test]
    fn endless_and_backward_ranges_are_refused() {
        assert!(matches!(Grid::new(1, 0, 1), Err(QueryError::Range { .. })));
        assert!(matches!(Grid::new(0, 1, 0), Err(QueryError::Range { .. })));
        assert!(matches!(Grid::new(0, 1, -5), Err(QueryError::Range { .. })));
        assert!(matches!(Grid::new(i64::MIN, 0, 3_600_000_000_000), Err(QueryError::Range { .. })));
        assert!(matches!(Grid::new(0, i64::MAX, 1), Err(QueryError::TooManyBuckets { .. })));
    }

    #[test]
    fn ranges_at_the_ends_of_time_are_whole_or_refused() {
        assert!(matches!(Grid::new(-1, i64::MAX, i64::MAX), Err(QueryError::Range { .. })));
        assert!(matches!(Grid::new(i64::MIN, i64::MAX, 1 << 62), Err(QueryError::Range { .. })));
        let late = Grid::new(i64::MAX - 1, i64::MAX, 10).unwrap();
        assert_eq!(late.stretch(i64::MAX, &[]), (Stretch::Bucket(0), i64::MAX - 1, i64::MAX));
        let early = Grid::new(i64::MIN, i64::MIN + 1, 1).unwrap();
        assert_eq!(early.stretch(i64::MIN, &[]), (Stretch::Bucket(0), i64::MIN, i64::MIN));
        assert_eq!(early.stretch(i64::MAX, &[]).0, Stretch::Outside);
    }

    #[test]
    fn stretches_are_the_longest_of_one_kind() {
        let grid = Grid::new(12, 47, 10).unwrap();
        let contested = [(20, 20), (33, 41)];
        let stretch = |time| grid.stretch(time, &contested);
        assert_eq!(stretch(3), (Stretch::Outside, i64::MIN, 11));
        assert_eq!(stretch(12), (Stretch::Bucket(0), 12, 19));
        assert_eq!(stretch(20), (Stretch::Contested, 20, 20));
        assert_eq!(stretch(25), (Stretch::Bucket(1), 21, 29));
        assert_eq!(stretch(31), (Stretch::Bucket(2), 30, 32));
        assert_eq!(stretch(40), (Stretch::Contested, 33, 41));
        assert_eq!(stretch(42), (Stretch::Bucket(3), 42, 47));
        assert_eq!(stretch(48), (Stretch::Outside, 48, i64::MAX));
    }
}
