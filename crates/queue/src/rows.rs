//! A set of rows of one frame.

use std::fmt;
use std::ops::Range;

/// Rows of one frame, by index from 0: sorted, disjoint ranges that do not touch.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Rows {
    ranges: Vec<Range<u32>>,
}

impl Rows {
    /// All rows of a frame of `count`.
    pub fn all(count: u32) -> Self {
        Self::from_ranges(std::iter::once(0..count))
    }

    /// One row.
    pub fn one(row: u32) -> Self {
        std::iter::once(row).collect()
    }

    /// The union of `ranges`, which may come in any order and overlap.
    pub fn from_ranges(ranges: impl IntoIterator<Item = Range<u32>>) -> Self {
        let mut sorted: Vec<_> = ranges.into_iter().filter(|range| !range.is_empty()).collect();
        sorted.sort_unstable_by_key(|range| range.start);
        sorted.dedup_by(|next, last| {
            let touches = next.start <= last.end;
            if touches {
                last.end = last.end.max(next.end);
            }
            touches
        });
        Self { ranges: sorted }
    }

    /// Number of rows.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|range| u64::from(range.end - range.start)).sum()
    }

    /// Whether there is no row in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether `row` is in it.
    pub fn contains(&self, row: u32) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= row);
        self.ranges.get(at).is_some_and(|range| range.contains(&row))
    }

    /// The ranges, sorted, disjoint, none touching the next.
    pub fn ranges(&self) -> &[Range<u32>] {
        &self.ranges
    }

    /// The rows in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().cloned().flatten()
    }

    /// The rows that are in both.
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut ours, mut theirs) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        let mut ranges = Vec::new();
        while let (Some(a), Some(b)) = (ours.peek(), theirs.peek()) {
            let both = a.start.max(b.start)..a.end.min(b.end);
            if !both.is_empty() {
                ranges.push(both);
            }
            if a.end <= b.end {
                ours.next();
            } else {
                theirs.next();
            }
        }
        Self { ranges }
    }

    /// The rows that are here and not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        let mut theirs = other.ranges.iter().peekable();
        let mut ranges = Vec::new();
        for ours in &self.ranges {
            let mut start = ours.start;
            while let Some(cut) = theirs.peek().filter(|cut| cut.start < ours.end) {
                if start < cut.start {
                    ranges.push(start..cut.start);
                }
                start = start.max(cut.end);
                if cut.end > ours.end {
                    break;
                }
                theirs.next();
            }
            if start < ours.end {
                ranges.push(start..ours.end);
            }
        }
        Self { ranges }
    }
}

impl FromIterator<u32> for Rows {
    fn from_iter<I: IntoIterator<Item = u32>>(rows: I) -> Self {
        Self::from_ranges(rows.into_iter().map(|row| row..row.saturating_add(1)))
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(&self.ranges).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::Rows;

    fn rows() -> impl Strategy<Value = BTreeSet<u32>> {
        proptest::collection::btree_set(0_u32..24, 0..16)
    }

    proptest! {
        #[test]
        fn rows_behave_like_a_set(a in rows(), b in rows()) {
            let (left, right): (Rows, Rows) = (a.iter().copied().collect(), b.iter().copied().collect());
            prop_assert_eq!(left.len(), a.len() as u64);
            prop_assert_eq!(left.iter().collect::<BTreeSet<_>>(), a.clone());
            prop_assert!((0..25).all(|row| left.contains(row) == a.contains(&row)));
            prop_assert_eq!(left.intersection(&right), a.intersection(&b).copied().collect());
            prop_assert_eq!(left.difference(&right), a.difference(&b).copied().collect());
            prop_assert!(left.ranges().windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }

    #[test]
    fn overlapping_ranges_are_joined() {
        assert_eq!(Rows::from_ranges([5..9, 0..3, 2..5, 4..4]), Rows::all(9));
        assert_eq!(Rows::all(3).difference(&Rows::one(1)).ranges(), [0..1, 2..3]);
    }
}
