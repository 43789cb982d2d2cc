//! A broker as it was: from an image, and the places of the frames' bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Broker;
use super::env::Env;
use super::group::{Group, Unsettled, UnsettledState};
use super::image::{GroupImage, Image, TopicImage};
use super::shelf::Entry;
use super::stored::{Home, Stored};
use super::terms::{GroupId, TopicId};
use super::topic::Topic;
use crate::config::QueueConfig;
use crate::frame::Millis;

/// Offsets that are left out at a restart. Frames that had only been written may be gone, and their numbers must not
/// come again: who was given one of them could settle another with it. Far more than a log can have under way.
const OFFSETS_SKIPPED: u64 = 1 << 20;

/// Deliveries of a frame that are told apart from those of the next life.
const TOKENS_OF_LIFE: u32 = 1 << 10;

/// Behind which number the tokens of a life begin, that begins with this offset: elsewhere in each of some four million.
fn token_base(first_offset: u64) -> u32 {
    let life = first_offset / OFFSETS_SKIPPED % u64::from(u32::MAX / TOKENS_OF_LIFE);
    u32::try_from(life).unwrap_or(0) * TOKENS_OF_LIFE
}

/// Where a frame's bytes are, and what the frame's head says.
#[derive(Clone, Debug)]
pub struct Body {
    /// Where they are.
    pub home: Home,
    /// What the frame counts against bounds.
    pub cost: u64,
    /// When it was published.
    pub published_at: Millis,
}

/// Bodies by topic and the offset under which they were published.
pub type Bodies = BTreeMap<Arc<str>, BTreeMap<u64, Body>>;

/// What was restored.
#[derive(Debug)]
pub struct Restored {
    /// The broker. What was leased may be delivered at once, and the lease does not count.
    pub broker: Broker,
    /// Frames that are held again, without dead letters.
    pub frames: u64,
    /// Messages in them.
    pub messages: u64,
    /// Dead letters that are held again.
    pub dead_letters: u64,
    /// Frames whose bytes are gone.
    pub missing: u64,
}

impl Broker {
    /// A broker beside a log, as the image says.
    pub fn restore(config: QueueConfig, now: Millis, image: Image, bodies: &Bodies) -> Restored {
        let mut broker = Self::new(config.clone(), now);
        broker.env = Env::new(config, now, true);
        let mut restored = Restored { broker, frames: 0, messages: 0, dead_letters: 0, missing: 0 };
        let none = BTreeMap::new();
        for (name, topic) in image.topics {
            let bodies = bodies.get(&name).unwrap_or(&none);
            restored.topic(name, topic, bodies);
        }
        restored
    }
}

impl Restored {
    fn topic(&mut self, name: Arc<str>, image: TopicImage, bodies: &BTreeMap<u64, Body>) {
        let broker = &mut self.broker;
        let id = TopicId(broker.topics.len());
        let mut topic = Topic::new(id, Arc::clone(&name), &broker.env);
        topic.shelf.is_kept = true;
        topic.shelf.next_offset = image.next_offset.saturating_add(OFFSETS_SKIPPED);
        topic.shelf.token_base = token_base(topic.shelf.next_offset);
        topic.producers = image.producers;
        broker.env.producers += topic.producers.len();
        for (offset, held) in image.held {
            let Some(body) = bodies.get(&offset) else {
                self.missing += 1;
                continue;
            };
            if topic.shelf.is_dead {
                self.dead_letters += 1;
            } else {
                self.frames += 1;
                self.messages += u64::from(held.count);
            }
            let entry = Entry {
                stored: Stored::on_disk(body.home.clone(), body.cost),
                count: held.count,
                published_at: body.published_at,
                waiting: 0,
            };
            topic.shelf.put(&mut broker.env, offset, entry);
        }
        for (group, image) in image.groups {
            let id = GroupId(broker.next_group);
            broker.next_group += 1;
            restore_group(&mut broker.env, &mut topic, id, group, image);
        }
        broker.by_name.insert(name, id);
        broker.topics.push(topic);
    }
}

fn restore_group(env: &mut Env, topic: &mut Topic, id: GroupId, name: Arc<str>, image: GroupImage) {
    let mut group = Group::new(id, name, image.ttl, image.start, 0);
    group.is_safe = true;
    group.cursor = image.cursor;
    group.empty_since = Some(env.now);
    for (_, entry) in topic.shelf.entries.tail_mut(image.cursor) {
        entry.waiting += 1;
        group.lag += u64::from(entry.count);
    }
    for (offset, failures) in image.unsettled {
        let is_before = offset < image.cursor;
        let Some(entry) = topic.shelf.entries.get_mut(&offset).filter(|_| is_before) else { continue };
        entry.waiting += 1;
        let (count, token) = (u64::from(entry.count), topic.shelf.token_base);
        group.lag += count;
        group.ready.insert((env.now, offset));
        let state = UnsettledState::Ready(env.now);
        group.unsettled.insert(offset, Unsettled { count, token, failures, losses: 0, state });
    }
    if let Some(end) = group.ends_at() {
        env.arm(end);
    }
    topic.groups.insert(id, group);
}
