//! One topic: its shelf, its groups, and the producers it knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::env::Env;
use super::facts::What;
use super::group::{Group, UnsettledState};
use super::producers::{Known, Producers};
use super::shelf::{Entry, Shelf, UnderWay};
use super::stored::{Home, Stored};
use super::terms::{ConsumerOptions, GroupId, PublishError, Receipt, Reserved, Start, TopicId, Wake};
use crate::config::WhenFull;
use crate::frame::{Frame, Millis};
use crate::stats::{GroupStats, TopicStats};

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) shelf: Shelf,
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) producers: Producers,
}

impl Topic {
    pub(super) fn new(id: TopicId, name: Arc<str>, env: &Env) -> Self {
        Self { shelf: Shelf::new(id, name, env), groups: BTreeMap::new(), producers: Producers::default() }
    }

    /// Takes a frame in at once.
    pub(super) fn publish(&mut self, env: &mut Env, frame: &Arc<Frame>) -> Result<Receipt, PublishError> {
        if self.is_repeat(frame)? {
            return Ok(self.repeated(frame));
        }
        self.need_room(env, frame)?;
        let offset = self.shelf.take_offset();
        self.put(env, offset, &UnderWay { frame: Arc::clone(frame), at: env.now }, None);
        Ok(self.receipt(offset))
    }

    /// Takes a frame in that will be made durable.
    pub(super) fn reserve(&mut self, env: &mut Env, frame: &Arc<Frame>) -> Result<Reserved, PublishError> {
        let topic = self.shelf.id;
        if let Some(offset) = frame.producer.as_ref().and_then(|stamp| self.shelf.pending.stamped(stamp)) {
            return Ok(Reserved::UnderWay { topic, offset });
        }
        if self.is_repeat(frame)? {
            return Ok(Reserved::Repeat(self.repeated(frame)));
        }
        self.need_room(env, frame)?;
        let offset = self.shelf.take_offset();
        self.shelf.pending.insert(offset, UnderWay { frame: Arc::clone(frame), at: env.now });
        Ok(Reserved::New { topic, offset, at: env.now, durability: self.shelf.durability })
    }

    /// A reserved frame is durable: from now on it is seen.
    pub(super) fn land(&mut self, env: &mut Env, offset: u64, home: Home, payload: Bytes) -> Option<Receipt> {
        let UnderWay { frame, at } = self.shelf.pending.remove(offset)?;
        let frame = Arc::new(Frame { payload, ..Arc::unwrap_or_clone(frame) });
        self.put(env, offset, &UnderWay { frame, at }, Some(home));
        Some(self.receipt(offset))
    }

    fn repeated(&mut self, frame: &Frame) -> Receipt {
        self.shelf.ledger.duplicates += u64::from(frame.count);
        Receipt { offset: None, durability: self.shelf.durability, duplicate: true }
    }

    fn receipt(&self, offset: u64) -> Receipt {
        Receipt { offset: Some(offset), durability: self.shelf.durability, duplicate: false }
    }

    fn is_repeat(&self, frame: &Frame) -> Result<bool, PublishError> {
        let Some(stamp) = &frame.producer else { return Ok(false) };
        match self.producers.known(stamp) {
            Known::New => Ok(false),
            Known::Repeat => Ok(true),
            Known::TooOld { highest } => {
                let reason = format!(
                    "sequence {} is too far behind {highest}, the producer's highest, to tell whether the frame was \
                     taken; send it with a new producer id",
                    stamp.sequence
                );
                Err(PublishError::SequenceTooOld { reason: reason.into() })
            }
        }
    }

    fn need_room(&mut self, env: &mut Env, frame: &Frame) -> Result<(), PublishError> {
        let (messages, bytes) = (u64::from(frame.count), frame.cost_bytes());
        self.make_room(env, messages, bytes);
        if self.shelf.has_room(env, messages, bytes) {
            Ok(())
        } else {
            Err(PublishError::Full { topic: Arc::clone(&self.shelf.name), retry_after: None })
        }
    }

    fn put(&mut self, env: &mut Env, offset: u64, taken: &UnderWay, home: Option<Home>) {
        let frame = &taken.frame;
        let messages = u64::from(frame.count);
        if let Some(stamp) = &frame.producer {
            let before = self.producers.len();
            self.producers.remember(stamp, taken.at, env.config.max_producers);
            env.producers += self.producers.len() - before;
        }
        self.shelf.ledger.published += messages;
        self.shelf.ledger.published_rate.add(env.now, messages);
        let mut waiting = 0;
        for group in self.groups.values_mut().filter(|group| group.start <= offset) {
            waiting += 1;
            group.lag += messages;
            env.wake(Wake::Group(group.id));
        }
        let entry = Entry {
            stored: Stored::here(Arc::clone(frame), home),
            count: frame.count,
            published_at: taken.at,
            waiting,
        };
        self.shelf.put(env, offset, entry);
    }

    /// Removes frames from the old end until so much fits, as far as the policy allows. Frames from a time
    /// without groups, that none of the groups of now waits for, give way under any policy.
    fn make_room(&mut self, env: &mut Env, messages: u64, bytes: u64) {
        if !self.shelf.pending_leave_room(env, messages, bytes) {
            return;
        }
        while !self.shelf.has_room(env, messages, bytes) {
            let Some(offset) = self.gives_way(env) else { return };
            let Some(entry) = self.shelf.take(env, offset) else { return };
            let count = u64::from(entry.count);
            self.shelf.ledger.dropped += count;
            self.shelf.note(env, What::Dropped { offset });
            for group in self.groups.values_mut() {
                group.forget(env, &mut self.shelf, offset, count);
            }
        }
    }

    /// The frame that goes next where room is made, if one may.
    fn gives_way(&self, env: &Env) -> Option<u64> {
        let (offset, entry) = self.shelf.entries.first_key_value()?;
        let is_unwanted = entry.waiting == 0 && !self.groups.is_empty();
        (is_unwanted || env.bound(self.shelf.is_dead).when_full == WhenFull::DropOldest).then_some(*offset)
    }

    /// Whether there is room for a frame, or may be made.
    pub(super) fn may_take(&self, env: &Env, frame: &Frame) -> bool {
        let (messages, bytes) = (u64::from(frame.count), frame.cost_bytes());
        self.shelf.has_room(env, messages, bytes) || self.gives_way(env).is_some()
    }

    pub(super) fn group_named(&self, name: &str) -> Option<GroupId> {
        self.groups.values().find(|group| &*group.name == name).map(|group| group.id)
    }

    pub(super) fn add_group(&mut self, id: GroupId, name: &str, options: &ConsumerOptions) {
        let start = match options.start {
            Start::Oldest => self.shelf.oldest(),
            Start::Newest => self.shelf.next_offset,
        };
        let mut lag = 0;
        for (_, entry) in self.shelf.entries.tail_mut(start) {
            entry.waiting += 1;
            lag += u64::from(entry.count);
        }
        self.groups.insert(id, Group::new(id, name.into(), options.group_ttl, start, lag));
    }

    /// Ends a group. What only it waited for goes, unless it was the last: a topic without a group keeps
    /// what it has.
    pub(super) fn remove_group(&mut self, env: &mut Env, id: GroupId) -> Option<Group> {
        let group = self.groups.remove(&id)?;
        self.shelf.note(env, What::GroupEnded { group: Arc::clone(&group.name) });
        let begun = group.unsettled.keys().copied();
        let ahead = self.shelf.entries.range(group.cursor..).map(|(offset, _)| *offset);
        for offset in begun.chain(ahead).collect::<Vec<_>>() {
            let Some(entry) = self.shelf.entries.get_mut(&offset) else { continue };
            entry.waiting = entry.waiting.saturating_sub(1);
            if entry.waiting == 0 && !self.groups.is_empty() {
                self.shelf.take(env, offset);
            }
        }
        env.wake(Wake::Group(id));
        Some(group)
    }

    pub(super) fn advance(&mut self, env: &mut Env) {
        let mut ended = Vec::new();
        for group in self.groups.values_mut() {
            group.advance(env, &mut self.shelf);
            if group.ends_at().is_some_and(|end| end <= env.now) {
                ended.push(group.id);
            }
        }
        for id in ended {
            self.remove_group(env, id);
        }
    }

    /// Its numbers, with those of the topic of its dead letters.
    pub(super) fn stats(&self, now: Millis, dead: Option<&Shelf>) -> TopicStats {
        let ledger = &self.shelf.ledger;
        let groups: BTreeMap<_, _> =
            self.groups.values().map(|group| (group.name.to_string(), group_stats(group))).collect();
        TopicStats {
            messages: self.shelf.messages,
            subscribers: number(self.groups.values().map(Group::consumers).sum()),
            throughput_msg_per_sec: ledger.published_rate.per_second(now),
            acked_msg_per_sec: ledger.acked_rate.per_second(now),
            bytes: self.shelf.bytes,
            frames: number(self.shelf.entries.len()),
            published: ledger.published,
            acked: ledger.acked,
            redelivered: ledger.redelivered,
            dead: dead.map_or(0, |dead| dead.ledger.published),
            dropped: ledger.dropped,
            refused: ledger.refused,
            duplicates: ledger.duplicates,
            dead_letters: dead.map_or(0, |dead| dead.messages),
            dead_dropped: dead.map_or(0, |dead| dead.ledger.dropped),
            groups,
        }
    }
}

/// Keeps the number of producers that are remembered over all topics within its bound: where most are, the longest
/// silent is forgotten.
pub(super) fn forget_producers(env: &mut Env, topics: &mut [Topic]) {
    while env.producers > env.config.max_producers {
        let Some(most) = topics.iter_mut().max_by_key(|topic| topic.producers.len()) else { return };
        if most.producers.is_empty() {
            return;
        }
        most.producers.forget_one();
        env.producers -= 1;
    }
}

fn group_stats(group: &Group) -> GroupStats {
    let idle = group.unsettled.values().filter(|frame| !matches!(frame.state, UnsettledState::Leased(_)));
    GroupStats {
        members: number(group.members.len()),
        lag: group.lag,
        in_flight: group.in_flight(),
        waiting: idle.map(|frame| frame.count).sum(),
        redeliveries: group.redeliveries,
        acked: group.acked,
    }
}

fn number(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
