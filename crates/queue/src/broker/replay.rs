//! A broker that was before: its records, applied again in the order of the log.
//!
//! Frames are applied as they were published, facts as they were noted, and now and then the state of each topic (a
//! checkpoint), which replaces all but the frames that were under way at its moment. So the log may lose its beginning once a checkpoint
//! stands behind it. Facts before the first checkpoint that is left may lack what they follow from: a group settles a
//! frame, and that others want it too stood in what is gone. So a frame that was found stays until the log has been read,
//! for a checkpoint to say that it is held. A frame counts only if its record is found.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_log::Place;

use super::entries::FrameEntry;
use super::env::Env;
use super::facts::Fact;
use super::group::{Group, Unsettled};
use super::ledger::Ledger;
use super::producers::TakenSequences;
use super::ranges::Ranges;
use super::topic::{Topic, forget_producers};
use super::whole::Broker;
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

/// What a log has kept.
#[derive(Clone, Debug)]
pub enum JournalRecord<'a> {
    /// A frame as it was published, or moved to another place.
    Frame {
        /// Name of its topic.
        topic: &'a str,
        /// Its offset in the topic.
        offset: u64,
        /// Where the log has it.
        place: Place,
        /// Messages in it.
        count: u32,
        /// What it counts against bounds.
        cost: u64,
        /// When it was published.
        at: Millis,
        /// The producer, and the number of this frame among its own; `None` too for a frame that was moved.
        stamp: Option<(&'a str, u64)>,
    },
    /// Something that happened to a topic.
    Fact(Fact),
    /// What is so of a topic.
    State(TopicState),
    /// Sequences that were taken from producers, the longest silent first.
    Producers {
        /// Name of the topic that they publish to.
        topic: Arc<str>,
        /// By id: what was taken of each.
        seen: Vec<(Arc<str>, TakenSequences)>,
    },
}

/// What a restart must know of a topic, beside the frames' records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TopicState {
    /// Name of the topic or group.
    pub name: Arc<str>,
    /// Frames from here on may have been under way: the state says nothing of them.
    pub decided: u64,
    /// No frame has this offset or a higher one.
    pub next_offset: u64,
    /// Groups that the topic has had.
    pub groups_made: u32,
    /// Frames that are held.
    pub held: Ranges,
    /// Groups that the topic has now.
    pub groups: Vec<GroupState>,
    /// Sequences that were taken from producers, the longest silent first.
    pub producers: Vec<(Arc<str>, TakenSequences)>,
}

/// A group: what it has not settled are the frames from the cursor on, and some before it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupState {
    /// Name of the topic or group.
    pub name: Arc<str>,
    /// Groups that the topic had before it.
    pub life: u32,
    /// The first frame that it wants.
    pub start: u64,
    /// How long it outlives its last member.
    pub ttl: Option<Duration>,
    /// Frames before it are settled unless they are listed here.
    pub cursor: u64,
    /// Frames before the cursor that are not settled.
    pub unsettled: Ranges,
}

/// What was found in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Frames that are held again, without dead letters.
    pub frames: u64,
    /// Messages in them.
    pub messages: u64,
    /// Dead letters that are held again.
    pub dead_letters: u64,
    /// Frames that the log knows of, and has no longer.
    pub missing: u64,
}

impl Broker {
    /// A broker beside a log. What the log has kept is to be [applied](Broker::apply); then it may [begin](Broker::begin).
    pub fn beside_log(config: QueueConfig, now: Millis) -> Self {
        Self { env: Env::beside_log(config.clone(), now), ..Self::new(config, now) }
    }

    /// Applies the next record of the log.
    pub fn apply(&mut self, record: JournalRecord<'_>) {
        match record {
            JournalRecord::Frame { topic, offset, place, count, cost, at, stamp } => {
                let entry = FrameEntry { frame: None, place: Some(place), count, cost, published_at: at };
                self.with_topic(topic, |env, topic| {
                    topic.shelf.next_offset = topic.shelf.next_offset.max(offset.saturating_add(1));
                    topic.shelf.remove(env, offset);
                    topic.hold(env, offset, entry, stamp);
                });
            }
            JournalRecord::Fact(Fact { topic, what, .. }) => {
                self.with_topic(&topic, |env, topic| topic.apply(env, &what));
            }
            JournalRecord::State(state) => {
                let name = Arc::clone(&state.name);
                self.with_topic(&name, |env, topic| topic.restore(env, state));
            }
            JournalRecord::Producers { topic, seen } => {
                self.with_topic(&topic, |_, topic| topic.producers.merge(seen));
            }
        }
    }

    /// Changes the topic of that name, which is made if it is not known yet, whatever the settings say of it now.
    fn with_topic<T>(&mut self, name: &str, change: impl FnOnce(&mut Env, &mut Topic) -> T) {
        let id = self.by_name.get(name).copied().unwrap_or_else(|| self.add_topic(name));
        if let Some(topic) = self.topics.get_mut(id.0) {
            topic.shelf.is_kept = true;
            change(&mut self.env, topic);
        }
    }

    /// The log has been read: what was leased may be delivered at once, and the lease does not count.
    pub fn begin(&mut self) -> Restored {
        let mut found = Restored::default();
        self.env.reads_log = false;
        for topic in &mut self.topics {
            found.missing += topic.begin(&mut self.env);
            let frames = u64::try_from(topic.shelf.entries.len()).unwrap_or(u64::MAX);
            if topic.shelf.is_dead {
                found.dead_letters += frames;
            } else {
                found.frames += frames;
                found.messages += topic.shelf.messages;
            }
        }
        self.env.wakes.clear();
        self.env.producers = self.topics.iter().map(|topic| topic.producers.len()).sum();
        forget_producers(&mut self.env, &mut self.topics);
        found
    }

    /// What a restart must know of the topics that a log keeps, beside the frames' records.
    pub fn state(&self) -> Vec<TopicState> {
        self.topics.iter().filter(|topic| topic.shelf.is_kept).map(Topic::state).collect()
    }
}

impl Topic {
    fn state(&self) -> TopicState {
        let groups = self.groups.values().map(|group| GroupState {
            name: Arc::clone(&group.name),
            life: group.life,
            start: group.start,
            ttl: group.ttl,
            cursor: group.cursor,
            unsettled: group.unsettled.keys().copied().collect(),
        });
        TopicState {
            name: Arc::clone(&self.shelf.name),
            decided: self.shelf.end(),
            next_offset: self.shelf.next_offset,
            groups_made: self.shelf.groups_made,
            held: self.shelf.kept(),
            groups: groups.collect(),
            producers: self.producers.iter().map(|(id, seen)| (Arc::clone(id), seen)).collect(),
        }
    }

    /// Becomes what a state says, but for the frames that were under way, and what is known of their producers.
    fn restore(&mut self, env: &mut Env, state: TopicState) {
        let shelf = &mut self.shelf;
        shelf.next_offset = shelf.next_offset.max(state.next_offset);
        shelf.groups_made = state.groups_made;
        shelf.held.remove(&(0..state.decided));
        // They were under way: no group can have settled them.
        shelf.hold_all_from(state.decided);
        for range in state.held.iter() {
            shelf.held.insert(range);
        }
        let groups = state.groups.into_iter().map(|known| {
            let id = env.take_group_id();
            let mut group = Group::new(id, Arc::clone(&known.name), known.life, known.start, known.ttl);
            group.cursor = known.cursor;
            let unsettled = known.unsettled.iter().flatten();
            group.unsettled = unsettled.map(|offset| (offset, Unsettled::of_earlier_life(env.now))).collect();
            (known.name, group)
        });
        self.groups = groups.collect();
        self.producers.merge(state.producers);
    }

    /// The log has been read. Answers how many frames are known and have not been found.
    fn begin(&mut self, env: &mut Env) -> u64 {
        let shelf = &mut self.shelf;
        shelf.next_offset = shelf.next_offset.saturating_add(OFFSETS_SKIPPED);
        shelf.token_base = token_base(shelf.next_offset);
        shelf.ledger = Ledger::new(env.now);
        let known = shelf.held.count();
        let is_held = |offset: u64| shelf.held.first_in(&(offset..offset + 1)).is_some();
        let gone: Vec<_> =
            shelf.entries.iter().map(|(offset, _)| offset).filter(|offset| !is_held(*offset)).collect();
        for offset in gone {
            shelf.remove(env, offset);
        }
        shelf.held = shelf.entries.iter().map(|(offset, _)| offset).collect();
        for group in self.groups.values_mut() {
            group.begin(env, shelf);
        }
        known.saturating_sub(shelf.held.count())
    }
}
