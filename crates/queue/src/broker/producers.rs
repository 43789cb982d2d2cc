//! Recognises frames that a producer sends again.

use std::collections::HashMap;
use std::sync::Arc;

use crate::frame::{Millis, ProducerStamp};

/// Sequences behind a producer's highest one that are told apart; older ones count as repeats.
/// A producer has far fewer frames under way.
const WINDOW: u64 = 128;

/// What was taken from one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The highest sequence.
    pub highest: u64,
    /// Bit n: `highest - n` was taken.
    pub taken: u128,
    /// When something was taken last.
    pub last_at: Millis,
}

/// What was taken from whom: a number and a bitmap for each producer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Producers {
    seen: HashMap<Arc<str>, Seen, foldhash::fast::RandomState>,
}

impl Producers {
    /// Every producer that is remembered.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, Seen)> {
        self.seen.iter().map(|(id, seen)| (id, *seen))
    }

    /// Puts a producer there as it was.
    pub fn insert(&mut self, id: Arc<str>, seen: Seen) {
        self.seen.insert(id, seen);
    }

    /// Whether this frame was taken before.
    pub(super) fn is_repeat(&self, stamp: &ProducerStamp) -> bool {
        self.seen.get(&stamp.id).is_some_and(|seen| match seen.highest.checked_sub(stamp.sequence) {
            None => false,
            Some(age) => age >= WINDOW || seen.taken & (1 << age) != 0,
        })
    }

    /// Remembers that this frame was taken.
    pub(crate) fn remember(&mut self, stamp: &ProducerStamp, now: Millis, limit: usize) {
        if let Some(seen) = self.seen.get_mut(&stamp.id) {
            seen.last_at = now;
            match seen.highest.checked_sub(stamp.sequence) {
                Some(age) if age < WINDOW => seen.taken |= 1 << age,
                Some(_) => {}
                None => {
                    let step = stamp.sequence - seen.highest;
                    seen.taken = if step < WINDOW { seen.taken << step | 1 } else { 1 };
                    seen.highest = stamp.sequence;
                }
            }
            return;
        }
        if self.seen.len() >= limit.max(1) {
            let oldest = self.seen.iter().min_by_key(|(id, seen)| (seen.last_at, *id));
            if let Some(id) = oldest.map(|(id, _)| Arc::clone(id)) {
                self.seen.remove(&id);
            }
        }
        let seen = Seen { highest: stamp.sequence, taken: 1, last_at: now };
        self.seen.insert(Arc::clone(&stamp.id), seen);
    }
}

#[cfg(test)]
mod tests {
    use super::{Millis, ProducerStamp, Producers};

    fn stamp(id: &str, sequence: u64) -> ProducerStamp {
        ProducerStamp { id: id.into(), sequence }
    }

    #[test]
    fn sequences_out_of_order_are_told_apart() {
        let mut producers = Producers::default();
        for sequence in [5, 3, 4, 200, 100] {
            assert!(!producers.is_repeat(&stamp("a", sequence)), "{sequence}");
            producers.remember(&stamp("a", sequence), Millis(0), 10);
        }
        for (sequence, repeat) in
            [(200, true), (100, true), (101, false), (201, false), (5, true), (72, true)]
        {
            assert_eq!(producers.is_repeat(&stamp("a", sequence)), repeat, "{sequence}");
        }
        assert!(!producers.is_repeat(&stamp("b", 200)));
    }

    #[test]
    fn the_longest_silent_producer_is_forgotten_at_the_limit() {
        let mut producers = Producers::default();
        for (at, id) in [(1, "a"), (2, "b"), (3, "c")] {
            producers.remember(&stamp(id, 1), Millis(at), 2);
        }
        let known = ["a", "b", "c"].map(|id| producers.is_repeat(&stamp(id, 1)));
        assert_eq!(known, [false, true, true]);
    }
}
