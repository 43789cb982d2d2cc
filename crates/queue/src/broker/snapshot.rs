//! What a log keeps of the broker, as it was at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_log::Place;

use super::Broker;
use super::blocks::Blocks;
use super::group::{Group, Unsettled};
use super::image::{GroupImage, HeldImage, Image, TopicImage};
use super::producers::Heard;
use super::shelf::Entry;
use super::stored::Home;
use super::terms::{GroupId, TopicId};
use super::topic::Topic;

/// The topics that a log keeps, as they were. It is taken under the broker's lock in next to no time, because it shares
/// what is held with the broker; what takes a step for each frame is done with it, beside the lock.
#[derive(Debug)]
pub struct Snapshot {
    topics: Vec<TopicSnapshot>,
}

#[derive(Debug)]
struct TopicSnapshot {
    id: TopicId,
    name: Arc<str>,
    decided: u64,
    next_offset: u64,
    entries: Blocks<u64, Entry>,
    groups: BTreeMap<GroupId, GroupSnapshot>,
    producers: Heard,
}

#[derive(Debug)]
struct GroupSnapshot {
    name: Arc<str>,
    start: u64,
    ttl: Option<Duration>,
    cursor: u64,
    unsettled: Blocks<u64, Unsettled>,
}

impl Broker {
    /// The topics that a log keeps, as they are now.
    pub fn snapshot(&self) -> Snapshot {
        let kept = self.topics.iter().filter(|topic| topic.shelf.is_kept);
        Snapshot { topics: kept.map(TopicSnapshot::of).collect() }
    }

    /// What a restart must know of the topics that a log keeps.
    pub fn image(&self) -> Image {
        self.snapshot().image()
    }

    /// A record has been moved: the frame is at home there now, if it was in the old place.
    pub fn rehome(&mut self, from: Place, to: &Home, topic: TopicId, offset: u64) {
        let entry = self.topics.get_mut(topic.0).and_then(|topic| topic.shelf.entries.get_mut(&offset));
        let home = entry.and_then(|entry| entry.stored.home.as_mut());
        if let Some(home) = home.filter(|home| home.place == from) {
            *home = to.clone();
        }
    }
}

impl Snapshot {
    /// By topic: frames from this offset on may be under way, and the snapshot says nothing of them.
    pub fn decided(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, u64)> {
        self.topics.iter().map(|topic| (&topic.name, topic.decided))
    }

    /// What a restart must know.
    pub fn image(&self) -> Image {
        Image { topics: self.topics.iter().map(|topic| (Arc::clone(&topic.name), topic.image())).collect() }
    }

    /// The frames that lie in a segment of the log, in its order.
    pub fn homes_in(&self, segment: u64) -> Vec<(Home, TopicId)> {
        let homes = self.topics.iter().flat_map(|topic| {
            let homes = topic.entries.values().filter_map(|entry| entry.stored.home.as_ref());
            homes.map(|home| (home.clone(), topic.id))
        });
        let mut found: Vec<_> = homes.filter(|(home, _)| home.place.segment() == segment).collect();
        found.sort_unstable_by_key(|(home, _)| home.place);
        found
    }
}

impl TopicSnapshot {
    fn of(topic: &Topic) -> Self {
        let shelf = &topic.shelf;
        Self {
            id: shelf.id,
            name: Arc::clone(&shelf.name),
            decided: shelf.end(),
            next_offset: shelf.next_offset,
            entries: shelf.entries.clone(),
            groups: topic.groups.iter().map(|(id, group)| (*id, GroupSnapshot::of(group))).collect(),
            producers: topic.producers.heard().clone(),
        }
    }

    fn image(&self) -> TopicImage {
        let kept = self.entries.iter().filter(|(_, entry)| entry.stored.home.is_some());
        let held = kept.map(|(offset, entry)| (*offset, HeldImage { count: entry.count, sent: None }));
        let groups = self.groups.values();
        TopicImage {
            next_offset: self.next_offset,
            held: held.collect(),
            groups: groups.map(|group| (Arc::clone(&group.name), group.image(&self.entries))).collect(),
            producers: self.producers.values().cloned().collect(),
        }
    }
}

impl GroupSnapshot {
    fn of(group: &Group) -> Self {
        Self {
            name: Arc::clone(&group.name),
            start: group.start,
            ttl: group.ttl,
            cursor: group.cursor,
            unsettled: group.unsettled.clone(),
        }
    }

    fn image(&self, entries: &Blocks<u64, Entry>) -> GroupImage {
        let is_kept = |entry: &Entry| entry.stored.home.is_some();
        let kept = self.unsettled.iter().filter(|(offset, _)| entries.get(offset).is_some_and(is_kept));
        let unsettled = kept.map(|(offset, frame)| (*offset, frame.failures));
        GroupImage { start: self.start, ttl: self.ttl, cursor: self.cursor, unsettled: unsettled.collect() }
    }
}
