//! What a log keeps of the broker, as it was at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_log::Place;

use super::Broker;
use super::blocks::Blocks;
use super::facts::Burial;
use super::group::{Group, Unsettled};
use super::image::{Attempts, GroupImage, HeldImage, Image, ReplayImage, TopicImage};
use super::producers::Heard;
use super::shelf::{Entry, Letter};
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
    next_letter: u64,
    entries: Blocks<u64, Entry>,
    letters: Blocks<u64, Letter>,
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

/// Something whose bytes are at a home.
#[derive(Clone, Copy, Debug)]
pub enum Tenant {
    /// A frame that is held, by its offset.
    Frame(TopicId, u64),
    /// A dead letter, by its id.
    Letter(TopicId, u64),
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

    /// A record has been moved: those of `tenants` that are at home in its old place are at home there now.
    pub fn rehome(&mut self, from: Place, to: &Home, tenants: &[Tenant]) {
        for tenant in tenants {
            let (Tenant::Frame(topic, _) | Tenant::Letter(topic, _)) = tenant;
            let Some(shelf) = self.topics.get_mut(topic.0).map(|topic| &mut topic.shelf) else { continue };
            let home = match tenant {
                Tenant::Frame(_, offset) => {
                    shelf.entries.get_mut(offset).and_then(|entry| entry.stored.home.as_mut())
                }
                Tenant::Letter(_, id) => shelf.letters.get_mut(id).and_then(|letter| letter.home.as_mut()),
            };
            if let Some(home) = home.filter(|home| home.place == from) {
                *home = to.clone();
            }
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

    /// Everything that lies in a segment of the log, each record once, with those who are at home there.
    pub fn homes_in(&self, segment: u64) -> Vec<(Home, Vec<Tenant>)> {
        let mut found: BTreeMap<Place, (Home, Vec<Tenant>)> = BTreeMap::new();
        for topic in &self.topics {
            let entries = topic
                .entries
                .iter()
                .map(|(offset, entry)| (entry.stored.home.as_ref(), Tenant::Frame(topic.id, *offset)));
            let letters = topic
                .letters
                .iter()
                .map(|(id, letter)| (letter.home.as_ref(), Tenant::Letter(topic.id, *id)));
            for (home, tenant) in entries.chain(letters) {
                if let Some(home) = home.filter(|home| home.place.segment() == segment) {
                    let (_, tenants) = found.entry(home.place).or_insert_with(|| (home.clone(), Vec::new()));
                    tenants.push(tenant);
                }
            }
        }
        found.into_values().collect()
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
            next_letter: shelf.next_letter,
            entries: shelf.entries.clone(),
            letters: shelf.letters.clone(),
            groups: topic.groups.iter().map(|(id, group)| (*id, GroupSnapshot::of(group))).collect(),
            producers: topic.producers.heard().clone(),
        }
    }

    fn image(&self) -> TopicImage {
        let name_of = |id: GroupId| self.groups.get(&id).map(|group| Arc::clone(&group.name));
        let held = self.entries.iter().filter_map(|(offset, entry)| {
            let home = entry.stored.home.as_ref()?;
            let mut held = HeldImage::published(entry.count, None);
            if let Some(only) = entry.only {
                held.replay = Some(Box::new(ReplayImage { source: home.source, only: name_of(only)? }));
            }
            Some((*offset, held))
        });
        let groups = self.groups.values();
        let letters = self.letters.values().filter_map(letter_image);
        TopicImage {
            next_offset: self.next_offset,
            next_letter: self.next_letter,
            held: held.collect(),
            groups: groups.map(|group| (Arc::clone(&group.name), group.image(&self.entries))).collect(),
            letters: letters.map(|letter| (letter.id, letter)).collect(),
            producers: self.producers.values().cloned().collect(),
        }
    }
}

fn letter_image(letter: &Letter) -> Option<Burial> {
    let (head, home) = (&letter.head, letter.home.as_ref()?);
    Some(Burial {
        id: head.id,
        group: Arc::clone(&head.group),
        offset: head.offset,
        source: home.source,
        count: head.count,
        reason: head.reason.clone(),
        attempts: head.attempts,
        first_at: head.first_delivered_at,
        died_at: head.died_at,
    })
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
        let unsettled = kept.map(|(offset, frame)| {
            (*offset, Attempts { failures: frame.failures, first_at: frame.first_at })
        });
        GroupImage { start: self.start, ttl: self.ttl, cursor: self.cursor, unsettled: unsettled.collect() }
    }
}
