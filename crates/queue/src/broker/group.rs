//! One group of a topic: a cursor, the parts that are out or waiting, and the members.
//!
//! A frame at or beyond the cursor was never delivered. A frame before it is settled, unless it has
//! parts. So a group needs memory only for what is under way, and yet tells a delivery that is settled
//! (fine to acknowledge again) from one that never was (an error).

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::blocks::Blocks;
use super::env::{Env, Phase};
use super::facts::{Burial, What};
use super::shelf::{Letter, Shelf};
use super::terms::{
    ConsumerId, ConsumerOptions, DeadLetter, DeliveryId, Failure, GroupId, Nack, NackKind, Wake,
};
use crate::frame::Millis;
use crate::rows::Rows;

/// Longest reason that is kept with a failure, in bytes.
const REASON_LEN_MAX: usize = 512;
/// Consumers that may be lost while they hold rows; then these are a dead letter. Far more than kills and lost
/// connections reach, and few enough that rows which crash every foreign consumer come to an end.
const LOSSES_MAX: u32 = 100;

/// A part of a frame: (offset, part). The lowest is the frame.
pub(super) type PartKey = (u64, u32);

/// Rows of one frame that this group has begun and not settled.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) rows: Rows,
    /// Deliveries so far.
    pub(super) token: u32,
    /// Deliveries that failed and count.
    pub(super) failures: u32,
    /// Deliveries whose consumer was lost since the queue was opened. They do not count as failures.
    pub(super) losses: u32,
    pub(super) first_at: Millis,
    pub(super) state: PartState,
}

#[derive(Clone, Debug)]
pub(super) enum PartState {
    Leased(Lease),
    /// Backing off until then.
    Waiting(Millis),
    /// May be delivered again; was due then.
    Ready(Millis),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) consumer: ConsumerId,
    pub(super) granted_at: Millis,
    pub(super) deadline: Millis,
    pub(super) redelivery: bool,
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
    pub(super) parts: Blocks<PartKey, Part>,
    pub(super) deadlines: BTreeSet<(Millis, PartKey)>,
    pub(super) waiting: BTreeSet<(Millis, PartKey)>,
    pub(super) ready: BTreeSet<(Millis, PartKey)>,
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
            parts: Blocks::default(),
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

    pub(super) fn set_credits(&mut self, env: &mut Env, id: ConsumerId, max_in_flight: u32) {
        if let Some(member) = self.members.get_mut(&id) {
            member.max_in_flight = u64::from(max_in_flight);
            env.wake(Wake::Group(self.id));
        }
    }

    /// Takes a member out; what it had fails for `failure`.
    pub(super) fn part_with(&mut self, env: &mut Env, shelf: &mut Shelf, id: ConsumerId, failure: &Failure) {
        let leased = |part: &Part| matches!(&part.state, PartState::Leased(lease) if lease.consumer == id);
        let held: Vec<_> = self.parts.iter().filter(|(_, part)| leased(part)).map(|(key, _)| *key).collect();
        for key in held {
            self.fail_part(env, shelf, key, failure);
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
        let leased: Vec<_> = self.deadlines.iter().map(|(_, key)| *key).collect();
        for key in leased {
            self.fail_part(env, shelf, key, &Failure::Released);
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
        while let Some(&(deadline, key)) = self.deadlines.first() {
            if deadline > env.now {
                env.arm(deadline);
                break;
            }
            self.fail_part(env, shelf, key, &Failure::AckTimeout);
        }
        while let Some(&(due, key)) = self.waiting.first() {
            if due > env.now {
                env.arm(due);
                break;
            }
            self.waiting.remove(&(due, key));
            if let Some(part) = self.parts.get_mut(&key) {
                part.state = PartState::Ready(due);
                self.ready.insert((due, key));
            }
            env.wake(Wake::Group(self.id));
        }
        if let Some(end) = self.ends_at() {
            env.arm(end);
        }
    }

    /// Settles rows (all of the delivery if `None`); answers how many were not settled before.
    pub(super) fn ack(
        &mut self,
        env: &mut Env,
        shelf: &mut Shelf,
        id: DeliveryId,
        rows: Option<&Rows>,
    ) -> Result<u64, NeverDelivered> {
        let key = (id.offset, id.part);
        let Some(part) = self.find(shelf, id)? else { return Ok(0) };
        let named = rows.map(|rows| part.rows.intersection(rows));
        let count = match named {
            Some(named) if named.len() < part.rows.len() => {
                self.cut(key, &named);
                self.note_settled(env, shelf, key.0, &named);
                self.settled(env, shelf, key.0, named.len());
                named.len()
            }
            _ => self.detach(key).map_or(0, |part| {
                self.note_settled(env, shelf, key.0, &part.rows);
                self.settled(env, shelf, key.0, part.rows.len());
                part.rows.len()
            }),
        };
        self.acked += count;
        shelf.ledger.acked += count;
        shelf.ledger.acked_rate.add(env.now, count);
        Ok(count)
    }

    /// Acknowledges what `consumer` holds of the frames up to `offset`, that one included.
    pub(super) fn ack_up_to(
        &mut self,
        env: &mut Env,
        shelf: &mut Shelf,
        consumer: ConsumerId,
        offset: u64,
    ) -> Result<u64, NeverDelivered> {
        let held =
            |part: &Part| matches!(&part.state, PartState::Leased(lease) if lease.consumer == consumer);
        let parts = self.parts.range(..=(offset, u32::MAX)).filter(|(_, part)| held(part));
        let ids: Vec<_> = parts
            .map(|(key, part)| DeliveryId { offset: key.0, part: key.1, token: part.token.into() })
            .collect();
        ids.into_iter().map(|id| self.ack(env, shelf, id, None)).sum()
    }

    /// Fails rows of a live lease; answers how many. Of a lease that is over, none.
    pub(super) fn nack(
        &mut self,
        env: &mut Env,
        shelf: &mut Shelf,
        nack: &Nack,
    ) -> Result<u64, NeverDelivered> {
        let key = (nack.id.offset, nack.id.part);
        let Some(part) = self.find(shelf, nack.id)? else { return Ok(0) };
        if u64::from(part.token) != nack.id.token || !matches!(part.state, PartState::Leased(_)) {
            return Ok(0);
        }
        let failure = match nack.kind {
            NackKind::Retry => Failure::Refused(shortened(&nack.reason)),
            NackKind::Reject => Failure::Rejected(shortened(&nack.reason)),
            NackKind::Release => Failure::Released,
        };
        let whole = part.rows.len();
        let Some(named) = nack.rows.as_ref().map(|rows| part.rows.intersection(rows)) else {
            self.fail_part(env, shelf, key, &failure);
            return Ok(whole);
        };
        if named.len() == whole {
            self.fail_part(env, shelf, key, &failure);
        } else if !named.is_empty() {
            let split = Part {
                rows: named.clone(),
                token: part.token,
                failures: part.failures,
                losses: part.losses,
                first_at: part.first_at,
                state: PartState::Ready(env.now),
            };
            self.cut(key, &named);
            let number = shelf.entries.get_mut(&key.0).map(|entry| {
                let number = entry.next_part;
                entry.next_part += 1;
                number
            });
            match number {
                Some(number) => self.fail(env, shelf, (key.0, number), split, &failure),
                // The frame made room at the bound: there is nothing to deliver again.
                None => self.settled(env, shelf, key.0, named.len()),
            }
        }
        Ok(named.len())
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
        let key = (id.offset, id.part);
        if self.find(shelf, id)?.is_none() {
            return Ok(false);
        }
        let Some(part) = self.parts.get_mut(&key).filter(|part| u64::from(part.token) == id.token) else {
            return Ok(false);
        };
        let PartState::Leased(lease) = &mut part.state else { return Ok(false) };
        let last = lease.granted_at.after(env.config.max_lease);
        let deadline = env.now.after(by).min(last).max(lease.deadline);
        self.deadlines.remove(&(lease.deadline, key));
        self.deadlines.insert((deadline, key));
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
        match self.parts.get(&(id.offset, id.part))?.state {
            PartState::Leased(lease) => Some(lease.deadline),
            PartState::Waiting(_) | PartState::Ready(_) => None,
        }
    }

    /// Ends a live lease; the rows are due again after `wait`, uncounted.
    pub(super) fn postpone(&mut self, env: &mut Env, shelf: &mut Shelf, id: DeliveryId, wait: Duration) {
        let key = (id.offset, id.part);
        let is_over =
            |part: &Part| u64::from(part.token) != id.token || !matches!(part.state, PartState::Leased(_));
        if self.parts.get(&key).is_none_or(is_over) {
            return;
        }
        let Some(part) = self.detach(key) else { return };
        if shelf.entries.contains_key(&key.0) {
            self.deliver_again(env, key, part, wait);
        } else {
            self.settled(env, shelf, key.0, part.rows.len());
        }
    }

    /// The frame is gone from the shelf: forgets what is not with a consumer.
    pub(super) fn forget(&mut self, env: &mut Env, shelf: &mut Shelf, offset: u64, rows: u64) {
        if offset >= self.cursor {
            self.lag -= rows;
            self.look_again(env);
            return;
        }
        let idle = |part: &Part| !matches!(part.state, PartState::Leased(_));
        let range = (offset, 0)..=(offset, u32::MAX);
        let parts: Vec<_> =
            self.parts.range(range).filter(|(_, part)| idle(part)).map(|(key, _)| *key).collect();
        for key in parts {
            if let Some(part) = self.detach(key) {
                self.settled(env, shelf, offset, part.rows.len());
            }
        }
    }

    /// The part that `id` names, if it is not settled.
    fn find(&self, shelf: &Shelf, id: DeliveryId) -> Result<Option<&Part>, NeverDelivered> {
        let never = id.offset < self.start || id.offset >= self.cursor || id.token == 0;
        let part = self.parts.get(&(id.offset, id.part));
        let from_the_future = match part {
            Some(part) => id.token > u64::from(part.token),
            None => shelf.entries.get(&id.offset).is_some_and(|entry| {
                let of_earlier_life = id.part < entry.first_part && self.has_begun(id.offset);
                id.part >= entry.next_part || of_earlier_life || !entry.is_for(self.id)
            }),
        };
        if never || from_the_future { Err(NeverDelivered) } else { Ok(part) }
    }

    /// Whether rows of a frame were delivered and are not settled.
    fn has_begun(&self, offset: u64) -> bool {
        self.parts.range((offset, 0)..=(offset, u32::MAX)).next().is_some()
    }

    fn fail_part(&mut self, env: &mut Env, shelf: &mut Shelf, key: PartKey, failure: &Failure) {
        if let Some(part) = self.detach(key) {
            self.fail(env, shelf, key, part, failure);
        }
    }

    /// Decides what becomes of a detached part whose delivery failed.
    fn fail(&mut self, env: &mut Env, shelf: &mut Shelf, key: PartKey, mut part: Part, failure: &Failure) {
        if !shelf.entries.contains_key(&key.0) {
            // The frame made room at the bound while it was out: there is nothing to deliver again.
            self.settled(env, shelf, key.0, part.rows.len());
            return;
        }
        let given_up = match failure {
            Failure::Released => false,
            Failure::ConsumerGone => {
                part.losses += 1;
                part.losses >= LOSSES_MAX
            }
            _ => {
                part.failures += 1;
                matches!(failure, Failure::Rejected(_)) || part.failures > env.config.max_retries
            }
        };
        if given_up {
            let count = part.rows.len();
            self.bury(env, shelf, key.0, part, failure);
            self.settled(env, shelf, key.0, count);
            return;
        }
        let wait = match failure {
            Failure::Released => Duration::ZERO,
            _ => env.backoff(part.failures.saturating_add(part.losses)),
        };
        if !matches!(failure, Failure::Released | Failure::ConsumerGone) {
            let (group, rows) = (Arc::clone(&self.name), part.rows.clone());
            let (failures, first_at) = (part.failures, part.first_at);
            shelf.note(env, What::Failed { group, offset: key.0, rows, failures, first_at });
        }
        self.deliver_again(env, key, part, wait);
    }

    fn deliver_again(&mut self, env: &mut Env, key: PartKey, mut part: Part, wait: Duration) {
        let due = env.now.after(wait);
        if due > env.now {
            part.state = PartState::Waiting(due);
            self.waiting.insert((due, key));
            env.arm(due);
        } else {
            part.state = PartState::Ready(due);
            self.ready.insert((due, key));
        }
        self.parts.insert(key, part);
        self.look_again(env);
    }

    /// Makes a dead letter of a detached part.
    fn bury(&self, env: &mut Env, shelf: &mut Shelf, offset: u64, part: Part, failure: &Failure) {
        let id = shelf.take_letter_id();
        let Some(entry) = shelf.entries.get(&offset) else { return };
        let attempts = if *failure == Failure::ConsumerGone { part.losses } else { part.failures };
        if let Some(home) = &entry.stored.home {
            let burial = Burial {
                id,
                group: Arc::clone(&self.name),
                offset,
                source: home.source,
                rows: part.rows.clone(),
                reason: failure.clone(),
                attempts,
                first_at: part.first_at,
                died_at: env.now,
            };
            shelf.note(env, What::Buried(burial));
        }
        let head = DeadLetter {
            id,
            topic: Arc::clone(&shelf.name),
            group: Arc::clone(&self.name),
            offset,
            frame: entry.stored.blank_or_only(),
            reason: failure.clone(),
            attempts,
            published_at: entry.published_at,
            first_delivered_at: part.first_at,
            died_at: env.now,
            rows: part.rows,
        };
        let letter = Letter::new(head, &entry.stored);
        shelf.bury(env, letter);
    }

    /// Notes which rows are settled, and no more than these: a fact before this one may be lost, as where a write fails.
    fn note_settled(&self, env: &mut Env, shelf: &Shelf, offset: u64, rows: &Rows) {
        if !shelf.is_kept {
            return;
        }
        if shelf.entries.get(&offset).is_some_and(|entry| entry.rows.len() == rows.len()) {
            env.facts.note_settled(&shelf.name, &self.name, offset);
        } else {
            let group = Arc::clone(&self.name);
            shelf.note(env, What::SettledRows { group, offset, rows: rows.clone() });
        }
    }

    /// Takes a part out of all indexes and gives its credits back.
    pub(super) fn detach(&mut self, key: PartKey) -> Option<Part> {
        let part = self.parts.remove(&key)?;
        match &part.state {
            PartState::Leased(lease) => {
                self.deadlines.remove(&(lease.deadline, key));
                self.give_back(*lease, part.rows.len());
            }
            PartState::Waiting(due) => {
                self.waiting.remove(&(*due, key));
            }
            PartState::Ready(due) => {
                self.ready.remove(&(*due, key));
            }
        }
        Some(part)
    }

    /// Takes rows out of a part that keeps others, and gives their credits back.
    fn cut(&mut self, key: PartKey, rows: &Rows) {
        let Some(part) = self.parts.get_mut(&key) else { return };
        part.rows = part.rows.difference(rows);
        if let PartState::Leased(lease) = part.state {
            self.give_back(lease, rows.len());
        }
    }

    fn give_back(&mut self, lease: Lease, count: u64) {
        if let Some(member) = self.members.get_mut(&lease.consumer) {
            member.in_flight -= count;
            if lease.redelivery {
                member.redelivered -= count;
            }
        }
    }

    /// `count` rows of a frame are done with, as far as this group goes.
    fn settled(&mut self, env: &mut Env, shelf: &mut Shelf, offset: u64, count: u64) {
        self.lag -= count;
        if !self.has_begun(offset) {
            shelf.release(env, offset);
        }
        self.look_again(env);
    }

    fn look_again(&self, env: &mut Env) {
        env.wake(Wake::Group(self.id));
        if env.phase != Phase::Open {
            env.wake(Wake::Drained);
        }
    }
}

fn shortened(reason: &Arc<str>) -> Arc<str> {
    if reason.len() <= REASON_LEN_MAX {
        Arc::clone(reason)
    } else {
        reason.get(..reason.floor_char_boundary(REASON_LEN_MAX)).unwrap_or_default().into()
    }
}
