//! One group of a topic: a cursor, the frames before it that are not settled, and the members.
//!
//! A frame at or beyond the cursor was never delivered. A frame before it is settled, unless it is listed as unsettled.
//! So a group needs memory only for what is under way, and yet tells a delivery that is settled
//! (fine to acknowledge again) from one that never was (an error).

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::env::{Env, Phase};
use super::given_up::GivenUp;
use super::shelf::Shelf;
use super::terms::{ConsumerId, ConsumerOptions, DeliveryId, Failure, GroupId, Nack, NackKind, Wake};
use crate::frame::{DeadFacts, Millis};

/// Consumers that may be lost while they hold a frame; then it is a dead letter. Far more than kills and lost
/// connections reach, and few enough that a frame which crashes every foreign consumer comes to an end.
const LOSSES_MAX: u32 = 100;

/// A frame that this group was given and has not settled.
#[derive(Debug)]
pub(super) struct Unsettled {
    /// Messages in it.
    pub(super) count: u64,
    /// The token of the last delivery.
    pub(super) token: u32,
    /// Deliveries that failed and count, since the queue was opened.
    pub(super) failures: u32,
    /// Deliveries whose consumer was lost, since then. They do not count as failures.
    pub(super) losses: u32,
    pub(super) state: UnsettledState,
}

#[derive(Debug)]
pub(super) enum UnsettledState {
    Leased(Lease),
    /// To be delivered again, then or later.
    Again(Millis),
    /// Its dead letter is being published.
    GivenUp,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) consumer: ConsumerId,
    pub(super) granted_at: Millis,
    pub(super) deadline: Millis,
    pub(super) redelivery: bool,
}

impl Unsettled {
    /// One that was delivered before the queue was opened.
    pub(super) fn of_earlier_life(now: Millis) -> Self {
        Self { count: 0, token: 0, failures: 0, losses: 0, state: UnsettledState::Again(now) }
    }

    fn is_leased(&self) -> bool {
        matches!(self.state, UnsettledState::Leased(_))
    }

    /// Whether it is leased, and as this delivery.
    fn is_leased_as(&self, id: DeliveryId) -> bool {
        u64::from(self.token) == id.token && self.is_leased()
    }
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) max_in_flight: u64,
    pub(super) max_batch: u64,
    /// Number of the consumer that it is a part of, if it is not one by itself.
    consumer: Option<NonZeroU64>,
    pub(super) ack_timeout: Duration,
    /// Messages leased now.
    pub(super) in_flight: u64,
    /// Those of them that are redeliveries.
    pub(super) redelivered: u64,
    /// The last grant was a redelivery beyond half of the credits: the next is something new.
    pub(super) owes_new: bool,
}

/// A delivery that this group never saw.
#[derive(Debug)]
pub(super) struct NeverDelivered;

#[derive(Debug)]
pub(super) struct Group {
    pub(super) id: GroupId,
    pub(super) name: Arc<str>,
    /// Tells it from groups of that name that the topic had before.
    pub(super) life: u32,
    pub(super) ttl: Option<Duration>,
    /// Whether a log is known to have it, so that those who join need not wait for that.
    pub(super) is_safe: bool,
    pub(super) empty_since: Option<Millis>,
    pub(super) start: u64,
    pub(super) cursor: u64,
    /// Messages not settled.
    pub(super) lag: u64,
    pub(super) redeliveries: u64,
    pub(super) acked: u64,
    /// Frames that are delivered and not settled, by their offsets.
    pub(super) unsettled: BTreeMap<u64, Unsettled>,
    pub(super) deadlines: BTreeSet<(Millis, u64)>,
    pub(super) again: BTreeSet<(Millis, u64)>,
    pub(super) members: BTreeMap<ConsumerId, Member>,
}

impl Group {
    pub(super) fn new(id: GroupId, name: Arc<str>, life: u32, start: u64, ttl: Option<Duration>) -> Self {
        Self {
            id,
            name,
            life,
            ttl,
            is_safe: false,
            empty_since: None,
            start,
            cursor: start,
            lag: 0,
            redeliveries: 0,
            acked: 0,
            unsettled: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            again: BTreeSet::new(),
            members: BTreeMap::new(),
        }
    }

    /// Whether it has not settled a frame.
    pub(super) fn wants(&self, offset: u64) -> bool {
        offset >= self.cursor || self.unsettled.contains_key(&offset)
    }

    /// Moves the cursor to `end` at least: frames that it passes before `start` are unsettled. It stands there already,
    /// except when a log is read.
    pub(super) fn pass(&mut self, env: &Env, shelf: &Shelf, start: u64, end: u64) {
        if self.cursor >= end {
            return;
        }
        while let Some(offset) = shelf.held.first_in(&(self.cursor..start)) {
            self.unsettled.insert(offset, Unsettled::of_earlier_life(env.now));
            self.cursor = offset + 1;
        }
        self.cursor = self.cursor.max(end);
    }

    /// The log has been read: what was delivered before may be delivered at once.
    pub(super) fn begin(&mut self, env: &mut Env, shelf: &Shelf) {
        self.is_safe = true;
        self.empty_since = Some(env.now);
        self.lag = shelf.messages_from(self.cursor);
        let cursor = self.cursor;
        self.unsettled.retain(|offset, _| *offset < cursor && shelf.entries.contains(*offset));
        for (offset, frame) in &mut self.unsettled {
            frame.count = shelf.entries.get(*offset).map_or(0, |entry| u64::from(entry.count));
            frame.token = shelf.token_base;
            frame.state = UnsettledState::Again(env.now);
            self.lag += frame.count;
            self.again.insert((env.now, *offset));
        }
        if let Some(end) = self.ends_at() {
            env.arm(end);
        }
    }

    pub(super) fn join(&mut self, env: &Env, id: ConsumerId, options: &ConsumerOptions) {
        let max_in_flight = u64::from(options.max_in_flight.get());
        let member = Member {
            max_in_flight,
            max_batch: options.max_batch.map_or(u64::MAX, |max| u64::from(max.get())),
            consumer: options.consumer,
            ack_timeout: options.ack_timeout.unwrap_or(env.config.ack_timeout).min(env.config.max_lease),
            in_flight: 0,
            redelivered: 0,
            owes_new: false,
        };
        self.members.insert(id, member);
        self.empty_since = None;
    }

    /// Takes a member out; what it had fails for `failure`.
    pub(super) fn remove_member(&mut self, env: &mut Env, shelf: &Shelf, id: ConsumerId, failure: &Failure) {
        let leased =
            |frame: &Unsettled| matches!(&frame.state, UnsettledState::Leased(lease) if lease.consumer == id);
        let held: Vec<_> =
            self.unsettled.iter().filter(|(_, frame)| leased(frame)).map(|(offset, _)| *offset).collect();
        for offset in held {
            self.fail(env, shelf, offset, failure);
        }
        self.members.remove(&id);
        self.look_again(env);
        if self.members.is_empty() {
            self.empty_since = Some(env.now);
            if let Some(end) = self.ends_at() {
                env.arm(end);
            }
        }
    }

    /// Takes everything back from everyone, without counting it.
    pub(super) fn recall(&mut self, env: &mut Env, shelf: &Shelf) {
        let leased: Vec<_> = self.deadlines.iter().map(|(_, offset)| *offset).collect();
        for offset in leased {
            self.fail(env, shelf, offset, &Failure::Released);
        }
    }

    /// Consumers that have joined; the members of one count once.
    pub(super) fn consumers(&self) -> usize {
        let named: BTreeSet<_> = self.members.values().filter_map(|member| member.consumer).collect();
        named.len() + self.members.values().filter(|member| member.consumer.is_none()).count()
    }

    /// Messages with consumers now.
    pub(super) fn in_flight(&self) -> u64 {
        self.members.values().map(|member| member.in_flight).sum()
    }

    /// When the oldest frame that it has not settled was published.
    pub(super) fn oldest(&self, shelf: &Shelf) -> Option<Millis> {
        let begun = self.unsettled.keys().find_map(|offset| shelf.entries.get(*offset));
        let next = || shelf.entries.from(self.cursor).next().map(|(_, entry)| entry);
        begun.or_else(next).map(|entry| entry.published_at)
    }

    /// When this group ends, should nobody join.
    pub(super) fn ends_at(&self) -> Option<Millis> {
        Some(self.empty_since?.after(self.ttl?))
    }

    /// Fails what is past its deadline, readies what has backed off long enough, asks for the next call.
    pub(super) fn advance(&mut self, env: &mut Env, shelf: &Shelf) {
        while let Some(&(deadline, offset)) = self.deadlines.first() {
            if deadline > env.now {
                env.arm(deadline);
                break;
            }
            self.fail(env, shelf, offset, &Failure::AckTimeout);
        }
        if self.again.first().is_some_and(|(due, _)| *due <= env.now) {
            env.wake(Wake::Group(self.id));
        }
        if let Some((due, _)) = self.again.range((Millis(env.now.0.saturating_add(1)), 0)..).next() {
            env.arm(*due);
        }
        if let Some(end) = self.ends_at() {
            env.arm(end);
        }
    }

    /// How many messages an acknowledgement of this delivery settles.
    pub(super) fn open_messages(&self, shelf: &Shelf, id: DeliveryId) -> Result<u64, NeverDelivered> {
        self.find(id, shelf.token_base).map(|frame| frame.map_or(0, |frame| frame.count))
    }

    /// Fails a live lease; answers how many messages that were. Of a lease that is over, none.
    pub(super) fn nack(&mut self, env: &mut Env, shelf: &Shelf, nack: &Nack) -> Result<u64, NeverDelivered> {
        let Some(frame) = self.find(nack.id, shelf.token_base)?.filter(|frame| frame.is_leased_as(nack.id))
        else {
            return Ok(0);
        };
        let count = frame.count;
        let failure = match nack.kind {
            NackKind::Retry => Failure::Refused(DeadFacts::shortened(&nack.reason)),
            NackKind::Reject => Failure::Rejected(DeadFacts::shortened(&nack.reason)),
            NackKind::Release => Failure::Released,
        };
        self.fail(env, shelf, nack.id.offset, &failure);
        Ok(count)
    }

    /// Moves the deadline of a live lease to `by` from now, within the longest lease, never back. Answers the deadline, if
    /// the lease lives.
    pub(super) fn extend(
        &mut self,
        env: &mut Env,
        shelf: &Shelf,
        id: DeliveryId,
        by: Duration,
    ) -> Result<Option<Millis>, NeverDelivered> {
        if self.find(id, shelf.token_base)?.is_none() {
            return Ok(None);
        }
        let Some(frame) = self.unsettled.get_mut(&id.offset).filter(|frame| frame.is_leased_as(id)) else {
            return Ok(None);
        };
        let UnsettledState::Leased(lease) = &mut frame.state else { return Ok(None) };
        let last = lease.granted_at.after(env.config.max_lease);
        let deadline = env.now.after(by).min(last).max(lease.deadline);
        self.deadlines.remove(&(lease.deadline, id.offset));
        self.deadlines.insert((deadline, id.offset));
        lease.deadline = deadline;
        env.arm(deadline);
        Ok(Some(deadline))
    }

    /// Ends a live lease; the frame is due again after `wait`, uncounted.
    pub(super) fn postpone(&mut self, env: &mut Env, shelf: &Shelf, id: DeliveryId, wait: Duration) {
        if !self.unsettled.get(&id.offset).is_some_and(|frame| frame.is_leased_as(id)) {
            return;
        }
        let Some(frame) = self.detach(id.offset) else { return };
        if shelf.entries.contains(id.offset) {
            self.deliver_again(env, id.offset, frame, wait);
        } else {
            self.done_with(env, frame.count);
        }
    }

    /// The frame is gone from the shelf: forgets it unless it is with a consumer.
    pub(super) fn forget(&mut self, env: &mut Env, offset: u64, count: u64) {
        if offset >= self.cursor {
            self.done_with(env, count);
        } else if self.unsettled.get(&offset).is_some_and(|frame| !frame.is_leased()) {
            self.settle(env, offset);
        }
    }

    /// The frame of the delivery that `id` names, if it is not settled.
    fn find(&self, id: DeliveryId, token_base: u32) -> Result<Option<&Unsettled>, NeverDelivered> {
        let never = id.offset < self.start || id.offset >= self.cursor || id.token == 0;
        let frame = self.unsettled.get(&id.offset);
        let is_of_another_time =
            |frame: &Unsettled| id.token > u64::from(frame.token) || id.token <= u64::from(token_base);
        if never || frame.is_some_and(is_of_another_time) { Err(NeverDelivered) } else { Ok(frame) }
    }

    /// A delivery failed: decides what becomes of the frame.
    fn fail(&mut self, env: &mut Env, shelf: &Shelf, offset: u64, failure: &Failure) {
        let Some(mut frame) = self.detach(offset) else { return };
        if !shelf.entries.contains(offset) {
            // The frame made room at the bound while it was out: there is nothing to deliver again.
            self.done_with(env, frame.count);
            return;
        }
        let given_up = match failure {
            Failure::Released => false,
            Failure::ConsumerGone => {
                frame.losses += 1;
                frame.losses >= LOSSES_MAX
            }
            _ => {
                frame.failures += 1;
                matches!(failure, Failure::Rejected(_)) || frame.failures > env.config.max_retries
            }
        };
        if given_up {
            frame.state = UnsettledState::GivenUp;
            self.unsettled.insert(offset, frame);
            if let Some(given_up) = GivenUp::new(shelf, self, offset, failure) {
                env.give_up(given_up);
            }
            self.look_again(env);
            return;
        }
        let wait = match failure {
            Failure::Released => Duration::ZERO,
            _ => env.backoff(frame.failures.saturating_add(frame.losses)),
        };
        self.deliver_again(env, offset, frame, wait);
    }

    pub(super) fn deliver_again(&mut self, env: &mut Env, offset: u64, mut frame: Unsettled, wait: Duration) {
        let due = env.now.after(wait);
        frame.state = UnsettledState::Again(due);
        self.again.insert((due, offset));
        if due > env.now {
            env.arm(due);
        }
        self.unsettled.insert(offset, frame);
        self.look_again(env);
    }

    /// Settles a frame that it was given, if it has not yet.
    pub(super) fn settle(&mut self, env: &mut Env, offset: u64) {
        if let Some(frame) = self.detach(offset) {
            self.done_with(env, frame.count);
        }
    }

    /// Takes a frame out of all indexes and gives its credits back.
    pub(super) fn detach(&mut self, offset: u64) -> Option<Unsettled> {
        let frame = self.unsettled.remove(&offset)?;
        match &frame.state {
            UnsettledState::Leased(lease) => {
                self.deadlines.remove(&(lease.deadline, offset));
                self.give_back(*lease, frame.count);
            }
            UnsettledState::Again(due) => {
                self.again.remove(&(*due, offset));
            }
            UnsettledState::GivenUp => {}
        }
        Some(frame)
    }

    fn give_back(&mut self, lease: Lease, count: u64) {
        if let Some(member) = self.members.get_mut(&lease.consumer) {
            member.in_flight -= count;
            if lease.redelivery {
                member.redelivered -= count;
            }
        }
    }

    /// So many messages are settled, or gone.
    fn done_with(&mut self, env: &mut Env, messages: u64) {
        // While a log is read, nobody counts.
        self.lag = self.lag.saturating_sub(messages);
        self.look_again(env);
    }

    fn look_again(&self, env: &mut Env) {
        env.wake(Wake::Group(self.id));
        if env.phase != Phase::Open {
            env.wake(Wake::Drained);
        }
    }
}
