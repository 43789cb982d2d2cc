//! The broker holds topics, groups and leases, and is told what happens.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::env::{Env, Phase};
use super::group::NeverDelivered;
use super::terms::{
    AdminError, ConsumerId, ConsumerOptions, Delivery, DeliveryId, Failure, GroupId, Lent, Nack,
    PublishError, Receipt, ReceiveError, Reserved, SettleError, SubscribeError, TopicId, Wake,
};
use super::topic::{self, Topic};
use crate::config::QueueConfig;
use crate::frame::{Frame, Millis};
use crate::name::{self, NameError, PRODUCER_LEN_MAX};
use crate::stats::{QueueHealth, QueueStats, TopicStats};
use crate::trouble::{self, Cause, Trouble};

/// Why there is no such topic and none is created.
pub(super) enum TopicRefused {
    Name(NameError),
    TooMany { limit: usize },
}

/// Topics, groups, leases, redelivery, dead letters; see the module's text.
#[derive(Debug)]
pub struct Broker {
    pub(super) env: Env,
    pub(super) started_at: Millis,
    pub(super) topics: Vec<Topic>,
    pub(super) by_name: HashMap<Arc<str>, TopicId, foldhash::fast::RandomState>,
    /// Frames that are in memory and on disk, oldest first; some are gone since.
    pub(super) cached: VecDeque<(TopicId, Range<u64>)>,
    /// The group that each consumer is a member of.
    pub(super) seats: BTreeMap<ConsumerId, (TopicId, Arc<str>)>,
    pub(super) next_consumer: u64,
}

impl Broker {
    /// A broker without topics.
    pub fn new(config: QueueConfig, now: Millis) -> Self {
        Self {
            env: Env::new(config, now),
            started_at: now,
            topics: Vec::new(),
            by_name: HashMap::default(),
            cached: VecDeque::new(),
            seats: BTreeMap::new(),
            next_consumer: 0,
        }
    }

    /// The settings that the broker was made with.
    pub fn config(&self) -> &QueueConfig {
        &self.env.config
    }

    /// Takes a frame into a topic at once, in memory. A refusal at the bound is counted.
    ///
    /// # Errors
    ///
    /// The frame was not taken, for the reason given.
    pub fn publish(&mut self, now: Millis, topic: &str, frame: &Arc<Frame>) -> Result<Receipt, PublishError> {
        let reserved = self.reserve(now, topic, frame);
        match reserved {
            Ok(Reserved::Taken(receipt)) => Ok(receipt),
            Ok(Reserved::New { topic, offset, .. }) => {
                let topic = self.topics.get_mut(topic.0).ok_or(PublishError::Closed)?;
                topic.land(&mut self.env, offset, None).ok_or(PublishError::Closed)
            }
            Ok(Reserved::UnderWay { .. }) => Err(PublishError::Closed),
            Err(error) => {
                if matches!(error, PublishError::Full { .. }) {
                    self.count_refused(topic, frame);
                }
                Err(error)
            }
        }
    }

    /// Counts a frame that was refused at the bound.
    pub fn count_refused(&mut self, topic: &str, frame: &Frame) {
        if let Some(topic) = self.by_name.get(topic).and_then(|id| self.topics.get_mut(id.0)) {
            topic.shelf.ledger.refused += u64::from(frame.count);
            topic.shelf.ledger.refused_lately.note(self.env.now, frame.count.into());
        }
    }

    /// The first half of a publish: gives the frame an offset and room in its topic, which is created if it does not
    /// exist. If that promises no more than memory, that is all. Otherwise nobody sees the frame before [`Broker::land`],
    /// and none that is reserved after it before it has landed or was [given up](Broker::give_up).
    ///
    /// # Errors
    ///
    /// The frame was not taken, for the reason given. [`PublishError::Full`] is not counted; [`Wake::Space`] says when to
    /// try again.
    pub fn reserve(
        &mut self,
        now: Millis,
        topic: &str,
        frame: &Arc<Frame>,
    ) -> Result<Reserved, PublishError> {
        let (env, topic) = self.admit(now, topic, frame)?;
        let reserved = topic.reserve(env, frame);
        topic::forget_producers(&mut self.env, &mut self.topics);
        reserved
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
        self.open(topic).map_err(|refused| match refused {
            TopicRefused::Name(name) => PublishError::Topic(name),
            TopicRefused::TooMany { limit } => PublishError::TooManyTopics { limit },
        })
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
        let (env, topic) = self.open(topic).map_err(|refused| match refused {
            TopicRefused::Name(name) => SubscribeError::Topic(name),
            TopicRefused::TooMany { limit } => SubscribeError::TooManyTopics { limit },
        })?;
        let limit = env.config.max_groups;
        if !topic.groups.contains_key(group) {
            if topic.groups.len() >= limit {
                return Err(SubscribeError::TooManyGroups { limit });
            }
            topic.make_group(env, group, options);
        }
        if let Some(group) = topic.groups.get_mut(group) {
            group.join(env, consumer, options);
            let seat = (topic.shelf.id, Arc::clone(&group.name));
            self.seats.insert(consumer, seat);
        }
        self.next_consumer += 1;
        Ok(consumer)
    }

    /// A consumer's group: for waiting on [`Wake::Group`].
    pub fn group_of(&self, consumer: ConsumerId) -> Option<GroupId> {
        let (topic, group) = self.seats.get(&consumer)?;
        Some(self.topics.get(topic.0)?.groups.get(group)?.id)
    }

    /// A topic by name: for waiting on [`Wake::Space`].
    pub fn topic_named(&self, topic: &str) -> Option<TopicId> {
        self.by_name.get(topic).copied()
    }

    /// Leases to a consumer as many frames as its credits allow; maybe none. What is not in memory is to be read
    /// before it is given away.
    ///
    /// # Errors
    ///
    /// The consumer has left, or the queue shuts down and has nothing more for its group.
    pub fn receive(
        &mut self,
        now: Millis,
        consumer: ConsumerId,
    ) -> Result<Vec<Lent<Delivery>>, ReceiveError> {
        self.advance(now);
        let phase = self.env.phase;
        let (env, topic, group) = self.seat(consumer).ok_or(ReceiveError::NotSubscribed)?;
        let group = topic.groups.get_mut(&group).ok_or(ReceiveError::NotSubscribed)?;
        let over = match phase {
            Phase::Open => false,
            Phase::Sealed => group.lag == 0,
            Phase::Stopped => true,
        };
        if over { Err(ReceiveError::Closed) } else { Ok(group.grant(env, &mut topic.shelf, consumer)) }
    }

    /// Acknowledges deliveries. Answers how many messages were not settled before.
    ///
    /// # Errors
    ///
    /// A delivery that the group never saw (the others are acknowledged), or the consumer has left.
    pub fn ack(&mut self, now: Millis, consumer: ConsumerId, ids: &[DeliveryId]) -> Result<u64, SettleError> {
        self.settle(now, consumer, ids, |id| *id, |env, topic, group, id| topic.ack(env, group, *id))
    }

    /// Refuses deliveries. Answers how many messages that moved: of a lease that is over,
    /// none.
    ///
    /// # Errors
    ///
    /// A delivery that the group never saw (the others are refused), or the consumer has left.
    pub fn nack(&mut self, now: Millis, consumer: ConsumerId, nacks: &[Nack]) -> Result<u64, SettleError> {
        self.settle(
            now,
            consumer,
            nacks,
            |nack| nack.id,
            |env, topic, group, nack| {
                let group = topic.groups.get_mut(group).ok_or(NeverDelivered)?;
                group.nack(env, &topic.shelf, nack)
            },
        )
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
        self.settle(
            now,
            consumer,
            ids,
            |id| *id,
            |env, topic, group, id| {
                let group = topic.groups.get_mut(group).ok_or(NeverDelivered)?;
                if group.extend(env, &topic.shelf, *id, by)?.is_none() {
                    over.get_or_insert((*id, 0)).1 += 1;
                }
                Ok(0)
            },
        )?;
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
        let (group, _) = topic.groups.get_key_value(group).ok_or(AdminError::UnknownGroup)?;
        let group = Arc::clone(group);
        self.seats.retain(|_, (topic, name)| (*topic, &*name) != (id, &group));
        topic.end(&mut self.env, group);
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

    /// Those who waited and may go on since the last call.
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
                group.recall(&mut self.env, &topic.shelf);
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
    pub fn health(&mut self, now: Millis) -> QueueHealth {
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
            for group in topic.groups.values() {
                self.env.wake(Wake::Group(group.id));
            }
        }
        self.env.wake(Wake::Drained);
    }

    /// The topic of that name, created if it does not exist; beside it what its changes need.
    pub(super) fn open(&mut self, topic: &str) -> Result<(&mut Env, &mut Topic), TopicRefused> {
        let id = match self.by_name.get(topic) {
            Some(id) => *id,
            None => self.make(topic)?,
        };
        let limit = self.env.config.max_topics;
        let topic = self.topics.get_mut(id.0).ok_or(TopicRefused::TooMany { limit })?;
        Ok((&mut self.env, topic))
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
        Ok(self.add_topic(topic))
    }

    pub(super) fn add_topic(&mut self, name: &str) -> TopicId {
        let (id, name): (_, Arc<str>) = (TopicId(self.topics.len()), name.into());
        self.by_name.insert(Arc::clone(&name), id);
        self.topics.push(Topic::new(id, name, &self.env));
        id
    }

    pub(super) fn topic(&self, topic: &str) -> Result<&Topic, AdminError> {
        self.by_name.get(topic).and_then(|id| self.topics.get(id.0)).ok_or(AdminError::UnknownTopic)
    }

    pub(super) fn seat(&mut self, consumer: ConsumerId) -> Option<(&mut Env, &mut Topic, Arc<str>)> {
        let (topic, group) = self.seats.get(&consumer)?;
        Some((&mut self.env, self.topics.get_mut(topic.0)?, Arc::clone(group)))
    }

    fn unseat(&mut self, now: Millis, consumer: ConsumerId, failure: &Failure) {
        self.advance(now);
        if let Some((env, topic, group)) = self.seat(consumer)
            && let Some(group) = topic.groups.get_mut(&group)
        {
            group.remove_member(env, &topic.shelf, consumer, failure);
        }
        self.publish_dead_in_memory();
        self.seats.remove(&consumer);
    }

    /// Applies `change` to every delivery and adds up what it answers; the unknown ones are the error.
    fn settle<T>(
        &mut self,
        now: Millis,
        consumer: ConsumerId,
        deliveries: &[T],
        id_of: impl Fn(&T) -> DeliveryId,
        mut change: impl FnMut(&mut Env, &mut Topic, &Arc<str>, &T) -> Result<u64, NeverDelivered>,
    ) -> Result<u64, SettleError> {
        self.advance(now);
        let (env, topic, group) = self.seat(consumer).ok_or(SettleError::NotSubscribed)?;
        let (mut settled, mut unknown) = (0, None);
        for delivery in deliveries {
            match change(env, topic, &group, delivery) {
                Ok(count) => settled += count,
                Err(NeverDelivered) => unknown.get_or_insert((id_of(delivery), 0)).1 += 1,
            }
        }
        self.publish_dead_in_memory();
        unknown.map_or(Ok(settled), |(id, count)| Err(SettleError::Unknown { id, more: count - 1 }))
    }
}
