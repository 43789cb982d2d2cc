//! The broker: a state machine without I/O.
//!
//! Every call takes the time, changes the state, and returns what came of it. Whoever may now go on is
//! collected as [`Wake`]s; when to call [`Broker::advance`] again is [`Broker::next_deadline`]. Same calls,
//! same times, same seed: same results.
//!
//! # What is promised
//!
//! - A frame is held until every group that wants it has settled it: by its acknowledgement, or as a
//!   dead letter. A topic without groups holds frames up to its bound.
//! - A lease runs from the delivery. At its deadline the delivery fails and the frame is delivered again after a backoff
//!   (exponential, full jitter), to any member of the group, at most `max_retries` times. Then it is a dead
//!   letter, with the reason.
//! - A frame that a member refuses or does not settle in time counts an attempt. Frames of a member that dies count none,
//!   because a lost connection says nothing about them: they come back after the backoff, and are dead letters
//!   after 100 lost members. What a member gives back on purpose ([`NackKind::Release`], [`Broker::leave`], the
//!   drain) counts as neither and comes back at once.
//! - An acknowledgement of a delivery that is over counts if nobody settled the frame since. Repeating one is
//!   fine. One for something that was never delivered is an error, and the rest of the call is applied.
//! - A dead letter is a frame of the topic `T.dead`, stored there before it is settled in `T`. That topic drops its oldest
//!   at its own bound and has no groups.
//! - Redeliveries do not block what is new: they take at most half of a consumer's credits, and wait outside
//!   the order.
//!
//! # Limits
//!
//! Topics, groups, producers, messages and bytes are bounded by [`QueueConfig`]; what a group keeps is
//! bounded by what its topic holds.

mod blocks;
mod dead;
mod durable;
mod env;
mod facts;
mod grant;
mod group;
mod image;
mod ledger;
mod producers;
mod restore;
mod shelf;
mod snapshot;
mod stored;
mod terms;
mod topic;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use dead::GivenUp;
pub use facts::{Fact, What};
pub use image::{Event, GroupImage, HeldImage, Image, TopicImage};
pub use producers::{Producers, Seen};
pub use restore::{Bodies, Body, Restored};
pub use snapshot::Snapshot;
pub use stored::{Home, Lent, Pin};
pub use terms::{
    AdminError, ConsumerId, ConsumerOptions, DeadLetter, DeadSelection, Delivery, DeliveryId, Durability,
    Failure, GroupId, Nack, NackKind, PublishError, Receipt, ReceiveError, Replayed, Reserved, SettleError,
    Start, SubscribeError, TopicId, Wake,
};

use self::env::{Env, Phase};
use self::group::{Group, NeverDelivered};
use self::shelf::Shelf;
use self::topic::Topic;
use crate::config::QueueConfig;
use crate::frame::{Frame, Millis};
use crate::name::{self, NameError, PRODUCER_LEN_MAX};
use crate::stats::{Health, QueueStats, TopicStats};
use crate::trouble::{self, Cause, Trouble};

/// Why there is no such topic and none is created.
enum TopicRefused {
    Name(NameError),
    TooMany { limit: usize },
}

/// Topics, groups, leases, redelivery, dead letters; see the module's text.
#[derive(Debug)]
pub struct Broker {
    env: Env,
    started_at: Millis,
    topics: Vec<Topic>,
    by_name: HashMap<Arc<str>, TopicId, foldhash::fast::RandomState>,
    /// Frames that are in memory and on disk, oldest first; some are gone since.
    cached: VecDeque<(TopicId, u64)>,
    seats: BTreeMap<ConsumerId, (TopicId, GroupId)>,
    next_consumer: u64,
    next_group: u64,
}

impl Broker {
    /// A broker without topics.
    pub fn new(config: QueueConfig, now: Millis) -> Self {
        Self {
            env: Env::new(config, now, false),
            started_at: now,
            topics: Vec::new(),
            by_name: HashMap::default(),
            cached: VecDeque::new(),
            seats: BTreeMap::new(),
            next_consumer: 0,
            next_group: 0,
        }
    }

    /// The settings.
    pub fn config(&self) -> &QueueConfig {
        &self.env.config
    }

    /// Takes a frame into a topic, which is created if it does not exist. A refusal at the bound is counted.
    ///
    /// # Errors
    ///
    /// The frame was not taken, for the reason given.
    pub fn publish(&mut self, now: Millis, topic: &str, frame: &Arc<Frame>) -> Result<Receipt, PublishError> {
        let receipt = self.offer(now, topic, frame);
        if matches!(receipt, Err(PublishError::Full { .. })) {
            self.count_refused(topic, frame);
        }
        receipt
    }

    /// Counts a frame that was refused at the bound.
    pub fn count_refused(&mut self, topic: &str, frame: &Frame) {
        if let Some(topic) = self.by_name.get(topic).and_then(|id| self.topics.get_mut(id.0)) {
            topic.shelf.ledger.refused += u64::from(frame.count);
            topic.shelf.ledger.refused_lately.note(self.env.now, frame.count.into());
        }
    }

    /// Like [`Broker::publish`], for a publisher that waits for room: [`PublishError::Full`] is not counted,
    /// and [`Wake::Space`] says when to try again.
    ///
    /// # Errors
    ///
    /// The frame was not taken, for the reason given.
    pub fn offer(&mut self, now: Millis, topic: &str, frame: &Arc<Frame>) -> Result<Receipt, PublishError> {
        let (env, topic) = self.admit(now, topic, frame)?;
        let receipt = topic.publish(env, frame);
        topic::forget_producers(&mut self.env, &mut self.topics);
        receipt
    }

    /// The topic for a frame that may be taken as far as it alone can tell.
    fn admit(
        &mut self,
        now: Millis,
        topic: &str,
        frame: &Frame,
    ) -> Result<(&mut Env, &mut Topic), PublishError> {
        self.advance(now);
        let is_dead = name::origin_of(topic).is_some();
        // What consumers give up on while the queue ends is kept too.
        if self.env.phase != Phase::Open && !is_dead {
            return Err(PublishError::Closed);
        }
        if is_dead && frame.dead.is_none() {
            return Err(PublishError::Topic(NameError::Reserved));
        }
        if frame.count == 0 {
            return Err(PublishError::NoMessages);
        }
        if let Some(stamp) = &frame.producer
            && !(1..=PRODUCER_LEN_MAX).contains(&stamp.id.len())
        {
            return Err(PublishError::ProducerId { len: stamp.id.len() });
        }
        let bytes = frame.cost_bytes();
        let bound = self.env.bound(is_dead);
        if u64::from(frame.count) > bound.messages || bytes > bound.bytes {
            return Err(PublishError::TooLarge { messages: frame.count, bytes });
        }
        let (env, _, topic) = self.open(topic).map_err(|refused| match refused {
            TopicRefused::Name(name) => PublishError::Topic(name),
            TopicRefused::TooMany { limit } => PublishError::TooManyTopics { limit },
        })?;
        Ok((env, topic))
    }

    /// Makes a new member of a group; topic and group are created if they do not exist.
    ///
    /// # Errors
    ///
    /// The name is refused, a limit is reached, or the queue shuts down.
    pub fn subscribe(
        &mut self,
        now: Millis,
        topic: &str,
        group: &str,
        options: &ConsumerOptions,
    ) -> Result<ConsumerId, SubscribeError> {
        self.advance(now);
        if self.env.phase != Phase::Open {
            return Err(SubscribeError::Closed);
        }
        name::check_topic(topic).map_err(SubscribeError::Topic)?;
        name::check_group(group).map_err(SubscribeError::Group)?;
        let consumer = ConsumerId(self.next_consumer);
        let (env, next_group, topic) = self.open(topic).map_err(|refused| match refused {
            TopicRefused::Name(name) => SubscribeError::Topic(name),
            TopicRefused::TooMany { limit } => SubscribeError::TooManyTopics { limit },
        })?;
        let existing = topic.group_named(group);
        let limit = env.config.max_groups;
        if existing.is_none() && topic.groups.len() >= limit {
            return Err(SubscribeError::TooManyGroups { limit });
        }
        let group_id = existing.unwrap_or_else(|| {
            let id = GroupId(*next_group);
            *next_group += 1;
            topic.add_group(id, group, options);
            id
        });
        let topic_id = topic.shelf.id;
        if let Some(group) = topic.groups.get_mut(&group_id) {
            group.join(env, consumer, options);
            if !group.is_safe {
                let (name, start, ttl) = (Arc::clone(&group.name), group.start, group.ttl);
                topic
                    .shelf
                    .note(env, What::GroupMade { group: name, is_new: existing.is_none(), start, ttl });
            }
        }
        self.next_consumer += 1;
        self.seats.insert(consumer, (topic_id, group_id));
        Ok(consumer)
    }

    /// Where a consumer sits: for waiting on [`Wake::Group`].
    pub fn group_of(&self, consumer: ConsumerId) -> Option<GroupId> {
        self.seats.get(&consumer).map(|(_, group)| *group)
    }

    /// A topic by name: for waiting on [`Wake::Space`].
    pub fn topic_named(&self, topic: &str) -> Option<TopicId> {
        self.by_name.get(topic).copied()
    }

    /// Leases to a consumer as many frames as its credits allow; maybe none. For a broker whose frames are all
    /// in memory; one with a log [lends](Broker::lend).
    ///
    /// # Errors
    ///
    /// The consumer has left, or the queue shuts down and has nothing more for its group.
    pub fn receive(&mut self, now: Millis, consumer: ConsumerId) -> Result<Vec<Delivery>, ReceiveError> {
        Ok(self.lend(now, consumer)?.into_iter().map(|lent| lent.item).collect())
    }

    /// Leases to a consumer as many frames as its credits allow; maybe none. What is not in memory is to be read
    /// before it is given away.
    ///
    /// # Errors
    ///
    /// The consumer has left, or the queue shuts down and has nothing more for its group.
    pub fn lend(&mut self, now: Millis, consumer: ConsumerId) -> Result<Vec<Lent<Delivery>>, ReceiveError> {
        self.advance(now);
        let phase = self.env.phase;
        let (env, shelf, group) = self.seat(consumer).ok_or(ReceiveError::NotSubscribed)?;
        let over = match phase {
            Phase::Open => false,
            Phase::Sealed => group.lag == 0,
            Phase::Stopped => true,
        };
        if over { Err(ReceiveError::Closed) } else { Ok(group.grant(env, shelf, consumer)) }
    }

    /// Acknowledges deliveries. Answers how many messages were not settled before.
    ///
    /// # Errors
    ///
    /// A delivery that the group never saw (the others are acknowledged), or the consumer has left.
    pub fn ack(&mut self, now: Millis, consumer: ConsumerId, ids: &[DeliveryId]) -> Result<u64, SettleError> {
        self.settle(now, consumer, ids.iter().map(|id| (*id, ())), |env, shelf, group, id, ()| {
            group.ack(env, shelf, id)
        })
    }

    /// Refuses deliveries. Answers how many messages that moved: of a lease that is over,
    /// none.
    ///
    /// # Errors
    ///
    /// A delivery that the group never saw (the others are refused), or the consumer has left.
    pub fn nack(&mut self, now: Millis, consumer: ConsumerId, nacks: &[Nack]) -> Result<u64, SettleError> {
        self.settle(now, consumer, nacks.iter().map(|nack| (nack.id, nack)), |env, shelf, group, _, nack| {
            group.nack(env, shelf, nack)
        })
    }

    /// Moves deadlines to `by` from now, at most to the longest lease.
    ///
    /// # Errors
    ///
    /// A delivery that the group never saw, or whose lease is over (the others are extended), or the
    /// consumer has left.
    pub fn extend(
        &mut self,
        now: Millis,
        consumer: ConsumerId,
        ids: &[DeliveryId],
        by: Duration,
    ) -> Result<(), SettleError> {
        let mut over = None;
        self.settle(now, consumer, ids.iter().map(|id| (*id, ())), |env, shelf, group, id, ()| {
            if !group.extend(env, shelf, id, by)? {
                let (_, more) = over.get_or_insert((id, 0));
                *more += 1;
            }
            Ok(0)
        })?;
        over.map_or(Ok(()), |(id, count)| Err(SettleError::LeaseOver { id, more: count - 1 }))
    }

    /// A consumer leaves in order: what it has not settled goes to others at once, uncounted.
    pub fn leave(&mut self, now: Millis, consumer: ConsumerId) {
        self.unseat(now, consumer, &Failure::Released);
    }

    /// A consumer vanished: what it has not settled is delivered again after the backoff, and does not count as tried.
    pub fn kill(&mut self, now: Millis, consumer: ConsumerId) {
        self.unseat(now, consumer, &Failure::ConsumerGone);
    }

    /// Ends a group and its members. What only it waited for goes, unless it was the topic's last.
    ///
    /// # Errors
    ///
    /// No such topic or group.
    pub fn remove_group(&mut self, now: Millis, topic: &str, group: &str) -> Result<(), AdminError> {
        self.advance(now);
        let id = *self.by_name.get(topic).ok_or(AdminError::UnknownTopic)?;
        let topic = self.topics.get_mut(id.0).ok_or(AdminError::UnknownTopic)?;
        let group = topic.group_named(group).ok_or(AdminError::UnknownGroup)?;
        topic.remove_group(&mut self.env, group);
        self.seats.retain(|_, (_, seated)| *seated != group);
        if self.env.phase != Phase::Open {
            self.env.wake(Wake::Drained);
        }
        Ok(())
    }

    /// Lets time pass: leases expire, backoffs end, abandoned groups go. Every other call does it too.
    /// Time does not go back: an earlier `now` counts as the latest one seen.
    pub fn advance(&mut self, now: Millis) {
        self.env.now = self.env.now.max(now);
        if self.env.earliest.is_none_or(|earliest| earliest > self.env.now) {
            return;
        }
        self.env.earliest = None;
        for topic in &mut self.topics {
            topic.advance(&mut self.env);
        }
        self.publish_dead_in_memory();
    }

    /// When [`Broker::advance`] must be called at the latest. Nothing needs to happen before.
    pub fn next_deadline(&self) -> Option<Millis> {
        self.env.earliest
    }

    /// Whoever may go on since the last call.
    pub fn take_wakes(&mut self) -> Vec<Wake> {
        std::mem::take(&mut self.env.wakes)
    }

    /// Takes no more frames and no more consumers; goes on delivering what is held.
    pub fn seal(&mut self, now: Millis) {
        self.enter(now, Phase::Sealed);
    }

    /// Delivers nothing more; waits for acknowledgements.
    pub fn stop(&mut self, now: Millis) {
        self.enter(now, Phase::Stopped);
    }

    /// Takes every lease back, uncounted. Answers how many messages those were.
    pub fn recall(&mut self, now: Millis) -> u64 {
        self.advance(now);
        let mut messages = 0;
        for topic in &mut self.topics {
            for group in topic.groups.values_mut() {
                messages += group.in_flight();
                group.recall(&mut self.env, &mut topic.shelf);
            }
        }
        messages
    }

    /// Whether the drain has got where it wants to: sealed, every group with members has settled everything
    /// (the others cannot); stopped, no lease is out.
    pub fn is_drained(&self) -> bool {
        if !self.is_idle() {
            return false;
        }
        let mut groups = self.topics.iter().flat_map(|topic| topic.groups.values());
        match self.env.phase {
            Phase::Open => false,
            Phase::Sealed => groups.all(|group| group.lag == 0 || group.members.is_empty()),
            Phase::Stopped => groups.all(|group| group.in_flight() == 0),
        }
    }

    /// Names of all topics, sorted.
    pub fn topics(&self) -> Vec<Arc<str>> {
        let mut names: Vec<_> = self.topics.iter().map(|topic| Arc::clone(&topic.shelf.name)).collect();
        names.sort_unstable();
        names
    }

    /// Numbers of one topic.
    ///
    /// # Errors
    ///
    /// No such topic.
    pub fn topic_stats(&mut self, now: Millis, topic: &str) -> Result<TopicStats, AdminError> {
        self.advance(now);
        Ok(self.topic(topic)?.stats(self.env.now, self.dead_shelf(topic)))
    }

    /// Numbers of everything.
    pub fn stats(&mut self, now: Millis) -> QueueStats {
        self.advance(now);
        let now = self.env.now;
        QueueStats {
            topics: self
                .topics
                .iter()
                .map(|topic| {
                    let name = topic.shelf.name.to_string();
                    let stats = topic.stats(now, self.dead_shelf(&name));
                    (name, stats)
                })
                .collect(),
            total_processed: self.topics.iter().map(|topic| topic.shelf.ledger.acked).sum(),
            uptime_seconds: now.since(self.started_at).as_secs(),
        }
    }

    /// How the queue is: degraded while a topic refuses publishers at its bound or has dead letters, unhealthy once it
    /// shuts down.
    pub fn health(&mut self, now: Millis) -> Health {
        trouble::health(self.troubles(now))
    }

    /// What is not well: topics that refuse publishers at their bound, or have dead letters; that the queue shuts down.
    pub(crate) fn troubles(&mut self, now: Millis) -> Vec<Trouble> {
        self.advance(now);
        let shelves = self.topics.iter().map(|topic| &topic.shelf);
        let mut troubles: Vec<_> = shelves.flat_map(|shelf| shelf.troubles(self.env.now)).collect();
        if self.env.phase != Phase::Open {
            troubles.push(Trouble::new(Cause::Closing, "queue is shutting down".to_owned()));
        }
        troubles
    }

    fn enter(&mut self, now: Millis, phase: Phase) {
        self.advance(now);
        if self.env.phase == Phase::Stopped {
            return;
        }
        self.env.phase = phase;
        for topic in &self.topics {
            self.env.wake(Wake::Space(topic.shelf.id));
            for id in topic.groups.keys() {
                self.env.wake(Wake::Group(*id));
            }
        }
        self.env.wake(Wake::Drained);
    }

    /// The topic of that name, created if it does not exist; beside it what its changes need.
    fn open(&mut self, topic: &str) -> Result<(&mut Env, &mut u64, &mut Topic), TopicRefused> {
        let id = match self.by_name.get(topic) {
            Some(id) => *id,
            None => self.make(topic)?,
        };
        let limit = self.env.config.max_topics;
        let topic = self.topics.get_mut(id.0).ok_or(TopicRefused::TooMany { limit })?;
        Ok((&mut self.env, &mut self.next_group, topic))
    }

    /// Makes a topic. One of dead letters stands beside its origin, and does not count against the limit.
    fn make(&mut self, topic: &str) -> Result<TopicId, TopicRefused> {
        name::check_destination(topic).map_err(TopicRefused::Name)?;
        let limit = self.env.config.max_topics;
        match name::origin_of(topic) {
            Some(origin) if self.by_name.contains_key(origin) => {}
            Some(origin) => drop(self.make(origin)?),
            None if self.topics.iter().filter(|topic| !topic.shelf.is_dead).count() >= limit => {
                return Err(TopicRefused::TooMany { limit });
            }
            None => {}
        }
        let (id, name): (_, Arc<str>) = (TopicId(self.topics.len()), topic.into());
        self.by_name.insert(Arc::clone(&name), id);
        self.topics.push(Topic::new(id, name, &self.env));
        Ok(id)
    }

    fn topic(&self, topic: &str) -> Result<&Topic, AdminError> {
        self.by_name.get(topic).and_then(|id| self.topics.get(id.0)).ok_or(AdminError::UnknownTopic)
    }

    fn seat(&mut self, consumer: ConsumerId) -> Option<(&mut Env, &mut Shelf, &mut Group)> {
        let (topic, group) = self.seats.get(&consumer)?;
        let topic = self.topics.get_mut(topic.0)?;
        Some((&mut self.env, &mut topic.shelf, topic.groups.get_mut(group)?))
    }

    fn unseat(&mut self, now: Millis, consumer: ConsumerId, failure: &Failure) {
        self.advance(now);
        if let Some((env, shelf, group)) = self.seat(consumer) {
            group.remove_member(env, shelf, consumer, failure);
        }
        self.publish_dead_in_memory();
        self.seats.remove(&consumer);
    }

    /// Applies `change` to every delivery and adds up what it answers; the unknown ones are the error.
    fn settle<T>(
        &mut self,
        now: Millis,
        consumer: ConsumerId,
        deliveries: impl IntoIterator<Item = (DeliveryId, T)>,
        mut change: impl FnMut(&mut Env, &mut Shelf, &mut Group, DeliveryId, T) -> Result<u64, NeverDelivered>,
    ) -> Result<u64, SettleError> {
        self.advance(now);
        let (env, shelf, group) = self.seat(consumer).ok_or(SettleError::NotSubscribed)?;
        let (mut settled, mut unknown) = (0, None);
        for (id, what) in deliveries {
            match change(env, shelf, group, id, what) {
                Ok(count) => settled += count,
                Err(NeverDelivered) => unknown.get_or_insert((id, 0)).1 += 1,
            }
        }
        self.publish_dead_in_memory();
        unknown.map_or(Ok(settled), |(id, count)| Err(SettleError::Unknown { id, more: count - 1 }))
    }
}
