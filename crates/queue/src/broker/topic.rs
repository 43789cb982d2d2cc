//! One topic: its shelf, its groups, and the producers it knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuvitals_log::Place;

use super::entries::FrameEntry;
use super::env::Env;
use super::facts::TopicChange;
use super::group::{Group, NeverDelivered, UnsettledState};
use super::producers::{Producers, StampVerdict};
use super::shelf::{Shelf, UnderWay};
use super::terms::{
    ConsumerOptions, DeliveryId, FrameDurability, GroupId, PublishError, Receipt, Reserved, Start, TopicId,
    Wake,
};
use crate::config::WhenFull;
use crate::frame::{Frame, Millis};
use crate::stats::{GroupStats, TopicStats};

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) shelf: Shelf,
    /// Those who read it, by name.
    pub(super) groups: BTreeMap<Arc<str>, Group>,
    pub(super) producers: Producers,
}

impl Topic {
    pub(super) fn new(id: TopicId, name: Arc<str>, env: &Env) -> Self {
        Self { shelf: Shelf::new(id, name, env), groups: BTreeMap::new(), producers: Producers::default() }
    }

    /// Gives a frame an offset and room; takes it in, if the topic promises no more than memory.
    pub(super) fn reserve(&mut self, env: &mut Env, frame: &Arc<Frame>) -> Result<Reserved, PublishError> {
        let topic = self.shelf.id;
        if let Some(offset) = frame.producer.as_ref().and_then(|stamp| self.shelf.pending.stamped(stamp)) {
            return Ok(Reserved::UnderWay { topic, offset });
        }
        if self.is_repeat(frame)? {
            return Ok(Reserved::Taken(self.repeated(frame)));
        }
        self.need_room(env, frame)?;
        let offset = self.shelf.take_offset();
        let (at, durability) = (env.now, self.shelf.durability);
        let taken = UnderWay { frame: Arc::clone(frame), at };
        if durability == FrameDurability::Memory {
            return Ok(Reserved::Taken(self.put(env, offset, taken, None)));
        }
        self.shelf.pending.insert(offset, taken);
        Ok(Reserved::New { topic, offset, at, durability })
    }

    /// A reserved frame is durable: from now on it is seen.
    pub(super) fn land(&mut self, env: &mut Env, offset: u64, place: Option<Place>) -> Option<Receipt> {
        let taken = self.shelf.pending.remove(offset)?;
        Some(self.put(env, offset, taken, place))
    }

    fn repeated(&mut self, frame: &Frame) -> Receipt {
        self.shelf.ledger.duplicates += u64::from(frame.count);
        Receipt { offset: None, durability: self.shelf.durability, duplicate: true }
    }

    fn is_repeat(&self, frame: &Frame) -> Result<bool, PublishError> {
        let Some(stamp) = &frame.producer else { return Ok(false) };
        match self.producers.known(stamp) {
            StampVerdict::New => Ok(false),
            StampVerdict::Repeat => Ok(true),
            StampVerdict::TooOld { highest } => {
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
            Err(PublishError::full(Arc::clone(&self.shelf.name), None))
        }
    }

    fn put(&mut self, env: &mut Env, offset: u64, taken: UnderWay, place: Option<Place>) -> Receipt {
        let UnderWay { frame, at } = taken;
        let messages = u64::from(frame.count);
        self.shelf.ledger.published += messages;
        self.shelf.ledger.published_rate.add(env.now, messages);
        let stamp = frame.producer.clone();
        let entry = FrameEntry {
            place,
            count: frame.count,
            cost: frame.cost_bytes(),
            published_at: at,
            frame: Some(frame),
        };
        self.hold(env, offset, entry, stamp.as_ref().map(|stamp| (&*stamp.id, stamp.sequence)));
        Receipt { offset: Some(offset), durability: self.shelf.durability, duplicate: false }
    }

    /// A frame was published, now or in an earlier life of the queue.
    pub(super) fn hold(&mut self, env: &mut Env, offset: u64, entry: FrameEntry, stamp: Option<(&str, u64)>) {
        let before = self.producers.len();
        let known = stamp.map(|(id, sequence)| self.producers.remember(id, sequence, entry.published_at));
        env.producers += self.producers.len() - before;
        for group in self.groups.values_mut().filter(|group| group.wants(offset)) {
            group.lag += u64::from(entry.count);
            env.wake(Wake::Group(group.id));
        }
        self.shelf.put(env, offset, entry, known);
    }

    /// Applies a transition, and notes it where a log keeps the topic.
    pub(super) fn change(&mut self, env: &mut Env, what: TopicChange) {
        let made = self.apply(env, &what);
        if self.shelf.is_kept {
            env.facts.note(&self.shelf.name, what, made);
        }
    }

    /// Applies a transition, one that happens now or one that a log has kept. What it says of frames that are not there is
    /// without effect. Answers the group that it made.
    pub(super) fn apply(&mut self, env: &mut Env, what: &TopicChange) -> Option<GroupId> {
        match what {
            TopicChange::GroupMade { group, life, start, ttl } => {
                let id = env.take_group_id();
                let mut made = Group::new(id, Arc::clone(group), *life, *start, *ttl);
                made.lag = self.shelf.messages_from(*start);
                // One of that name is there if the log has lost that it ended: nothing says what went then.
                self.groups.insert(Arc::clone(group), made);
                self.shelf.groups_made = self.shelf.groups_made.max(life.saturating_add(1));
                return Some(id);
            }
            TopicChange::GroupEnded { group, end } => self.end_group(env, group, *end),
            TopicChange::Settled { group: name, frames } => {
                if !self.groups.contains_key(name) {
                    // A group whose making was lost with damage wants everything that was found: what it had settled, and
                    // what others have, comes again.
                    let group = Group::new(env.take_group_id(), Arc::clone(name), 0, 0, None);
                    self.groups.insert(Arc::clone(name), group);
                    self.shelf.hold_all_from(0);
                }
                let group = self.groups.get_mut(name)?;
                group.pass(env, &self.shelf, frames.start, frames.end);
                while let Some((offset, _)) = group.unsettled.range(frames.clone()).next() {
                    let offset = *offset;
                    group.settle(env, offset);
                }
                let mut rest = frames.clone();
                while let Some(offset) = self.shelf.held.first_in(&rest) {
                    self.release(env, offset);
                    rest.start = offset + 1;
                }
            }
            TopicChange::Dropped { offset } => {
                let count = self.shelf.take(env, *offset).map_or(0, |entry| u64::from(entry.count));
                for group in self.groups.values_mut() {
                    group.forget(env, *offset, count);
                }
            }
        }
        None
    }

    /// A group is done with a frame, which goes if no other wants it.
    fn release(&mut self, env: &mut Env, offset: u64) {
        if !self.is_wanted(offset) {
            self.shelf.take(env, offset);
        }
    }

    fn is_wanted(&self, offset: u64) -> bool {
        self.groups.values().any(|group| group.wants(offset))
    }

    /// Ends a group. What only it waited for before `end` goes, unless it was the last: a topic without a group keeps what
    /// it has.
    fn end_group(&mut self, env: &mut Env, name: &str, end: u64) {
        let Some(ended) = self.groups.remove(name) else { return };
        env.wake(Wake::Group(ended.id));
        if self.groups.is_empty() {
            return;
        }
        for (offset, _) in ended.unsettled.range(..end) {
            self.release(env, *offset);
        }
        let mut rest = ended.cursor..end;
        while let Some(offset) = self.shelf.held.first_in(&rest) {
            self.release(env, offset);
            rest.start = offset + 1;
        }
    }

    /// Settles a delivery; answers how many messages were not settled before.
    pub(super) fn ack(
        &mut self,
        env: &mut Env,
        name: &Arc<str>,
        id: DeliveryId,
    ) -> Result<u64, NeverDelivered> {
        let Some(group) = self.groups.get_mut(name) else { return Err(NeverDelivered) };
        let messages = group.open_messages(&self.shelf, id)?;
        if messages > 0 {
            group.acked += messages;
            self.shelf.ledger.acked += messages;
            self.shelf.ledger.acked_rate.add(env.now, messages);
            self.settle(env, name, id.offset);
        }
        Ok(messages)
    }

    /// A group is done with a frame that it was given.
    pub(super) fn settle(&mut self, env: &mut Env, group: &Arc<str>, offset: u64) {
        self.change(env, TopicChange::Settled { group: Arc::clone(group), frames: offset..offset + 1 });
    }

    /// Removes frames from the old end until so much fits, as far as the policy allows. Frames from a time
    /// without groups, that none of the groups of now waits for, give way under any policy.
    fn make_room(&mut self, env: &mut Env, messages: u64, bytes: u64) {
        if !self.shelf.pending_leave_room(env, messages, bytes) {
            return;
        }
        while !self.shelf.has_room(env, messages, bytes) {
            let Some(offset) = self.gives_way(env) else { return };
            let count = self.shelf.entries.get(offset).map_or(0, |entry| u64::from(entry.count));
            self.shelf.ledger.dropped += count;
            self.change(env, TopicChange::Dropped { offset });
        }
    }

    /// The frame that goes next where room is made, if one may.
    fn gives_way(&self, env: &Env) -> Option<u64> {
        let (offset, _) = self.shelf.entries.iter().next()?;
        let may_go = env.bound(self.shelf.is_dead).when_full == WhenFull::DropOldest;
        let is_unwanted = || !self.groups.is_empty() && !self.is_wanted(offset);
        (may_go || is_unwanted()).then_some(offset)
    }

    /// Whether there is room for a frame, or may be made.
    pub(super) fn may_take(&self, env: &Env, frame: &Frame) -> bool {
        let (messages, bytes) = (u64::from(frame.count), frame.cost_bytes());
        self.shelf.has_room(env, messages, bytes) || self.gives_way(env).is_some()
    }

    /// Ends a group, and notes that it did.
    pub(super) fn end(&mut self, env: &mut Env, group: Arc<str>) {
        self.change(env, TopicChange::GroupEnded { group, end: self.shelf.end() });
    }

    /// Makes a group that begins where its options say, and notes that.
    pub(super) fn make_group(&mut self, env: &mut Env, name: &str, options: &ConsumerOptions) {
        let start = match options.start {
            Start::Oldest => self.shelf.oldest(),
            Start::Newest => self.shelf.next_offset,
        };
        let life = self.shelf.groups_made;
        self.change(env, TopicChange::GroupMade { group: name.into(), life, start, ttl: options.group_ttl });
    }

    pub(super) fn advance(&mut self, env: &mut Env) {
        let mut ended = Vec::new();
        for group in self.groups.values_mut() {
            group.advance(env, &self.shelf);
            if group.ends_at().is_some_and(|end| end <= env.now) {
                ended.push(Arc::clone(&group.name));
            }
        }
        for group in ended {
            self.end(env, group);
        }
    }

    /// Its numbers, with those of the topic of its dead letters.
    pub(super) fn stats(&self, now: Millis, dead: Option<&Shelf>) -> TopicStats {
        let ledger = &self.shelf.ledger;
        let groups: BTreeMap<_, _> = self
            .groups
            .values()
            .map(|group| (group.name.to_string(), group_stats(group, &self.shelf, now)))
            .collect();
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

fn group_stats(group: &Group, shelf: &Shelf, now: Millis) -> GroupStats {
    let idle = group.unsettled.values().filter(|frame| !matches!(frame.state, UnsettledState::Leased(_)));
    GroupStats {
        members: number(group.members.len()),
        lag: group.lag,
        in_flight: group.in_flight(),
        waiting: idle.map(|frame| frame.count).sum(),
        redeliveries: group.redeliveries,
        acked: group.acked,
        oldest_age_s: group.oldest(shelf).map(|at| now.0.saturating_sub(at.0) / 1_000),
    }
}

fn number(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
