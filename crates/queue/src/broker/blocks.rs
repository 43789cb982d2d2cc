//! An ordered map that is copied in next to no time, however large it is: entries lie in blocks, which copies share
//! until one of them changes a block.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::RangeBounds;
use std::sync::Arc;

/// Entries of a block at most. A copy takes a step for each block, a change a step for each entry of a shared one.
const LEN_MAX: usize = 128;
/// A block with fewer is joined to one beside it that is small too.
const LEN_MIN: usize = LEN_MAX / 4;

type Block<K, V> = VecDeque<(K, V)>;

#[derive(Clone, Debug)]
pub(super) struct Blocks<K, V> {
    /// By a key that none of the block's is below and all of the blocks' before it are. None is empty.
    blocks: BTreeMap<K, Arc<Block<K, V>>>,
    len: usize,
}

impl<K, V> Default for Blocks<K, V> {
    fn default() -> Self {
        Self { blocks: BTreeMap::new(), len: 0 }
    }
}

impl<K: Copy + Ord, V: Clone> Blocks<K, V> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        let (_, block) = self.blocks.range(..=*key).next_back()?;
        let at = find(block, key).ok()?;
        block.get(at).map(|(_, value)| value)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (_, block) = self.blocks.range_mut(..=*key).next_back()?;
        let at = find(block, key).ok()?;
        Arc::make_mut(block).get_mut(at).map(|(_, value)| value)
    }

    pub(super) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some((&first, _)) = self.blocks.first_key_value()
            && key < first
            && let Some(block) = self.blocks.remove(&first)
        {
            self.blocks.insert(key, block);
        }
        let Some((_, block)) = self.blocks.range_mut(..=key).next_back() else {
            self.blocks.insert(key, Arc::new(Block::from([(key, value)])));
            self.len += 1;
            return None;
        };
        let block = Arc::make_mut(block);
        let at = match find(block, &key) {
            Ok(at) => return block.get_mut(at).map(|(_, known)| std::mem::replace(known, value)),
            Err(at) => at,
        };
        self.len += 1;
        if block.len() < LEN_MAX {
            block.insert(at, (key, value));
            return None;
        }
        let upper = if at == LEN_MAX {
            // What grows at its end keeps its blocks full.
            Block::from([(key, value)])
        } else {
            let mut upper = block.split_off(LEN_MAX / 2);
            let half = if at <= LEN_MAX / 2 { block } else { &mut upper };
            let at = find(half, &key).unwrap_or_else(|at| at);
            half.insert(at, (key, value));
            upper
        };
        if let Some((first, _)) = upper.front() {
            self.blocks.insert(*first, Arc::new(upper));
        }
        None
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let (bound, block) = self.blocks.range_mut(..=*key).next_back()?;
        let at = find(block, key).ok()?;
        let (_, value) = Arc::make_mut(block).remove(at)?;
        self.len -= 1;
        let (bound, len) = (*bound, block.len());
        if len == 0 {
            self.blocks.remove(&bound);
        } else if len < LEN_MIN {
            self.join(bound);
        }
        Some(value)
    }

    pub(super) fn pop_first(&mut self) -> Option<(K, V)> {
        let key = *self.first_key_value()?.0;
        self.remove(&key).map(|value| (key, value))
    }

    /// Joins a small block to one beside it that is small too.
    fn join(&mut self, bound: K) {
        let before = self.blocks.range(..bound).next_back().map(|(before, _)| *before);
        let after = self.blocks.range((Excluded(bound), Unbounded)).next().map(|(after, _)| *after);
        for (lower, upper) in [(before, Some(bound)), (Some(bound), after)] {
            let (Some(lower), Some(upper)) = (lower, upper) else { continue };
            let len = |bound| self.blocks.get(bound).map_or(0, |block| block.len());
            if len(&lower) + len(&upper) <= LEN_MAX / 2
                && let Some(upper) = self.blocks.remove(&upper)
                && let Some(lower) = self.blocks.get_mut(&lower)
            {
                Arc::make_mut(lower).extend(Arc::unwrap_or_clone(upper));
                return;
            }
        }
    }

    pub(super) fn first_key_value(&self) -> Option<(&K, &V)> {
        let block = self.blocks.values().next()?;
        block.front().map(|(key, value)| (key, value))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.blocks.values().flat_map(|block| block.iter()).map(|(key, value)| (key, value))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub(super) fn range(&self, range: impl RangeBounds<K>) -> impl Iterator<Item = (&K, &V)> {
        let (start, end) = (range.start_bound().cloned(), range.end_bound().cloned());
        let first = match start {
            Included(key) | Excluded(key) => self.blocks.range(..=key).next_back(),
            Unbounded => None,
        };
        let is_before = move |(key, _): &(K, V)| match start {
            Included(start) => *key < start,
            Excluded(start) => *key <= start,
            Unbounded => false,
        };
        let is_within = move |(key, _): &&(K, V)| match end {
            Included(end) => *key <= end,
            Excluded(end) => *key < end,
            Unbounded => true,
        };
        let rest = first.map_or(Unbounded, |(bound, _)| Excluded(*bound));
        let first = first.map(|(_, block)| block.range(block.partition_point(is_before)..));
        let rest = self.blocks.range((rest, Unbounded)).flat_map(|(_, block)| block.iter());
        let all = first.into_iter().flatten().chain(rest);
        all.take_while(is_within).map(|(key, value)| (key, value))
    }

    /// The entries from `start` on.
    pub(super) fn tail_mut(&mut self, start: K) -> impl Iterator<Item = (&K, &mut V)> {
        let first = self.blocks.range(..=start).next_back().map_or(start, |(bound, _)| *bound);
        let entries = self.blocks.range_mut(first..).flat_map(|(_, block)| Arc::make_mut(block).iter_mut());
        entries.map(|(key, value)| (&*key, value)).skip_while(move |(key, _)| **key < start)
    }
}

fn find<K: Ord, V>(block: &Block<K, V>, key: &K) -> Result<usize, usize> {
    block.binary_search_by(|(known, _)| known.cmp(key))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::{Blocks, LEN_MAX};

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u16),
        Append(u16),
        Remove(u16),
        Drain(u16),
        Touch(u16),
        Copy,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0_u16..2_000).prop_map(Step::Insert),
            2 => (1_u16..300).prop_map(Step::Append),
            2 => (0_u16..2_000).prop_map(Step::Remove),
            2 => (1_u16..200).prop_map(Step::Drain),
            1 => (0_u16..2_000).prop_map(Step::Touch),
            1 => Just(Step::Copy),
        ]
    }

    proptest! {
        #[test]
        fn it_is_an_ordered_map_and_copies_stay_as_they_were(
            steps in vec(step(), 1..80),
            from in 0_u16..3_000,
            len in 0_u16..900,
        ) {
            let (mut blocks, mut map) = (Blocks::default(), BTreeMap::new());
            let mut copies = Vec::new();
            let mut value = 0;
            for step in steps {
                value += 1;
                match step {
                    Step::Insert(key) => prop_assert_eq!(blocks.insert(key, value), map.insert(key, value)),
                    Step::Append(count) => {
                        let end = map.keys().next_back().map_or(0, |last| last + 1);
                        for key in end..end + count {
                            prop_assert_eq!(blocks.insert(key, value), map.insert(key, value));
                        }
                    }
                    Step::Remove(key) => prop_assert_eq!(blocks.remove(&key), map.remove(&key)),
                    Step::Drain(count) => {
                        for _ in 0..count {
                            prop_assert_eq!(blocks.pop_first(), map.pop_first());
                        }
                    }
                    Step::Touch(from) => {
                        blocks.tail_mut(from).for_each(|(_, known)| *known = value);
                        map.range_mut(from..).for_each(|(_, known)| *known = value);
                    }
                    Step::Copy => copies.push((blocks.clone(), map.clone())),
                }
            }
            copies.push((blocks, map));
            for (blocks, map) in copies {
                prop_assert!(blocks.iter().eq(map.iter()));
                prop_assert_eq!((blocks.len(), blocks.is_empty()), (map.len(), map.is_empty()));
                prop_assert_eq!(blocks.first_key_value(), map.first_key_value());
                prop_assert_eq!(blocks.get(&from), map.get(&from));
                prop_assert!(blocks.range(from..from + len).eq(map.range(from..from + len)));
                prop_assert!(blocks.range(..=from).eq(map.range(..=from)));
                prop_assert!(blocks.range(from + 1..).eq(map.range(from + 1..)));
                prop_assert!(blocks.blocks.values().all(|block| (1..=LEN_MAX).contains(&block.len())));
                prop_assert!(blocks.blocks.len() <= 2 + map.len() / 16, "few and small");
            }
        }
    }
}
