//! What a consumer is given next.
//!
//! Redeliveries come before new frames, but take at most half of a consumer's credits. Two exceptions keep
//! things moving: a frame larger than all credits is delivered alone, and a redelivery larger than half
//! of them takes turns with new frames.

use std::sync::Arc;

use super::env::Env;
use super::group::{Group, Lease, Part, PartKey, PartState};
use super::shelf::Shelf;
use super::stored::Lent;
use super::terms::{ConsumerId, Delivery, DeliveryId};
use crate::frame::Millis;

/// Bytes after which a receive ends; what is not in memory has to be read at once.
const RECEIVE_BYTES: u64 = 4 << 20;

#[derive(Clone, Copy)]
enum Next {
    /// A part that failed before: due then, beyond half of the credits or not.
    Again { due: Millis, key: PartKey, beyond_half: bool },
    /// A frame at the cursor.
    New { offset: u64 },
}

impl Group {
    /// Leases to `id` what its credits allow. Nothing if it is no member.
    pub(super) fn grant(&mut self, env: &mut Env, shelf: &mut Shelf, id: ConsumerId) -> Vec<Lent<Delivery>> {
        let mut deliveries = Vec::new();
        let (mut granted, mut bytes) = (0, 0);
        while bytes < RECEIVE_BYTES
            && let Some((next, count)) = self.next(shelf, id)
        {
            if granted > 0 && self.members.get(&id).is_none_or(|member| granted + count > member.max_batch) {
                break;
            }
            let Some(delivery) = self.lease(env, shelf, id, next) else { break };
            granted += count;
            let entry = shelf.entries.get(&delivery.item.id.offset);
            bytes += entry.map_or(0, |entry| entry.stored.cost);
            deliveries.push(delivery);
        }
        deliveries
    }

    /// What the consumer is given next and how many messages that is, if its credits allow anything.
    fn next(&mut self, shelf: &Shelf, id: ConsumerId) -> Option<(Next, u64)> {
        let member = self.members.get(&id)?;
        if member.max_in_flight == 0 {
            return None;
        }
        let fits = |count: u64| member.in_flight == 0 || member.in_flight + count <= member.max_in_flight;
        let new = shelf.next_for(self.id, self.cursor);
        self.cursor = new.as_ref().map_or(self.cursor.max(shelf.end()), |(offset, _)| *offset);
        if let Some(&(due, key)) = self.ready.first() {
            let count = self.parts.get(&key)?.rows.len();
            let beyond_half = (member.redelivered + count).saturating_mul(2) > member.max_in_flight;
            let has_turn = member.redelivered == 0 && (new.is_none() || !member.owes_new);
            if fits(count) && (!beyond_half || has_turn) {
                return Some((Next::Again { due, key, beyond_half }, count));
            }
        }
        let (offset, entry) = new?;
        let count = entry.rows.len();
        fits(count).then_some((Next::New { offset }, count))
    }

    fn lease(
        &mut self,
        env: &mut Env,
        shelf: &mut Shelf,
        id: ConsumerId,
        next: Next,
    ) -> Option<Lent<Delivery>> {
        let member = self.members.get_mut(&id)?;
        let deadline = env.now.after(member.ack_timeout);
        let lease = Lease {
            consumer: id,
            granted_at: env.now,
            deadline,
            redelivery: matches!(next, Next::Again { .. }),
        };
        let key = match next {
            Next::Again { due, key, beyond_half } => {
                self.ready.remove(&(due, key));
                let part = self.parts.get_mut(&key)?;
                part.token += 1;
                part.state = PartState::Leased(lease);
                let count = part.rows.len();
                member.redelivered += count;
                member.owes_new = beyond_half;
                self.redeliveries += count;
                shelf.ledger.redelivered += count;
                key
            }
            Next::New { offset } => {
                let entry = shelf.entries.get(&offset)?;
                let (key, rows) = ((offset, entry.first_part), entry.rows.clone());
                self.cursor = offset + 1;
                member.owes_new = false;
                let (first_at, state) = (env.now, PartState::Leased(lease));
                let part = Part { rows, token: 1, failures: 0, losses: 0, first_at, state };
                self.parts.insert(key, part);
                key
            }
        };
        let part = self.parts.get(&key)?;
        member.in_flight += part.rows.len();
        self.deadlines.insert((deadline, key));
        env.arm(deadline);
        let entry = shelf.entries.get(&key.0)?;
        let (frame, home) = entry.stored.lend();
        let item = Delivery {
            id: DeliveryId { offset: key.0, part: key.1, token: part.token.into() },
            topic: Arc::clone(&shelf.name),
            frame,
            rows: part.rows.clone(),
            attempt: part.failures + 1,
            published_at: entry.published_at,
            deadline,
        };
        Some(Lent { item, home })
    }
}
