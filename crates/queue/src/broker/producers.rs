//! Recognises frames that a producer sends again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::frame::{Millis, ProducerStamp};

/// Sequences behind a producer's highest one that are told apart. A producer has far fewer frames under way.
const WINDOW: u64 = 128;

/// What is known of a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StampVerdict {
    /// Nothing: its frame was not taken.
    New,
    /// Its frame was taken before.
    Repeat,
    /// It is too far behind the producer's highest sequence to tell.
    TooOld { highest: u64 },
}

/// What was taken from one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenSequences {
    /// The highest sequence that was taken.
    pub highest: u64,
    /// Bit n: `highest - n` was taken.
    pub taken: u128,
    /// When something was taken last.
    pub last_at: Millis,
}

impl TakenSequences {
    /// What was taken as either says.
    fn and(self, other: Self) -> Self {
        let (high, low) = if self.highest < other.highest { (other, self) } else { (self, other) };
        let step = u32::try_from(high.highest - low.highest).ok();
        let taken = high.taken | step.and_then(|step| low.taken.checked_shl(step)).unwrap_or(0);
        Self { highest: high.highest, taken, last_at: high.last_at.max(low.last_at) }
    }
}

/// What was taken from whom: a number and a bitmap for each producer.
#[derive(Clone, Debug, Default)]
pub(super) struct Producers {
    /// By a number that grows with each frame: the longest silent first, whatever the clock does.
    heard: BTreeMap<u64, (Arc<str>, TakenSequences)>,
    numbers: HashMap<Arc<str>, u64, foldhash::fast::RandomState>,
    next: u64,
}

impl PartialEq for Producers {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Producers {
    /// Every producer that is remembered, the longest silent first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, TakenSequences)> {
        self.heard.values().map(|(id, seen)| (id, *seen))
    }

    /// How many are remembered.
    pub(super) fn len(&self) -> usize {
        self.heard.len()
    }

    /// Whether nobody is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.heard.is_empty()
    }

    /// Puts a producer there as the one heard of last.
    fn insert(&mut self, id: Arc<str>, seen: TakenSequences) {
        let number = self.next;
        self.next += 1;
        if let Some(before) = self.numbers.insert(Arc::clone(&id), number) {
            self.heard.remove(&before);
        }
        self.heard.insert(number, (id, seen));
    }

    /// Merges another window. The producer that sent last comes last.
    pub(super) fn merge(&mut self, known: Vec<(Arc<str>, TakenSequences)>) {
        let mut own: HashMap<_, _, foldhash::fast::RandomState> =
            std::mem::take(self).heard.into_values().collect();
        let merged = known.into_iter().map(|(id, seen)| {
            let seen = own.remove(&id).map_or(seen, |own| own.and(seen));
            (id, seen)
        });
        let mut all: Vec<_> = merged.collect();
        all.extend(own);
        all.sort_by_key(|(_, seen)| seen.last_at);
        for (id, seen) in all {
            self.insert(id, seen);
        }
    }

    fn seen(&self, id: &str) -> Option<&(Arc<str>, TakenSequences)> {
        self.heard.get(self.numbers.get(id)?)
    }

    /// What is known of this stamp.
    pub(super) fn known(&self, stamp: &ProducerStamp) -> StampVerdict {
        let Some((_, seen)) = self.seen(&stamp.id) else { return StampVerdict::New };
        match seen.highest.checked_sub(stamp.sequence) {
            Some(age) if age >= WINDOW => StampVerdict::TooOld { highest: seen.highest },
            Some(age) if seen.taken & (1 << age) != 0 => StampVerdict::Repeat,
            Some(_) | None => StampVerdict::New,
        }
    }

    /// Remembers that this producer's frame of that sequence was taken. Answers what the producer is known by, to be shared.
    pub(super) fn remember(&mut self, id: &str, sequence: u64, now: Millis) -> Arc<str> {
        let mut new = TakenSequences { highest: sequence, taken: 1, last_at: now };
        let mut known_id = None;
        if let Some((known, seen)) = self.seen(id) {
            known_id = Some(Arc::clone(known));
            new = TakenSequences { last_at: now, ..*seen };
            match seen.highest.checked_sub(sequence) {
                Some(age) if age < WINDOW => new.taken |= 1 << age,
                Some(_) => {}
                None => {
                    let step = sequence - seen.highest;
                    new.taken = if step < WINDOW { seen.taken << step | 1 } else { 1 };
                    new.highest = sequence;
                }
            }
        }
        let id = known_id.unwrap_or_else(|| id.into());
        self.insert(Arc::clone(&id), new);
        id
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
    use super::{Millis, ProducerStamp, Producers, StampVerdict};

    fn stamp(id: &str, sequence: u64) -> ProducerStamp {
        ProducerStamp { id: id.into(), sequence }
    }

    #[test]
    fn sequences_out_of_order_are_told_apart_and_those_too_old_are_named() {
        let mut producers = Producers::default();
        for sequence in [5, 3, 4, 200, 100] {
            assert_eq!(producers.known(&stamp("a", sequence)), StampVerdict::New, "{sequence}");
            producers.remember("a", sequence, Millis(0));
        }
        let too_old = StampVerdict::TooOld { highest: 200 };
        for (sequence, known) in [
            (200, StampVerdict::Repeat),
            (100, StampVerdict::Repeat),
            (101, StampVerdict::New),
            (201, StampVerdict::New),
            (73, StampVerdict::New),
            (72, too_old),
            (5, too_old),
        ] {
            assert_eq!(producers.known(&stamp("a", sequence)), known, "{sequence}");
        }
        assert_eq!(producers.known(&stamp("b", 200)), StampVerdict::New);
    }

    #[test]
    fn the_longest_silent_producer_is_forgotten_at_the_limit_whatever_the_clock_says() {
        let mut producers = Producers::default();
        for (at, id, sequence) in [(9, "a", 1), (8, "b", 1), (2, "a", 2), (1, "c", 1)] {
            producers.remember(id, sequence, Millis(at));
            while producers.len() > 2 {
                producers.forget_one();
            }
        }
        let known = ["a", "b", "c"].map(|id| producers.known(&stamp(id, 1)));
        assert_eq!(known, [StampVerdict::Repeat, StampVerdict::New, StampVerdict::Repeat]);
        assert_eq!(producers.iter().map(|(id, _)| &**id).collect::<Vec<_>>(), ["a", "c"]);
    }
}
