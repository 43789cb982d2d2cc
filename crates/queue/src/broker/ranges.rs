//! A set of offsets, kept as ranges: small however many offsets it has, as long as they are neighbours.

use std::collections::BTreeMap;
use std::ops::Range;

/// Offsets, as ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Adds all of a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        while let Some((known, known_end)) = self.last_from(end)
            && known_end >= start
        {
            self.0.remove(&known);
            start = start.min(known);
            end = end.max(known_end);
        }
        self.0.insert(start, end);
    }

    /// Removes all of a range.
    pub fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((start, end)) = range.end.checked_sub(1).and_then(|last| self.last_from(last))
            && end > range.start
        {
            self.0.remove(&start);
            self.insert(start..range.start);
            self.insert(range.end..end);
        }
    }

    /// The last range that begins at `start` or before.
    fn last_from(&self, start: u64) -> Option<(u64, u64)> {
        self.0.range(..=start).next_back().map(|(start, end)| (*start, *end))
    }

    /// The first offset of the set within a range.
    pub fn first_in(&self, range: &Range<u64>) -> Option<u64> {
        let covers_start = self.last_from(range.start).is_some_and(|(_, end)| end > range.start);
        let first = if covers_start { range.start } else { *self.0.range(range.start..).next()?.0 };
        (first < range.end).then_some(first)
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Range<u64>> {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    /// How many offsets there are.
    pub fn count(&self) -> u64 {
        self.iter().fold(0, |count, range| count.saturating_add(range.end - range.start))
    }
}

impl FromIterator<u64> for Ranges {
    fn from_iter<T: IntoIterator<Item = u64>>(offsets: T) -> Self {
        let mut ranges = Self::default();
        for offset in offsets {
            ranges.insert(offset..offset + 1);
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::Ranges;

    proptest! {
        #[test]
        fn it_is_a_set(steps in vec((any::<bool>(), 0_u64..60, 0_u64..12), 0..60), from in 0_u64..70, len in 0_u64..9) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (inserts, start, len) in steps {
                if inserts {
                    ranges.insert(start..start + len);
                    set.extend(start..start + len);
                } else {
                    ranges.remove(&(start..start + len));
                    set.retain(|offset| !(start..start + len).contains(offset));
                }
                prop_assert!(ranges.iter().flatten().eq(set.iter().copied()));
                prop_assert!(ranges.iter().zip(ranges.iter().skip(1)).all(|(one, next)| one.end < next.start));
            }
            prop_assert_eq!(&ranges, &set.iter().copied().collect::<Ranges>());
            prop_assert_eq!(ranges.count(), set.len() as u64);
            prop_assert_eq!(ranges.first_in(&(from..from + len)), set.range(from..from + len).next().copied());
        }
    }
}
