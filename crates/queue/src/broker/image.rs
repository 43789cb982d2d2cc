//! What a restart must know of a queue, without the frames' bytes: made from a broker, or from what was noted.
//!
//! A log is replayed onto an image: frames as they were published, facts as they were noted, and now and then a whole
//! image (a checkpoint), which takes the place of everything before the moment of which it tells, but for the frames that
//! were under way then. So the log may lose its beginning once a checkpoint stands behind it. Frames count only where the
//! image and the bytes both are there.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::facts::{Burial, Fact, What};
use super::producers::Producers;
use crate::frame::{Millis, ProducerStamp};
use crate::rows::Rows;

/// A step from one image to the next.
#[derive(Clone, Debug)]
pub enum Event {
    /// A frame as it was published.
    Published {
        /// Its topic.
        topic: Arc<str>,
        /// Its place there.
        offset: u64,
        /// The frame.
        frame: HeldImage,
    },
    /// A fact.
    Noted(Fact),
}

/// All topics by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Image {
    /// The topics.
    pub topics: BTreeMap<Arc<str>, TopicImage>,
}

/// One topic.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicImage {
    /// No frame has this offset or a higher one.
    pub next_offset: u64,
    /// No dead letter has this id or a higher one.
    pub next_letter: u64,
    /// Frames that are held.
    pub held: BTreeMap<u64, HeldImage>,
    /// Groups by name.
    pub groups: BTreeMap<Arc<str>, GroupImage>,
    /// Dead letters by id.
    pub letters: BTreeMap<u64, Burial>,
    /// What was taken from whom.
    pub producers: Producers,
}

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldImage {
    /// Messages in it.
    pub count: u32,
    /// Set if it is a dead letter put back.
    pub replay: Option<Box<ReplayImage>>,
    /// Who sent it and when, as far as this was replayed from the frame itself.
    pub sent: Option<(ProducerStamp, Millis)>,
}

/// A dead letter put back as a frame.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayImage {
    /// The offset under which its bytes were published.
    pub source: u64,
    /// The rows that are meant.
    pub rows: Rows,
    /// The group that it is for.
    pub only: Arc<str>,
}

/// One group: what it has not settled are the frames from the cursor on, and parts of frames before it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupImage {
    /// The first frame that it wants.
    pub start: u64,
    /// How long it outlives its last member.
    pub ttl: Option<Duration>,
    /// Frames before it are settled unless they have parts.
    pub cursor: u64,
    /// By the frame's offset.
    pub parts: BTreeMap<u64, Vec<PartImage>>,
}

/// Rows of one frame that were tried alike.
#[derive(Clone, Debug, PartialEq)]
pub struct PartImage {
    /// The rows.
    pub rows: Rows,
    /// How often their delivery has failed.
    pub failures: u32,
    /// When they were delivered first.
    pub first_at: Millis,
}

impl HeldImage {
    /// A frame as it was published.
    pub fn published(count: u32, sent: Option<(ProducerStamp, Millis)>) -> Self {
        Self { count, replay: None, sent }
    }

    /// The rows that are meant.
    pub fn rows(&self) -> Rows {
        self.replay.as_ref().map_or_else(|| Rows::all(self.count), |replay| replay.rows.clone())
    }

    /// The offset under which its bytes were published, if it is `offset` itself.
    pub fn source(&self, offset: u64) -> u64 {
        self.replay.as_ref().map_or(offset, |replay| replay.source)
    }

    pub(super) fn is_for(&self, group: &str) -> bool {
        self.replay.as_ref().is_none_or(|replay| &*replay.only == group)
    }
}

impl GroupImage {
    pub(super) fn wants(&self, offset: u64) -> bool {
        offset >= self.cursor || self.parts.contains_key(&offset)
    }
}

impl Image {
    /// A frame as it was published, in the order of the log.
    pub fn publish(&mut self, topic: &Arc<str>, offset: u64, frame: HeldImage, producers_max: usize) {
        let topic = self.topic(topic);
        if let Some((stamp, at)) = &frame.sent {
            topic.producers.remember(stamp, *at, producers_max);
        }
        topic.next_offset = topic.next_offset.max(offset.saturating_add(1));
        topic.held.insert(offset, frame);
    }

    /// One fact. What it says of frames and letters that are not there is without effect.
    pub fn apply(&mut self, fact: Fact) {
        let topic = self.topic(&fact.topic);
        match fact.what {
            What::GroupMade { group, is_new, start, ttl } => {
                if is_new {
                    topic.end_group(&group);
                }
                topic.groups.entry(group).or_insert_with(|| GroupImage {
                    start,
                    ttl,
                    cursor: start,
                    parts: BTreeMap::new(),
                });
            }
            What::GroupEnded { group } => topic.end_group(&group),
            What::Settled { group, frames } => topic.settle(&group, frames),
            What::SettledRows { group, offset, rows } => topic.settle_rows(&group, offset, &rows),
            What::Failed { group, offset, rows, failures, first_at } => {
                topic.fail(&group, offset, &PartImage { rows, failures, first_at });
            }
            What::Buried(letter) => {
                topic.exhume(&letter);
                topic.settle_rows(&letter.group, letter.offset, &letter.rows);
                topic.next_letter = topic.next_letter.max(letter.id.saturating_add(1));
                topic.letters.insert(letter.id, letter);
            }
            What::LettersGone { ids } => {
                for id in ids {
                    topic.letters.remove(&id);
                }
            }
            What::Replayed { letter, offset } => topic.replay(letter, offset),
            What::Dropped { offset } => {
                topic.held.remove(&offset);
                for group in topic.groups.values_mut() {
                    group.parts.remove(&offset);
                }
            }
        }
    }

    /// Either.
    pub fn happen(&mut self, event: Event, producers_max: usize) {
        match event {
            Event::Published { topic, offset, frame } => self.publish(&topic, offset, frame, producers_max),
            Event::Noted(fact) => self.apply(fact),
        }
    }

    /// Frames of a topic that were under way when all below `decided` was: for an image that says nothing of them.
    pub fn under_way(&self, topic: &Arc<str>, decided: u64) -> Vec<Event> {
        let Some(held) = self.topics.get(topic).map(|topic| topic.held.range(decided..)) else {
            return Vec::new();
        };
        held.filter(|(_, frame)| frame.replay.is_none())
            .map(|(offset, frame)| Event::Published {
                topic: Arc::clone(topic),
                offset: *offset,
                frame: frame.clone(),
            })
            .collect()
    }

    fn topic(&mut self, name: &Arc<str>) -> &mut TopicImage {
        if !self.topics.contains_key(name) {
            self.topics.insert(Arc::clone(name), TopicImage::default());
        }
        self.topics.entry(Arc::clone(name)).or_default()
    }
}

impl TopicImage {
    fn settle(&mut self, name: &Arc<str>, frames: Range<u64>) {
        if frames.is_empty() {
            return;
        }
        self.open(name, frames.start, frames.end);
        let Some(group) = self.groups.get_mut(name) else { return };
        let settled: Vec<_> = group.parts.range(frames.clone()).map(|(offset, _)| *offset).collect();
        for offset in settled {
            group.parts.remove(&offset);
        }
        let unwanted: Vec<_> = self.held.range(frames).map(|(offset, _)| *offset).collect();
        for offset in unwanted {
            self.release(name, offset);
        }
    }

    fn settle_rows(&mut self, name: &Arc<str>, offset: u64, rows: &Rows) {
        self.open_frame(name, offset);
        if self.cut(name, offset, rows) {
            self.release(name, offset);
        }
    }

    fn fail(&mut self, name: &Arc<str>, offset: u64, failed: &PartImage) {
        self.open_frame(name, offset);
        let Some(known) = self.groups.get(name).and_then(|group| group.parts.get(&offset)) else { return };
        let rows = known.iter().flat_map(|part| part.rows.intersection(&failed.rows).ranges().to_vec());
        let rows = Rows::from_ranges(rows);
        if rows.is_empty() {
            return;
        }
        self.cut(name, offset, &rows);
        let Some(group) = self.groups.get_mut(name) else { return };
        group.parts.entry(offset).or_default().push(PartImage { rows, ..failed.clone() });
    }

    /// Takes rows out of a frame's parts. Answers whether none are left.
    fn cut(&mut self, name: &Arc<str>, offset: u64, rows: &Rows) -> bool {
        let Some(group) = self.groups.get_mut(name) else { return false };
        let Some(parts) = group.parts.get_mut(&offset) else { return false };
        for part in parts.iter_mut() {
            part.rows = part.rows.difference(rows);
        }
        parts.retain(|part| !part.rows.is_empty());
        let is_done = parts.is_empty();
        if is_done {
            group.parts.remove(&offset);
        }
        is_done
    }

    /// Moves a group's cursor to `end` at least: frames that it passes before `start` become parts.
    fn open(&mut self, name: &Arc<str>, start: u64, end: u64) {
        // A group whose making was lost with damage wants everything: what it had settled comes again.
        let group = self.groups.entry(Arc::clone(name)).or_default();
        if start > group.cursor {
            for (offset, frame) in
                self.held.range(group.cursor..start).filter(|(_, frame)| frame.is_for(name))
            {
                let part = PartImage { rows: frame.rows(), failures: 0, first_at: Millis(0) };
                group.parts.insert(*offset, vec![part]);
            }
        }
        group.cursor = group.cursor.max(end);
    }

    /// Moves a group's cursor beyond a frame, and makes that a part if it was not before.
    fn open_frame(&mut self, name: &Arc<str>, offset: u64) {
        let was_open = self.groups.get(name).is_some_and(|group| offset < group.cursor);
        if !was_open {
            let end = offset.saturating_add(1);
            self.open(name, end, end);
        }
    }

    /// A group has settled a frame: it goes if no other wants it.
    fn release(&mut self, settled_by: &str, offset: u64) {
        let Some(frame) = self.held.get(&offset).filter(|frame| frame.is_for(settled_by)) else { return };
        let wanted = self.groups.iter().any(|(name, group)| frame.is_for(name) && group.wants(offset));
        if !wanted {
            self.held.remove(&offset);
        }
    }

    fn end_group(&mut self, name: &Arc<str>) {
        let Some(ended) = self.groups.remove(name) else { return };
        let begun = ended.parts.keys().copied();
        let ahead = self.held.range(ended.cursor..).map(|(offset, _)| *offset);
        for offset in begun.chain(ahead).collect::<Vec<_>>() {
            let is_own = self.held.get(&offset).is_some_and(|frame| frame.replay.is_some());
            if is_own || !self.groups.is_empty() {
                self.release(name, offset);
            }
        }
    }

    /// Rows of a letter that was put back are dead again. If the frame as which it was put back is not known, facts were
    /// lost, and the rows still stand where these had taken them from: in the letter, or further back. They are not to
    /// come twice.
    fn exhume(&mut self, dead: &Burial) {
        if dead.offset == dead.source || self.held.contains_key(&dead.offset) {
            return;
        }
        let is_same = |letter: &Burial| letter.source == dead.source && letter.group == dead.group;
        for letter in self.letters.values_mut().filter(|letter| is_same(letter)) {
            letter.rows = letter.rows.difference(&dead.rows);
        }
        self.letters.retain(|_, letter| !letter.rows.is_empty());
        let is_same =
            |offset, frame: &HeldImage| frame.source(offset) == dead.source && frame.is_for(&dead.group);
        let held = self.held.iter().filter(|(offset, frame)| is_same(**offset, frame));
        for offset in held.map(|(offset, _)| *offset).collect::<Vec<_>>() {
            self.settle_rows(&dead.group, offset, &dead.rows);
        }
    }

    fn replay(&mut self, letter: u64, offset: u64) {
        self.next_offset = self.next_offset.max(offset.saturating_add(1));
        let Some(letter) = self.letters.remove(&letter) else { return };
        let count = u32::try_from(letter.rows.len()).unwrap_or(u32::MAX);
        let replay = ReplayImage { source: letter.source, rows: letter.rows, only: letter.group };
        self.held.insert(offset, HeldImage { count, replay: Some(Box::new(replay)), sent: None });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Burial, Fact, HeldImage, Image, Rows, What};
    use crate::broker::terms::Failure;
    use crate::frame::Millis;

    fn note(image: &mut Image, what: What) {
        image.apply(Fact { topic: "t".into(), what });
    }

    fn buried(id: u64, offset: u64, rows: &[u32]) -> What {
        What::Buried(Burial {
            id,
            group: "g".into(),
            offset,
            source: 0,
            rows: rows.iter().copied().collect(),
            reason: Failure::Rejected("".into()),
            attempts: 1,
            first_at: Millis(0),
            died_at: Millis(0),
        })
    }

    fn letters(image: &Image) -> Vec<(u64, Rows)> {
        let topic = image.topics.get("t");
        let letters = topic.into_iter().flat_map(|topic| topic.letters.values());
        letters.map(|letter| (letter.id, letter.rows.clone())).collect()
    }

    #[test]
    fn a_letter_whose_putting_back_was_lost_does_not_have_the_rows_that_died_again() {
        for putting_back_is_known in [false, true] {
            let mut image = Image::default();
            let topic: Arc<str> = "t".into();
            image.publish(&topic, 0, HeldImage::published(6, None), 8);
            note(&mut image, buried(0, 0, &[1, 2, 3]));
            if putting_back_is_known {
                note(&mut image, What::Replayed { letter: 0, offset: 5 });
            }
            note(&mut image, buried(1, 5, &[1, 3]));
            let died_again = (1, [1, 3].into_iter().collect());
            let left = (0, [2].into_iter().collect());
            let expected = if putting_back_is_known { vec![died_again] } else { vec![left, died_again] };
            assert_eq!(letters(&image), expected);
            // A group of this name in another life may have given up on the same frame as it was published.
            note(&mut image, buried(2, 0, &[0, 1, 2, 3, 4, 5]));
            assert_eq!(letters(&image).len(), expected.len() + 1);
        }
    }
    #[test]
    fn rows_of_which_only_the_second_death_is_known_do_not_wait_beside_it() {
        let mut image = Image::default();
        let (topic, group): (Arc<str>, Arc<str>) = ("t".into(), "g".into());
        image.publish(&topic, 0, HeldImage::published(4, None), 8);
        note(&mut image, What::GroupMade { group: group.clone(), is_new: true, start: 0, ttl: None });
        note(&mut image, buried(1, 5, &[1, 3]));
        let topic = image.topics.get(&topic).expect("topic");
        let waiting = topic.groups.get(&group).and_then(|group| group.parts.get(&0)).expect("parts");
        assert_eq!(
            waiting.iter().map(|part| part.rows.clone()).collect::<Vec<_>>(),
            [[0, 2].into_iter().collect()]
        );
        assert_eq!(letters(&image), [(1, [1, 3].into_iter().collect())]);
    }
}
