//! What a consumer is given next.
//!
//! Redeliveries come before new frames, but take at most half of a consumer's credits. Two exceptions keep
//! things moving: a frame larger than all credits is delivered alone, and a redelivery larger than half
//! of them takes turns with new frames.

use std::sync::Arc;

use super::env::Env;
use super::group::{Group, Lease, Unsettled, UnsettledState};
use super::shelf::Shelf;
use super::terms::{ConsumerId, Delivery, DeliveryId, Lent};
use crate::frame::Millis;

/// Bytes after which a receive ends; what is not in memory has to be read at once.
const RECEIVE_BYTES: u64 = 4 << 20;

#[derive(Clone, Copy)]
enum NextDelivery {
    /// A frame that failed before: due then, beyond half of the credits or not.
    Again { due: Millis, offset: u64, beyond_half: bool },
    /// A frame at the cursor.
    New { offset: u64 },
}

impl Group {
    /// Leases to `id` what its credits allow. Nothing if it is no member.
    pub(super) fn grant(&mut self, env: &mut Env, shelf: &mut Shelf, id: ConsumerId) -> Vec<Lent<Delivery>> {
        let mut deliveries = Vec::new();
        let (mut granted, mut bytes) = (0, 0);
        while bytes < RECEIVE_BYTES
            && let Some((next, count)) = self.next(env.now, shelf, id)
        {
            if granted > 0 && self.members.get(&id).is_none_or(|member| granted + count > member.max_batch) {
                break;
            }
            let Some(delivery) = self.lease(env, shelf, id, next) else { break };
            granted += count;
            let entry = shelf.entries.get(delivery.item.id.offset);
            bytes += entry.map_or(0, |entry| entry.cost);
            deliveries.push(delivery);
        }
        deliveries
    }

    /// What the consumer is given next and how many messages that is, if its credits allow anything.
    fn next(&mut self, now: Millis, shelf: &Shelf, id: ConsumerId) -> Option<(NextDelivery, u64)> {
        let member = self.members.get(&id)?;
        let fits = |count: u64| member.in_flight == 0 || member.in_flight + count <= member.max_in_flight;
        let new = shelf.next_from(self.cursor);
        self.cursor = new.as_ref().map_or(self.cursor.max(shelf.end()), |(offset, _)| *offset);
        if let Some(&(due, offset)) = self.again.first().filter(|(due, _)| *due <= now) {
            let count = self.unsettled.get(&offset)?.count;
            let beyond_half = (member.redelivered + count).saturating_mul(2) > member.max_in_flight;
            let has_turn = member.redelivered == 0 && (new.is_none() || !member.owes_new);
            if fits(count) && (!beyond_half || has_turn) {
                return Some((NextDelivery::Again { due, offset, beyond_half }, count));
            }
        }
        let (offset, entry) = new?;
        let count = u64::from(entry.count);
        fits(count).then_some((NextDelivery::New { offset }, count))
    }

    fn lease(
        &mut self,
        env: &mut Env,
        shelf: &mut Shelf,
        id: ConsumerId,
        next: NextDelivery,
    ) -> Option<Lent<Delivery>> {
        let member = self.members.get_mut(&id)?;
        let deadline = env.now.after(member.ack_timeout);
        let lease = Lease {
            consumer: id,
            granted_at: env.now,
            deadline,
            redelivery: matches!(next, NextDelivery::Again { .. }),
        };
        let offset = match next {
            NextDelivery::Again { due, offset, beyond_half } => {
                self.again.remove(&(due, offset));
                let frame = self.unsettled.get_mut(&offset)?;
                frame.token += 1;
                frame.state = UnsettledState::Leased(lease);
                member.redelivered += frame.count;
                member.owes_new = beyond_half;
                self.redeliveries += frame.count;
                shelf.ledger.redelivered += frame.count;
                offset
            }
            NextDelivery::New { offset } => {
                let count = u64::from(shelf.entries.get(offset)?.count);
                self.cursor = offset + 1;
                member.owes_new = false;
                let (token, state) = (shelf.token_base + 1, UnsettledState::Leased(lease));
                let frame = Unsettled { count, token, failures: 0, losses: 0, state };
                self.unsettled.insert(offset, frame);
                offset
            }
        };
        let given = self.unsettled.get(&offset)?;
        member.in_flight += given.count;
        self.deadlines.insert((deadline, offset));
        env.arm(deadline);
        let entry = shelf.entries.get(offset)?;
        let Lent { item: frame, place } = shelf.entries.lend(offset)?;
        let item = Delivery {
            id: DeliveryId { offset, token: given.token.into() },
            topic: Arc::clone(&shelf.name),
            frame,
            attempt: given.failures + 1,
            published_at: entry.published_at,
            deadline,
        };
        Some(Lent { item, place })
    }
}
