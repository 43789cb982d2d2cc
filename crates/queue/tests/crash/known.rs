//! What is known of every row: what it may be after a crash now.

use std::collections::BTreeMap;

use gpuvitals_queue::{ContentType, DeadLetter, Delivery, Frame};

pub(crate) const GROUPS: [&str; 2] = ["a", "b"];

/// States of a row in a group, as bits.
pub(crate) const ABSENT: u8 = 1;
pub(crate) const OPEN: u8 = 2;
pub(crate) const SETTLED: u8 = 4;
pub(crate) const DEAD: u8 = 8;

/// A row in a group: what it is, and all it was since that was last known to be on disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) now: u8,
    may_be: u8,
}

impl Row {
    fn is(state: u8) -> Self {
        Self { now: state, may_be: state }
    }

    /// Whether a crash now changes nothing about it.
    pub(crate) fn is_certain(self) -> bool {
        self.may_be == self.now
    }

    pub(crate) fn becomes(&mut self, state: u8) {
        self.now = state;
        self.may_be |= state;
    }
}

/// A frame by its number: its rows by group.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) topic: &'static str,
    pub(crate) count: u32,
    rows: [Vec<Row>; 2],
}

/// Everything that was ever sent.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) sent: BTreeMap<u64, Sent>,
}

/// What a row was found to be, and how often.
type Found = BTreeMap<(u64, usize, u32), Vec<u8>>;

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
        let row = Row { now: OPEN, may_be: OPEN | ABSENT };
        let rows = GROUPS.map(|_| vec![row; count.try_into().unwrap()]);
        self.sent.insert(number, Sent { topic, count, rows });
    }

    /// It was taken, for certain.
    pub(crate) fn taken(&mut self, number: u64) {
        for row in self.rows_of(number) {
            row.may_be &= !ABSENT;
        }
    }

    /// It was not taken, for certain.
    pub(crate) fn refused(&mut self, number: u64) {
        for row in self.rows_of(number) {
            *row = Row::is(ABSENT);
        }
    }

    fn rows_of(&mut self, number: u64) -> impl Iterator<Item = &mut Row> {
        self.sent.get_mut(&number).into_iter().flat_map(|sent| sent.rows.iter_mut().flatten())
    }

    pub(crate) fn row(&mut self, number: u64, group: usize, row: u32) -> &mut Row {
        let rows = self.sent.get_mut(&number).and_then(|sent| sent.rows.get_mut(group));
        rows.and_then(|rows| rows.get_mut(usize::try_from(row).unwrap())).expect("a row that was sent")
    }

    /// All that happened is on disk, but for what is still under way.
    pub(crate) fn synced(&mut self, under_way: &[u64]) {
        for (number, sent) in &mut self.sent {
            if !under_way.contains(number) {
                for row in sent.rows.iter_mut().flatten() {
                    row.may_be = row.now;
                }
            }
        }
    }

    /// Compares with what a recovery serves, and takes that as the truth.
    pub(crate) fn check(&mut self, open: &[(usize, Vec<Delivery>)], dead: &[DeadLetter], is_damaged: bool) {
        let found = self.find(open, dead);
        for (number, sent) in &mut self.sent {
            let keys = |group: usize| (0..sent.count).map(move |row| (*number, group, row));
            let is_there = (0..GROUPS.len()).flat_map(keys).any(|key| found.contains_key(&key));
            for (group, rows) in sent.rows.iter_mut().enumerate() {
                for (row, state) in (0..).zip(rows.iter_mut()) {
                    let seen = found.get(&(*number, group, row)).map(Vec::as_slice).unwrap_or_default();
                    assert!(
                        seen.len() <= 1,
                        "row {row} of frame {number} came {} times for {group}",
                        seen.len()
                    );
                    let was = seen.first().copied();
                    let may_be = if is_there { state.may_be & !ABSENT } else { state.may_be };
                    let gone = if is_there { SETTLED } else { SETTLED | ABSENT };
                    let fits = was.map_or(may_be & gone != 0, |was| may_be & was != 0);
                    assert!(
                        fits || is_damaged,
                        "row {row} of frame {number} of {} in group {group} is {was:?}, {state:?}",
                        sent.topic
                    );
                    *state = Row::is(was.unwrap_or(if is_there { SETTLED } else { may_be & gone }));
                }
            }
        }
    }

    fn find(&self, open: &[(usize, Vec<Delivery>)], dead: &[DeadLetter]) -> Found {
        let mut found = Found::new();
        let mut note = |frame: &Frame, topic: &str, group: usize, rows: &gpuvitals_queue::Rows, state: u8| {
            let number = number_of(frame);
            let sent = self.sent.get(&number).expect("a frame that nobody sent");
            assert_eq!((sent.topic, &self::frame(number, sent.count)), (topic, frame), "other bytes");
            for row in rows.iter() {
                found.entry((number, group, row)).or_default().push(state);
            }
        };
        for (group, deliveries) in open {
            for delivery in deliveries {
                note(&delivery.frame, &delivery.topic, *group, &delivery.rows, OPEN);
            }
        }
        for letter in dead {
            let group = GROUPS.iter().position(|group| *group == &*letter.group).expect("a known group");
            assert!(letter.reason.to_string().contains("because"), "{}", letter.reason);
            note(&letter.frame, &letter.topic, group, &letter.rows, DEAD);
        }
        found
    }
}
