//! What is known of every frame: what it may be after a crash now.

use std::collections::BTreeMap;

use gpuvitals_queue::{ContentType, DeadLetter, Delivery, Frame};

pub(crate) const GROUPS: [&str; 2] = ["a", "b"];

/// States of a frame in a group, as bits.
pub(crate) const ABSENT: u8 = 1;
pub(crate) const OPEN: u8 = 2;
pub(crate) const SETTLED: u8 = 4;
pub(crate) const DEAD: u8 = 8;

/// A frame in a group: what it is, and all it was since that was last known to be on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) now: u8,
    may_be: u8,
    /// It died, and nobody has seen its dead letter since; or it was put back, so that there may be several of it. Then
    /// all that it was since that is possible, and more than one at once.
    is_loose: bool,
    /// Its dead letter was removed once. If it comes again and dies again, that is a repeat.
    was_removed: bool,
}

impl State {
    fn is(state: u8) -> Self {
        Self { now: state, may_be: state, is_loose: false, was_removed: false }
    }

    /// Whether a crash now changes nothing about it.
    pub(crate) fn is_certain(self) -> bool {
        self.may_be == self.now && !self.is_loose
    }

    pub(crate) fn becomes(&mut self, state: u8) {
        self.now = state;
        self.may_be |= state;
    }

    /// Its group gives up on it. Its dead letter is stored some time later, and only then it is settled.
    pub(crate) fn dies(&mut self) {
        self.becomes(DEAD);
        self.may_be |= OPEN | if self.was_removed { SETTLED } else { 0 };
        self.is_loose = true;
    }

    /// A dead letter of the frame was published again.
    pub(crate) fn comes_again(&mut self) {
        self.becomes(OPEN);
        (self.is_loose, self.was_removed) = (true, true);
    }

    /// Its dead letter was.
    pub(crate) fn is_thrown_away(&mut self) {
        self.becomes(SETTLED);
        self.was_removed = true;
    }
}

/// A frame by its number: its states by group.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) topic: &'static str,
    pub(crate) count: u32,
    states: [State; 2],
}

/// Everything that was ever sent.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) sent: BTreeMap<u64, Sent>,
}

/// What a frame was found to be in a group, and how often.
type Found = BTreeMap<(u64, usize), Vec<u8>>;

pub(crate) fn frame(number: u64, count: u32) -> Frame {
    let len = 8 + usize::try_from(number * 37 % 300).unwrap();
    let payload: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(len).collect();
    Frame::new(ContentType::Batch, count, payload).stamped("producer", number)
}

pub(crate) fn number_of(frame: &Frame) -> u64 {
    u64::from_le_bytes(*frame.payload.first_chunk().expect("a frame that was sent"))
}

impl Known {
    /// A frame is under way: nobody knows.
    pub(crate) fn send(&mut self, number: u64, topic: &'static str, count: u32) {
        let states = [State { may_be: OPEN | ABSENT, ..State::is(OPEN) }; 2];
        self.sent.insert(number, Sent { topic, count, states });
    }

    /// It was taken, for certain.
    pub(crate) fn taken(&mut self, number: u64) {
        for state in self.states_of(number) {
            state.may_be &= !ABSENT;
        }
    }

    /// It was not taken, for certain.
    pub(crate) fn refused(&mut self, number: u64) {
        for state in self.states_of(number) {
            *state = State::is(ABSENT);
        }
    }

    fn states_of(&mut self, number: u64) -> impl Iterator<Item = &mut State> {
        self.sent.get_mut(&number).into_iter().flat_map(|sent| &mut sent.states)
    }

    pub(crate) fn frame(&mut self, number: u64, group: usize) -> &mut State {
        let states = self.sent.get_mut(&number).map(|sent| &mut sent.states);
        states.and_then(|states| states.get_mut(group)).expect("a frame that was sent")
    }

    /// All that happened is on disk, but for what is still under way.
    pub(crate) fn synced(&mut self, under_way: &[u64]) {
        for (number, sent) in &mut self.sent {
            if !under_way.contains(number) {
                for state in sent.states.iter_mut().filter(|state| !state.is_loose) {
                    state.may_be = state.now;
                }
            }
        }
    }

    /// Compares with what a recovery serves, and takes that as the truth.
    pub(crate) fn check(&mut self, open: &[(usize, Vec<Delivery>)], dead: &[DeadLetter], is_damaged: bool) {
        let found = self.find(open, dead);
        for (number, sent) in &mut self.sent {
            let is_there = (0..GROUPS.len()).any(|group| found.contains_key(&(*number, group)));
            for (group, state) in sent.states.iter_mut().enumerate() {
                let seen = found.get(&(*number, group)).map(Vec::as_slice).unwrap_or_default();
                let was = seen.iter().fold(0, |all, state| all | state);
                let may_be = if is_there { state.may_be & !ABSENT } else { state.may_be };
                let gone = if is_there { SETTLED } else { SETTLED | ABSENT };
                let fits = if seen.is_empty() { may_be & gone != 0 } else { may_be & was == was };
                let is_once = seen.len() <= 1 || state.is_loose;
                assert!(
                    fits && is_once || is_damaged,
                    "frame {number} of {} in group {group} is {seen:?}, {state:?}",
                    sent.topic
                );
                let was_removed = state.was_removed;
                *state = match seen {
                    [] => State::is(if is_there { SETTLED } else { may_be & gone }),
                    [one] => State::is(*one),
                    _ => State { may_be: was, is_loose: true, ..State::is(OPEN) },
                };
                state.was_removed = was_removed;
            }
        }
    }

    fn find(&self, open: &[(usize, Vec<Delivery>)], dead: &[DeadLetter]) -> Found {
        let mut found = Found::new();
        let mut note = |frame: &Frame, topic: &str, group: usize, state: u8| {
            let number = number_of(frame);
            let sent = self.sent.get(&number).expect("a frame that nobody sent");
            let sent_frame = Frame { producer: frame.producer.clone(), ..self::frame(number, sent.count) };
            assert_eq!((sent.topic, &sent_frame), (topic, frame), "other bytes");
            found.entry((number, group)).or_default().push(state);
        };
        for (group, deliveries) in open {
            for delivery in deliveries {
                note(&delivery.frame, &delivery.topic, *group, OPEN);
            }
        }
        for letter in dead {
            let group =
                GROUPS.iter().position(|group| *group == &*letter.facts.group).expect("a known group");
            assert!(letter.facts.reason.contains("because"), "{}", letter.facts.reason);
            note(&letter.frame, &letter.facts.topic, group, DEAD);
        }
        found
    }
}
