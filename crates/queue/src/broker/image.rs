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

use super::facts::{Fact, What};
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
    /// Frames that are held.
    pub held: BTreeMap<u64, HeldImage>,
    /// Groups by name.
    pub groups: BTreeMap<Arc<str>, GroupImage>,
    /// What was taken from whom.
    pub producers: Producers,
}

/// One frame.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldImage {
    /// Messages in it.
    pub count: u32,
    /// Who sent it and when, as far as this was replayed from the frame itself.
    pub sent: Option<(ProducerStamp, Millis)>,
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
    /// Frames before the cursor that are not settled, by offset, and how often their delivery has failed.
    pub unsettled: BTreeMap<u64, u32>,
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

    /// One fact. What it says of frames that are not there is without effect.
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
            What::Failed { group, offset, failures } => topic.fail(&group, offset, failures),
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
        held.map(|(offset, frame)| Event::Published {
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
            self.release(offset);
        }
    }

    fn fail(&mut self, name: &Arc<str>, offset: u64, failures: u32) {
        let end = offset.saturating_add(1);
        if self.groups.get(name).is_none_or(|group| offset >= group.cursor) {
            self.open(name, end, end);
        }
        let unsettled = self.groups.get_mut(name).and_then(|group| group.unsettled.get_mut(&offset));
        if let Some(known) = unsettled {
            *known = failures;
        }
    }

    /// Moves a group's cursor to `end` at least: frames that it passes before `start` are unsettled.
    fn open(&mut self, name: &Arc<str>, start: u64, end: u64) {
        // A group whose making was lost with damage wants everything: what it had settled comes again.
        let group = self.groups.entry(Arc::clone(name)).or_default();
        if start > group.cursor {
            for (offset, _) in self.held.range(group.cursor..start) {
                group.unsettled.insert(*offset, 0);
            }
        }
        group.cursor = group.cursor.max(end);
    }

    /// A group has settled a frame: it goes if no other wants it.
    fn release(&mut self, offset: u64) {
        if !self.groups.values().any(|group| group.wants(offset)) {
            self.held.remove(&offset);
        }
    }

    fn end_group(&mut self, name: &Arc<str>) {
        let Some(ended) = self.groups.remove(name) else { return };
        let begun = ended.unsettled.keys().copied();
        let ahead = self.held.range(ended.cursor..).map(|(offset, _)| *offset);
        if self.groups.is_empty() {
            return;
        }
        for offset in begun.chain(ahead).collect::<Vec<_>>() {
            self.release(offset);
        }
    }
}
