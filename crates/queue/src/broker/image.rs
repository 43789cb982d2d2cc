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
    /// The group that it is for.
    pub only: Arc<str>,
}

/// One group: what it has not settled are the frames from the cursor on, and some before it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupImage {
    /// The first frame that it wants.
    pub start: u64,
    /// How long it outlives its last member.
    pub ttl: Option<Duration>,
    /// Frames before it are settled unless they are listed here.
    pub cursor: u64,
    /// Frames before the cursor that are not settled, by offset.
    pub unsettled: BTreeMap<u64, Attempts>,
}

/// Deliveries of a frame to a group so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Attempts {
    /// How many have failed.
    pub failures: u32,
    /// When the first was.
    pub first_at: Millis,
}

impl HeldImage {
    /// A frame as it was published.
    pub fn published(count: u32, sent: Option<(ProducerStamp, Millis)>) -> Self {
        Self { count, replay: None, sent }
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
        offset >= self.cursor || self.unsettled.contains_key(&offset)
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
                    unsettled: BTreeMap::new(),
                });
            }
            What::GroupEnded { group } => topic.end_group(&group),
            What::Settled { group, frames } => topic.settle(&group, frames),
            What::Failed { group, offset, failures, first_at } => {
                topic.fail(&group, offset, Attempts { failures, first_at });
            }
            What::Buried(letter) => {
                topic.exhume(&letter);
                topic.settle(&letter.group, letter.offset..letter.offset.saturating_add(1));
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
                    group.unsettled.remove(&offset);
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
        let settled: Vec<_> = group.unsettled.range(frames.clone()).map(|(offset, _)| *offset).collect();
        for offset in settled {
            group.unsettled.remove(&offset);
        }
        let unwanted: Vec<_> = self.held.range(frames).map(|(offset, _)| *offset).collect();
        for offset in unwanted {
            self.release(name, offset);
        }
    }

    fn fail(&mut self, name: &Arc<str>, offset: u64, attempts: Attempts) {
        let end = offset.saturating_add(1);
        if self.groups.get(name).is_none_or(|group| offset >= group.cursor) {
            self.open(name, end, end);
        }
        let unsettled = self.groups.get_mut(name).and_then(|group| group.unsettled.get_mut(&offset));
        if let Some(known) = unsettled {
            *known = attempts;
        }
    }

    /// Moves a group's cursor to `end` at least: frames that it passes before `start` are unsettled.
    fn open(&mut self, name: &Arc<str>, start: u64, end: u64) {
        // A group whose making was lost with damage wants everything: what it had settled comes again.
        let group = self.groups.entry(Arc::clone(name)).or_default();
        if start > group.cursor {
            for (offset, _) in self.held.range(group.cursor..start).filter(|(_, frame)| frame.is_for(name)) {
                group.unsettled.insert(*offset, Attempts::default());
            }
        }
        group.cursor = group.cursor.max(end);
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
        let begun = ended.unsettled.keys().copied();
        let ahead = self.held.range(ended.cursor..).map(|(offset, _)| *offset);
        for offset in begun.chain(ahead).collect::<Vec<_>>() {
            let is_own = self.held.get(&offset).is_some_and(|frame| frame.replay.is_some());
            if is_own || !self.groups.is_empty() {
                self.release(name, offset);
            }
        }
    }

    /// A letter that was put back is dead again. If the frame as which it was put back is not known, facts were
    /// lost, and it still stands where these had taken it from: as the letter, or further back. It is not to come twice.
    fn exhume(&mut self, dead: &Burial) {
        if dead.offset == dead.source || self.held.contains_key(&dead.offset) {
            return;
        }
        self.letters.retain(|_, letter| letter.source != dead.source || letter.group != dead.group);
        let is_same =
            |offset, frame: &HeldImage| frame.source(offset) == dead.source && frame.is_for(&dead.group);
        let held = self.held.iter().filter(|(offset, frame)| is_same(**offset, frame));
        for offset in held.map(|(offset, _)| *offset).collect::<Vec<_>>() {
            self.settle(&dead.group, offset..offset.saturating_add(1));
        }
    }

    fn replay(&mut self, letter: u64, offset: u64) {
        self.next_offset = self.next_offset.max(offset.saturating_add(1));
        let Some(letter) = self.letters.remove(&letter) else { return };
        let replay = ReplayImage { source: letter.source, only: letter.group };
        self.held
            .insert(offset, HeldImage { count: letter.count, replay: Some(Box::new(replay)), sent: None });
    }
}
