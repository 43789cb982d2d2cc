//! The broker beside a log: frames that land once they are durable, facts to be kept, memory that can be given back.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_log::Place;

use super::entries::HeldFrame;
use super::env::Phase;
use super::facts::{Fact, TopicChange};
use super::terms::{ConsumerId, DeliveryId, GroupId, Receipt, TopicId};
use super::topic::forget_producers;
use super::{Broker, Wake};
use crate::frame::{Frame, Millis};

/// Ranges of the list of cached frames that may be stale before it is tidied up.
const STALE_MAX: usize = 1_024;

impl Broker {
    /// The second half of a publish: the log has the frame in its place, as durable as its topic promises. `None` if it is
    /// not under way.
    pub fn land(&mut self, topic: TopicId, offset: u64, place: Place) -> Option<Receipt> {
        let receipt = self.topics.get_mut(topic.0)?.land(&mut self.env, offset, Some(place))?;
        forget_producers(&mut self.env, &mut self.topics);
        self.wake_drained();
        match self.cached.back_mut() {
            Some((last, frames)) if *last == topic && frames.end == offset => frames.end += 1,
            _ => self.cached.push_back((topic, offset..offset + 1)),
        }
        self.keep_within_memory();
        Some(receipt)
    }

    /// A reserved frame could not be made durable: its room is free again, and here it is. Publishers that wait for room
    /// are not woken: where the log was full, the one that was refused would try again at once, over and over.
    pub fn give_up(&mut self, topic: TopicId, offset: u64) -> Option<Arc<Frame>> {
        let topic = self.topics.get_mut(topic.0)?;
        let frame = topic.shelf.pending.remove(offset).map(|frame| frame.frame);
        // What was reserved after it may be seen now.
        for group in topic.groups.values() {
            self.env.wake(Wake::Group(group.id));
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
            let entry = first.offset.and_then(|offset| shelf.entries.get(offset));
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

    /// Name of a topic; none if there is no such topic.
    pub fn topic_name(&self, topic: TopicId) -> Option<Arc<str>> {
        self.topics.get(topic.0).map(|topic| Arc::clone(&topic.shelf.name))
    }

    /// Bytes that the records of held frames take in the log, about.
    pub fn kept_bytes(&self) -> u64 {
        self.env.kept_bytes
    }

    /// What must be kept of the calls since the last time this was asked, in their order.
    pub fn take_facts(&mut self) -> Vec<Fact> {
        self.env.facts.take()
    }

    /// Whether a log has to keep this consumer's group, and is not known to.
    pub fn is_unsafe(&self, consumer: ConsumerId) -> bool {
        let Some((topic, group)) = self.seats.get(&consumer) else { return false };
        let topic = self.topics.get(topic.0).filter(|topic| topic.shelf.is_kept);
        topic.and_then(|topic| topic.groups.get(group)).is_some_and(|group| !group.is_safe)
    }

    /// The log keeps a group that was made, or cannot: then it has never been.
    pub fn group_is_kept(&mut self, id: GroupId, is_kept: bool) {
        for topic in &mut self.topics {
            let Some(group) = topic.groups.values_mut().find(|group| group.id == id) else { continue };
            if is_kept {
                group.is_safe = true;
                return;
            }
            let group = Arc::clone(&group.name);
            let seats = (topic.shelf.id, Arc::clone(&group));
            self.seats.retain(|_, seat| *seat != seats);
            // It has never been: what it wanted is there as it was before.
            return topic.change(&mut self.env, TopicChange::GroupEnded { group, end: 0 });
        }
    }

    /// The frames that lie in a segment of the log.
    pub fn frames_in(&self, segment: u64) -> Vec<(TopicId, u64, Place)> {
        let shelves = self.topics.iter().map(|topic| &topic.shelf);
        let entries =
            shelves.flat_map(|shelf| shelf.entries.iter().map(|(offset, entry)| (shelf.id, offset, entry)));
        let inside = entries.filter(|(.., entry)| entry.needed_place().map(Place::segment) == Some(segment));
        inside.filter_map(|(topic, offset, entry)| Some((topic, offset, entry.place?))).collect()
    }

    /// Whether a frame is held and lies there.
    pub fn lies_at(&self, topic: TopicId, offset: u64, place: Place) -> bool {
        let entry = self.topics.get(topic.0).and_then(|topic| topic.shelf.entries.get(offset));
        entry.is_some_and(|entry| entry.place == Some(place))
    }

    /// Whether the record of a held frame is at `place`. A frame that was moved after it was lent lies elsewhere. Looks at every
    /// frame, so it is for places that could not be read.
    pub fn holds_at(&self, place: Place) -> bool {
        let mut entries = self.topics.iter().flat_map(|topic| topic.shelf.entries.iter());
        entries.any(|(_, entry)| entry.place == Some(place))
    }

    /// A frame's record has been written again elsewhere, or has been found to be damaged: the segment that it was in may
    /// go, as far as it is concerned.
    pub fn moved(&mut self, topic: TopicId, offset: u64, from: Place, to: Option<Place>) {
        if let Some(topic) = self.topics.get_mut(topic.0) {
            topic.shelf.moved(&mut self.env, offset, from, to);
        }
    }

    /// The oldest segment of the log in which a frame lies that is held.
    pub fn oldest_segment(&self) -> Option<u64> {
        self.env.in_segments.keys().next().copied()
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
        let (env, topic, group) = self.seat(consumer)?;
        topic.groups.get_mut(&group)?.extend(env, &topic.shelf, id, lease).ok().flatten()
    }

    /// Takes deliveries back that cannot be given away for now: they come again after `wait`, uncounted.
    pub fn postpone(&mut self, now: Millis, consumer: ConsumerId, ids: &[DeliveryId], wait: Duration) {
        self.advance(now);
        let Some((env, topic, group)) = self.seat(consumer) else { return };
        let Some(group) = topic.groups.get_mut(&group) else { return };
        for id in ids {
            group.postpone(env, &topic.shelf, *id, wait);
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
        self.env.cached_bytes
    }

    /// Gives back the memory of the oldest frames that are on disk too, until the rest is within the bound.
    pub(super) fn keep_within_memory(&mut self) {
        while self.env.cached_bytes > self.env.config.memory_max {
            let Some((topic, frames)) = self.cached.front_mut() else { break };
            match (frames.next(), self.topics.get_mut(topic.0)) {
                (Some(offset), Some(topic)) => topic.shelf.let_go(&mut self.env, offset),
                _ => drop(self.cached.pop_front()),
            }
        }
        if self.cached.len() > 2 * self.env.cached_frames + STALE_MAX {
            let topics = &self.topics;
            let is_cached = |topic: TopicId, offset: u64| {
                let entry = topics.get(topic.0).and_then(|topic| topic.shelf.entries.get(offset));
                entry.as_ref().is_some_and(HeldFrame::is_cached)
            };
            self.cached.retain(|(topic, frames)| frames.clone().any(|offset| is_cached(*topic, offset)));
        }
    }
}
