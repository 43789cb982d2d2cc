//! The broker beside a log: frames that land once they are durable, facts to be kept, memory that can be given back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::env::Phase;
use super::facts::{Fact, What};
use super::stored::Home;
use super::terms::{ConsumerId, DeliveryId, PublishError, Receipt, Reserved, TopicId};
use super::topic::forget_producers;
use super::{Broker, Wake};
use crate::frame::{Frame, Millis};

/// Entries of the list of cached frames that may be stale before it is tidied up.
const STALE_MAX: usize = 1_024;

impl Broker {
    /// The first half of a publish to a topic that promises to keep its frames: gives the frame an offset and
    /// room. Nobody sees it before [`Broker::land`], and none that is reserved after it before it has landed or
    /// was [given up](Broker::give_up).
    ///
    /// # Errors
    ///
    /// The frame was not taken, for the reason given. [`PublishError::Full`] is not counted.
    pub fn reserve(
        &mut self,
        now: Millis,
        topic: &str,
        frame: &Arc<Frame>,
    ) -> Result<Reserved, PublishError> {
        let (env, topic) = self.admit(now, topic, frame)?;
        topic.reserve(env, frame)
    }

    /// The second half: the frame lies at its home, as durable as its topic promises. `payload` is what stays in
    /// memory of its payload. `None` if it is not under way.
    pub fn land(&mut self, topic: TopicId, offset: u64, home: Home, payload: Bytes) -> Option<Receipt> {
        let receipt = self.topics.get_mut(topic.0)?.land(&mut self.env, offset, home, payload)?;
        forget_producers(&mut self.env, &mut self.topics);
        self.wake_drained();
        self.cached.push_back((topic, offset));
        self.keep_within_memory();
        Some(receipt)
    }

    /// A reserved frame could not be made durable: its room is free again, and here it is. Publishers that wait for room
    /// are not woken: where the log was full, the one that was refused would try again at once, over and over.
    pub fn give_up(&mut self, topic: TopicId, offset: u64) -> Option<Arc<Frame>> {
        let topic = self.topics.get_mut(topic.0)?;
        let frame = topic.shelf.pending.remove(offset).map(|frame| frame.frame);
        // What was reserved after it may be seen now.
        for group in topic.groups.keys() {
            self.env.wake(Wake::Group(*group));
        }
        self.wake_drained();
        frame
    }

    fn wake_drained(&mut self) {
        if self.env.phase != Phase::Open {
            self.env.wake(Wake::Drained);
        }
    }

    /// The receipt of a repeat of a frame that was under way and has landed with this receipt.
    pub fn repeated(&mut self, topic: TopicId, first: &Receipt) -> Receipt {
        if let Some(shelf) = self.topics.get_mut(topic.0).map(|topic| &mut topic.shelf) {
            let entry = first.offset.and_then(|offset| shelf.entries.get(&offset));
            shelf.ledger.duplicates += entry.map_or(0, |entry| u64::from(entry.count));
        }
        Receipt { offset: None, duplicate: true, ..*first }
    }

    /// Publishers of all topics may have room.
    pub fn wake_publishers(&mut self) {
        for topic in &self.topics {
            self.env.wake(Wake::Space(topic.shelf.id));
        }
    }

    /// A topic's name.
    pub fn topic_name(&self, topic: TopicId) -> Option<Arc<str>> {
        self.topics.get(topic.0).map(|topic| Arc::clone(&topic.shelf.name))
    }

    /// Bytes that frames of the topics that a log keeps count against bounds.
    pub fn kept_bytes(&self) -> u64 {
        let kept = self.topics.iter().map(|topic| &topic.shelf).filter(|shelf| shelf.is_kept);
        kept.map(|shelf| shelf.bytes).sum()
    }

    /// What must be kept of the calls since the last time this was asked, in their order.
    pub fn take_facts(&mut self) -> Vec<Fact> {
        self.env.facts.take()
    }

    /// Whether a log has to keep this consumer's group, and is not known to.
    pub fn group_is_unsafe(&self, consumer: ConsumerId) -> bool {
        let Some((topic, group)) = self.seats.get(&consumer) else { return false };
        let topic = self.topics.get(topic.0).filter(|topic| topic.shelf.is_kept);
        topic.and_then(|topic| topic.groups.get(group)).is_some_and(|group| !group.is_safe)
    }

    /// Notes this consumer's group again: it is to be on disk before the consumer is told that it has joined.
    pub fn note_group(&mut self, consumer: ConsumerId) {
        let Some((topic, group)) = self.seats.get(&consumer) else { return };
        let Some(topic) = self.topics.get(topic.0) else { return };
        if let Some(group) = topic.groups.get(group) {
            let (name, start, ttl) = (Arc::clone(&group.name), group.start, group.ttl);
            topic.shelf.note(&mut self.env, What::GroupMade { group: name, is_new: false, start, ttl });
        }
    }

    /// The log keeps this consumer's group, or cannot: then the consumer leaves, and the group with the last.
    pub fn group_is_kept(&mut self, now: Millis, consumer: ConsumerId, is_kept: bool) {
        let Some(&(topic, id)) = self.seats.get(&consumer) else { return };
        if !is_kept {
            self.leave(now, consumer);
        }
        let Some(topic) = self.topics.get_mut(topic.0) else { return };
        let Some(group) = topic.groups.get_mut(&id) else { return };
        if is_kept {
            group.is_safe = true;
        } else if !group.is_safe && group.members.is_empty() {
            topic.remove_group(&mut self.env, id);
        }
    }

    /// Gives a delivery that is not with its consumer yet its full time from now on, within the longest lease. Answers
    /// its new deadline; `None` if the lease is over.
    pub fn renew(
        &mut self,
        now: Millis,
        consumer: ConsumerId,
        id: DeliveryId,
        lease: Duration,
    ) -> Option<Millis> {
        self.advance(now);
        let (env, shelf, group) = self.seat(consumer)?;
        group.renew(env, shelf, id, lease)
    }

    /// Takes deliveries back that cannot be given away for now: they come again after `wait`, uncounted.
    pub fn postpone(&mut self, now: Millis, consumer: ConsumerId, ids: &[DeliveryId], wait: Duration) {
        self.advance(now);
        let Some((env, shelf, group)) = self.seat(consumer) else { return };
        for id in ids {
            group.postpone(env, shelf, *id, wait);
        }
    }

    /// Whether a publish of this frame may find room, or an answer other than that there is none.
    pub fn may_take(&self, topic: TopicId, frame: &Frame) -> bool {
        let topic = self.topics.get(topic.0);
        self.env.phase != Phase::Open || topic.is_none_or(|topic| topic.may_take(&self.env, frame))
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.env.dying == 0 && self.topics.iter().all(|topic| topic.shelf.pending.first().is_none())
    }

    /// Bytes of memory taken by frames that are on disk too.
    pub fn cached_bytes(&self) -> u64 {
        self.env.cached.bytes
    }

    /// Gives back the memory of the oldest frames that are on disk too, until the rest is within the bound.
    pub(super) fn keep_within_memory(&mut self) {
        while self.env.cached.bytes > self.env.config.memory_max {
            let Some((topic, offset)) = self.cached.pop_front() else { break };
            let shelf = self.topics.get_mut(topic.0).map(|topic| &mut topic.shelf);
            if let Some(entry) = shelf.and_then(|shelf| shelf.entries.get_mut(&offset)) {
                entry.stored.let_go(&mut self.env);
            }
        }
        if self.cached.len() > 2 * self.env.cached.frames + STALE_MAX {
            let topics = &self.topics;
            let is_cached = |topic: TopicId, offset: u64| {
                let entry = topics.get(topic.0).and_then(|topic| topic.shelf.entries.get(&offset));
                entry.is_some_and(|entry| entry.stored.is_cached())
            };
            self.cached.retain(|(topic, offset)| is_cached(*topic, *offset));
        }
    }
}
