//! One group of a topic: a cursor, the frames before it that are not settled, and the members.
//!
//! A frame at or beyond the cursor was never delivered. A frame before it is settled, unless it is listed as unsettled.
//! So a group needs memory only for what is under way, and yet tells a delivery that is settled
//! (fine to acknowledge again) from one that never was (an error).

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::blocks::Blocks;
use super::dead::GivenUp;
use super::env::{Env, Phase};
use super::facts::What;
use super::shelf::Shelf;
use super::terms::{ConsumerId, ConsumerOptions, DeliveryId, Failure, GroupId, Nack, NackKind, Wake};
use crate::frame::{DeadFacts, Millis};

/// Consumers that may be lost while they hold a frame; then it is a dead letter. Far more than kills and lost
/// connections reach, and few enough that a frame which crashes every foreign consumer comes to an end.
const LOSSES_MAX: u32 = 100;

/// A frame that this group was given and has not settled.
#[derive(Clone, Debug)]
pub(super) struct Unsettled {
    /// Messages in it.
    pub(super) count: u64,
    /// The token of the last delivery.
    pub(super) token: u32,
    /// Deliveries that failed and count.
    pub(super) failures: u32,
    /// Deliveries whose consumer was lost since the queue was opened. They do not count as failures.
    pub(super) losses: u32,
    pub(super) state: UnsettledState,
}

#[derive(Clone, Debug)]
pub(super) enum UnsettledState {
    Leased(Lease),
    /// Backing off until then.
    Waiting(Millis),
    /// May be delivered again; was due then.
    Ready(Millis),
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
    /// Whether it is leased, and as this delivery.
    fn is_leased_as(&self, id: DeliveryId) -> bool {
        u64::from(self.token) == id.token && matches!(self.state, UnsettledState::Leased(_))
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
    /// By offset.
    pub(super) unsettled: Blocks<u64, Unsettled>,
    pub(super) deadlines: BTreeSet<(Millis, u64)>,
    pub(super) waiting: BTreeSet<(Millis, u64)>,
    pub(super) ready: BTreeSet<(Millis, u64)>,
    pub(super) members: BTreeMap<ConsumerId, Member>,
}

impl Group {
    pub(super) fn new(id: GroupId, name: Arc<str>, ttl: Option<Duration>, start: u64, lag: u64) -> Self {
        Self {
            id,
            name,
            ttl,
            is_safe: false,
            empty_since: None,
            start,
            cursor: start,
            lag,
            redeliveries: 0,
            acked: 0,
            unsettled: Blocks::default(),
            deadlines: BTreeSet::new(),
            waiting: BTreeSet::new(),
            ready: BTreeSet::new(),
            members: BTreeMap::new(),
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
    pub(super) fn remove_member(
        &mut self,
        env: &mut Env,
        shelf: &mut Shelf,
        id: ConsumerId,
        failure: &Failure,
    ) {
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
    pub(super) fn recall(&mut self, env: &mut Env, shelf: &mut Shelf) {
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

    /// When this group ends, should nobody join.
    pub(super) fn ends_at(&self) -> Option<Millis> {
        Some(self.empty_since?.after(self.ttl?))
    }

    /// Fails what is past its deadline, readies what has backed off long enough, asks for the next call.
    pub(super) fn advance(&mut self, env: &mut Env, shelf: &mut Shelf) {
        while let Some(&(deadline, offset)) = self.deadlines.first() {
            if deadline > env.now {
                env.arm(deadline);
                break;
            }
            self.fail(env, shelf, offset, &Failure::AckTimeout);
        }
        while let Some(&(due, offset)) = self.waiting.first() {
            if due > env.now {
                env.arm(due);
                break;
            }
            self.waiting.remove(&(due, offset));
            if let Some(frame) = self.unsettled.get_mut(&offset) {
                frame.state = UnsettledState::Ready(due);
                self.ready.insert((due, offset));
            }
            env.wake(Wake::Group(self.id));
        }
        if let Some(end) = self.ends_at() {
            env.arm(end);
        }
    }

    /// Settles a delivery; answers how many messages were not settled before.
    pub(super) fn ack(
        &mut self,
        env: &mut Env,
        shelf: &mut Shelf,
        id: DeliveryId,
    ) -> Result<u64, NeverDelivered> {
        if self.find(id, shelf.token_base)?.is_none() {
            return Ok(0);
        }
        let Some(frame) = self.detach(id.offset) else { return Ok(0) };
        self.note_settled(env, shelf, id.offset);
        self.settled(env, shelf, id.offset, frame.count);
        self.acked += frame.count;
        shelf.ledger.acked += frame.count;
        shelf.ledger.acked_rate.add(env.now, frame.count);
        Ok(frame.count)
    }

    /// Fails a live lease; answers how many messages that were. Of a lease that is over, none.
    pub(super) fn nack(
        &mut self,
        env: &mut Env,
        shelf: &mut Shelf,
        nack: &Nack,
    ) -> Result<u64, NeverDelivered> {
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

    /// Moves the deadline of a live lease to `by` from now, within the longest lease, never back.
    /// Answers whether the lease lives.
    pub(super) fn extend(
        &mut self,
        env: &mut Env,
        shelf: &Shelf,
        id: DeliveryId,
        by: Duration,
    ) -> Result<bool, NeverDelivered> {
        if self.find(id, shelf.token_base)?.is_none() {
            return Ok(false);
        }
        let Some(frame) = self.unsettled.get_mut(&id.offset).filter(|frame| frame.is_leased_as(id)) else {
            return Ok(false);
        };
        let UnsettledState::Leased(lease) = &mut frame.state else { return Ok(false) };
        let last = lease.granted_at.after(env.config.max_lease);
        let deadline = env.now.after(by).min(last).max(lease.deadline);
        self.deadlines.remove(&(lease.deadline, id.offset));
        self.deadlines.insert((deadline, id.offset));
        lease.deadline = deadline;
        env.arm(deadline);
        Ok(true)
    }

    /// The same, and answers the deadline of the lease, if it lives.
    pub(super) fn renew(
        &mut self,
        env: &mut Env,
        shelf: &Shelf,
        id: DeliveryId,
        by: Duration,
    ) -> Option<Millis> {
        self.extend(env, shelf, id, by).ok().filter(|lives| *lives)?;
        match self.unsettled.get(&id.offset)?.state {
            UnsettledState::Leased(lease) => Some(lease.deadline),
            _ => None,
        }
    }

    /// Ends a live lease; the frame is due again after `wait`, uncounted.
    pub(super) fn postpone(&mut self, env: &mut Env, shelf: &mut Shelf, id: DeliveryId, wait: Duration) {
        if !self.unsettled.get(&id.offset).is_some_and(|frame| frame.is_leased_as(id)) {
            return;
        }
        let Some(frame) = self.detach(id.offset) else { return };
        if shelf.entries.contains_key(&id.offset) {
            self.deliver_again(env, id.offset, frame, wait);
        } else {
            self.settled(env, shelf, id.offset, frame.count);
        }
    }

    /// The frame is gone from the shelf: forgets it unless it is with a consumer.
    pub(super) fn forget(&mut self, env: &mut Env, shelf: &mut Shelf, offset: u64, count: u64) {
        if offset >= self.cursor {
            self.lag -= count;
            self.look_again(env);
            return;
        }
        let is_leased = |frame: &Unsettled| matches!(frame.state, UnsettledState::Leased(_));
        if !self.unsettled.get(&offset).is_none_or(is_leased)
            && let Some(frame) = self.detach(offset)
        {
            self.settled(env, shelf, offset, frame.count);
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
    fn fail(&mut self, env: &mut Env, shelf: &mut Shelf, offset: u64, failure: &Failure) {
        let Some(mut frame) = self.detach(offset) else { return };
        if !shelf.entries.contains_key(&offset) {
            // The frame made room at the bound while it was out: there is nothing to deliver again.
            self.settled(env, shelf, offset, frame.count);
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
        if !matches!(failure, Failure::Released | Failure::ConsumerGone) {
            let (group, failures) = (Arc::clone(&self.name), frame.failures);
            shelf.note(env, What::Failed { group, offset, failures });
        }
        self.deliver_again(env, offset, frame, wait);
    }

    pub(super) fn deliver_again(&mut self, env: &mut Env, offset: u64, mut frame: Unsettled, wait: Duration) {
        let due = env.now.after(wait);
        if due > env.now {
            frame.state = UnsettledState::Waiting(due);
            self.waiting.insert((due, offset));
            env.arm(due);
        } else {
            frame.state = UnsettledState::Ready(due);
            self.ready.insert((due, offset));
        }
        self.unsettled.insert(offset, frame);
        self.look_again(env);
    }

    /// Notes that the group is done with a frame.
    pub(super) fn note_settled(&self, env: &mut Env, shelf: &Shelf, offset: u64) {
        if shelf.is_kept {
            env.facts.note_settled(&shelf.name, &self.name, offset);
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
            UnsettledState::Waiting(due) => {
                self.waiting.remove(&(*due, offset));
            }
            UnsettledState::Ready(due) => {
                self.ready.remove(&(*due, offset));
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

    /// A frame of `count` messages is done with, as far as this group goes.
    pub(super) fn settled(&mut self, env: &mut Env, shelf: &mut Shelf, offset: u64, count: u64) {
        self.lag -= count;
        shelf.release(env, offset);
        self.look_again(env);
    }

    fn look_again(&self, env: &mut Env) {
        env.wake(Wake::Group(self.id));
        if env.phase != Phase::Open {
            env.wake(Wake::Drained);
        }
    }
}
