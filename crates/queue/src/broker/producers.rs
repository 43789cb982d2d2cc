//! Recognises frames that a producer sends again.

use std::collections::HashMap;
use std::sync::Arc;

use super::blocks::Blocks;
use crate::frame::{Millis, ProducerStamp};

/// Sequences behind a producer's highest one that are told apart. A producer has far fewer frames under way.
const WINDOW: u64 = 128;

/// What is known of a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing: its frame was not taken.
    New,
    /// Its frame was taken before.
    Repeat,
    /// It is too far behind the producer's highest sequence to tell.
    TooOld { highest: u64 },
}

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
#[derive(Clone, Debug, Default)]
pub struct Producers {
    /// By a number that grows with each hearing: the longest silent first, whatever the clock does.
    heard: Heard,
    numbers: HashMap<Arc<str>, u64, foldhash::fast::RandomState>,
    next: u64,
}

/// The same, to be looked through only: a copy in next to no time.
pub(super) type Heard = Blocks<u64, (Arc<str>, Seen)>;

impl PartialEq for Producers {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl FromIterator<(Arc<str>, Seen)> for Producers {
    fn from_iter<T: IntoIterator<Item = (Arc<str>, Seen)>>(producers: T) -> Self {
        let mut all = Self::default();
        producers.into_iter().for_each(|(id, seen)| all.insert(id, seen));
        all
    }
}

impl Producers {
    /// Every producer that is remembered, the longest silent first.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, Seen)> {
        self.heard.values().map(|(id, seen)| (id, *seen))
    }

    pub(super) fn heard(&self) -> &Heard {
        &self.heard
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.heard.len()
    }

    /// Whether nobody is remembered.
    pub fn is_empty(&self) -> bool {
        self.heard.is_empty()
    }

    /// Puts a producer there as it was; it was heard of after those that are there.
    pub fn insert(&mut self, id: Arc<str>, seen: Seen) {
        let number = self.next;
        self.next += 1;
        if let Some(before) = self.numbers.insert(Arc::clone(&id), number) {
            self.heard.remove(&before);
        }
        self.heard.insert(number, (id, seen));
    }

    fn seen(&self, id: &str) -> Option<Seen> {
        self.heard.get(self.numbers.get(id)?).map(|(_, seen)| *seen)
    }

    /// What is known of this stamp.
    pub(super) fn known(&self, stamp: &ProducerStamp) -> Known {
        let Some(seen) = self.seen(&stamp.id) else { return Known::New };
        match seen.highest.checked_sub(stamp.sequence) {
            Some(age) if age >= WINDOW => Known::TooOld { highest: seen.highest },
            Some(age) if seen.taken & (1 << age) != 0 => Known::Repeat,
            Some(_) | None => Known::New,
        }
    }

    /// Remembers that this frame was taken.
    pub(crate) fn remember(&mut self, stamp: &ProducerStamp, now: Millis, limit: usize) {
        let mut new = Seen { highest: stamp.sequence, taken: 1, last_at: now };
        if let Some(seen) = self.seen(&stamp.id) {
            new = Seen { last_at: now, ..seen };
            match seen.highest.checked_sub(stamp.sequence) {
                Some(age) if age < WINDOW => new.taken |= 1 << age,
                Some(_) => {}
                None => {
                    let step = stamp.sequence - seen.highest;
                    new.taken = if step < WINDOW { seen.taken << step | 1 } else { 1 };
                    new.highest = stamp.sequence;
                }
            }
        } else if self.len() >= limit.max(1) {
            self.forget_one();
        }
        self.insert(Arc::clone(&stamp.id), new);
    }

    /// Forgets the longest silent.
    pub(super) fn forget_one(&mut self) {
        if let Some((_, (id, _))) = self.heard.pop_first() {
            self.numbers.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Millis, ProducerStamp, Producers};

    fn stamp(id: &str, sequence: u64) -> ProducerStamp {
        ProducerStamp { id: id.into(), sequence }
    }

    #[test]
    fn sequences_out_of_order_are_told_apart_and_those_too_old_are_named() {
        let mut producers = Producers::default();
        for sequence in [5, 3, 4, 200, 100] {
            assert_eq!(producers.known(&stamp("a", sequence)), Known::New, "{sequence}");
            producers.remember(&stamp("a", sequence), Millis(0), 10);
        }
        let too_old = Known::TooOld { highest: 200 };
        for (sequence, known) in [
            (200, Known::Repeat),
            (100, Known::Repeat),
            (101, Known::New),
            (201, Known::New),
            (73, Known::New),
            (72, too_old),
            (5, too_old),
        ] {
            assert_eq!(producers.known(&stamp("a", sequence)), known, "{sequence}");
        }
        assert_eq!(producers.known(&stamp("b", 200)), Known::New);
    }

    #[test]
    fn the_longest_silent_producer_is_forgotten_at_the_limit_whatever_the_clock_says() {
        let mut producers = Producers::default();
        for (at, id, sequence) in [(9, "a", 1), (8, "b", 1), (2, "a", 2), (1, "c", 1)] {
            producers.remember(&stamp(id, sequence), Millis(at), 2);
        }
        let known = ["a", "b", "c"].map(|id| producers.known(&stamp(id, 1)));
        assert_eq!(known, [Known::Repeat, Known::New, Known::Repeat]);
        assert_eq!(producers.iter().map(|(id, _)| &**id).collect::<Vec<_>>(), ["a", "c"]);
    }
}
