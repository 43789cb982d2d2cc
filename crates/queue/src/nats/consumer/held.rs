//! What a consumer was given and has not settled: its leases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Subject;
use tokio::time::Instant;

use super::super::head::Remnant;
use super::watch::Born;
use crate::broker::DeliveryId;
use crate::frame::{Frame, Millis};

/// A message as it was delivered.
#[derive(Debug)]
pub(super) struct Loan {
    /// Where it is acknowledged.
    pub(super) reply: Subject,
    pub(super) id: DeliveryId,
    pub(super) frame: Arc<Frame>,
    /// The how-manieth try this is, from 1.
    pub(super) attempt: u32,
    /// Place of the frame when it was published first, and when that was.
    pub(super) origin: u64,
    pub(super) published_at: Millis,
    /// How long the server waits for an acknowledgement.
    pub(super) patience: Duration,
}

impl Loan {
    /// The message for `group` alone, after so many attempts.
    pub(super) fn remnant(&self, group: &Arc<str>, attempts: u32) -> Remnant {
        Remnant { group: Arc::clone(group), attempts, offset: self.origin, published_at: self.published_at }
    }
}

#[derive(Debug)]
struct Lease {
    loan: Arc<Loan>,
    until: Instant,
}

/// How the id of a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is leased.
    Leased,
    /// It was, and is over or settled. An acknowledgement may still count.
    Over,
    /// It never was.
    Unknown,
}

/// The leases of one life of a group. Places begin anew when a stream or group is made anew, so the ids of what is
/// delivered say which life of the group they are of, by number.
#[derive(Debug, Default)]
pub(super) struct Held {
    born: Option<Born>,
    life: u32,
    leases: BTreeMap<u64, Lease>,
    /// Highest offset that was ever leased.
    highest: Option<u64>,
}

impl Held {
    /// Goes on with the group that was made then; another than before ends the life of that, and it says so.
    pub(super) fn join(&mut self, born: Born) -> bool {
        let is_other = self.born.is_some_and(|before| !before.is_same(born));
        if is_other {
            self.end_life();
        }
        self.born = Some(born);
        is_other
    }

    /// The group is gone, and with it all leases.
    pub(super) fn end_life(&mut self) {
        *self = Self { life: self.life.wrapping_add(1), ..Self::default() };
    }

    /// The id of a delivery of now.
    pub(super) fn id(&self, offset: u64, deliveries: u32) -> DeliveryId {
        DeliveryId { offset, token: deliveries.into() }.of_session(self.life)
    }

    pub(super) fn lend(&mut self, loan: Arc<Loan>, until: Instant) {
        let offset = loan.id.offset;
        self.highest = self.highest.max(Some(offset));
        let lease = Lease { loan, until };
        self.leases.insert(offset, lease);
    }

    /// Messages that count against the credits, and when the next lease ends.
    pub(super) fn in_flight(&self, now: Instant) -> (u64, Option<Instant>) {
        let running = || self.leases.values().filter(|lease| lease.until > now);
        (
            running().map(|lease| u64::from(lease.loan.frame.count)).sum(),
            running().map(|lease| lease.until).min(),
        )
    }

    /// Forgets leases that have been over for as long as they lasted.
    pub(super) fn forget_over(&mut self, now: Instant) {
        self.leases.retain(|_, lease| lease.until + lease.loan.patience > now);
    }

    pub(super) fn standing(&self, id: DeliveryId, now: Instant) -> Standing {
        if id.session() < self.life {
            return Standing::Over;
        }
        let is_possible = id.session() == self.life && id.count() > 0;
        let known = is_possible && self.highest.is_some_and(|highest| id.offset <= highest);
        match self.leases.get(&id.offset) {
            _ if !known => Standing::Unknown,
            Some(lease) if id.token > lease.loan.id.token => Standing::Unknown,
            Some(lease) if id.token == lease.loan.id.token && lease.until > now => Standing::Leased,
            _ => Standing::Over,
        }
    }

    /// Takes out what a delivery acknowledges.
    pub(super) fn ack(&mut self, id: DeliveryId) -> Option<Arc<Loan>> {
        let lease = self.leases.get(&id.offset)?;
        let of = lease.loan.id;
        let counts = id.session() == of.session() && id.count() <= of.count();
        if counts { self.leases.remove(&id.offset).map(|lease| lease.loan) } else { None }
    }

    /// Takes out a running lease that is refused.
    pub(super) fn take(&mut self, id: DeliveryId, now: Instant) -> Option<Arc<Loan>> {
        let lease = self.leases.get(&id.offset)?;
        let is_running = id.token == lease.loan.id.token && lease.until > now;
        if is_running { self.leases.remove(&id.offset).map(|lease| lease.loan) } else { None }
    }

    /// Moves the end of a running lease; answers its loan.
    pub(super) fn extend(&mut self, id: DeliveryId, now: Instant) -> Option<Arc<Loan>> {
        let lease = self.leases.get_mut(&id.offset)?;
        if id.token != lease.loan.id.token || lease.until <= now {
            return None;
        }
        lease.until = now + lease.loan.patience;
        Some(Arc::clone(&lease.loan))
    }

    /// Takes everything out.
    pub(super) fn drain(&mut self) -> Vec<Arc<Loan>> {
        std::mem::take(&mut self.leases).into_values().map(|lease| lease.loan).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::ContentType;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn loan(offset: u64, token: u32, count: u32) -> Arc<Loan> {
        Arc::new(Loan {
            reply: "reply".into(),
            id: DeliveryId { offset, token: token.into() },
            frame: Arc::new(Frame::new(ContentType::Json, count, "[]")),
            attempt: token,
            origin: offset,
            published_at: Millis(0),
            patience: PATIENCE,
        })
    }

    fn id(offset: u64, token: u32) -> DeliveryId {
        DeliveryId { offset, token: token.into() }
    }

    fn held(now: Instant) -> Held {
        let mut held = Held::default();
        held.lend(loan(7, 2, 10), now + PATIENCE);
        held
    }

    #[tokio::test]
    async fn a_message_is_acknowledged_once() {
        let now = Instant::now();
        let mut held = held(now);
        assert_eq!(held.in_flight(now), (10, Some(now + PATIENCE)));
        assert!(held.ack(id(7, 2)).is_some());
        assert!(held.ack(id(7, 2)).is_none(), "nothing is settled twice");
        assert_eq!(held.in_flight(now), (0, None));
    }

    #[tokio::test]
    async fn a_stale_id_acknowledges_and_refuses_nothing() {
        let now = Instant::now();
        let mut held = held(now);
        assert_eq!(held.standing(id(7, 1), now), Standing::Over);
        assert!(held.take(id(7, 1), now).is_none());
        assert!(held.extend(id(7, 1), now).is_none());
        assert!(held.ack(id(7, 1)).is_some());
    }

    #[tokio::test]
    async fn a_group_that_was_made_anew_begins_another_life() {
        let (now, first) = (Instant::now(), Born::at(1_000_000_000));
        let mut held = Held::default();
        assert!(!held.join(first));
        held.lend(loan(7, 2, 10), now + PATIENCE);
        let as_after_a_restart = Born::at(1_000_200_000);
        assert!(!held.join(as_after_a_restart));
        assert_eq!(held.standing(id(7, 2), now), Standing::Leased);
        assert!(held.join(Born::at(2_000_000_000)));
        let anew = held.id(7, 2);
        assert_ne!(anew, id(7, 2));
        held.lend(Arc::new(Loan { id: anew, ..Arc::into_inner(loan(7, 2, 10)).unwrap() }), now + PATIENCE);
        assert_eq!((held.standing(id(7, 2), now), held.ack(id(7, 2)).is_some()), (Standing::Over, false));
        assert!(held.take(id(7, 2), now).is_none() && held.extend(id(7, 2), now).is_none());
        assert!(held.ack(anew).is_some());
    }

    #[tokio::test]
    async fn a_lease_that_is_over_needs_no_credits_and_can_be_acknowledged() {
        let now = Instant::now();
        let mut held = held(now);
        let late = now + PATIENCE;
        assert_eq!(held.in_flight(late), (0, None));
        assert_eq!(held.standing(id(7, 2), late), Standing::Over);
        held.forget_over(late);
        assert!(held.ack(id(7, 2)).is_some());
        let mut held = self::held(now);
        held.forget_over(late + PATIENCE);
        assert!(held.ack(id(7, 2)).is_none());
    }

    #[tokio::test]
    async fn what_was_never_delivered_is_unknown() {
        let now = Instant::now();
        let held = held(now);
        for (id, standing) in [
            (id(7, 2), Standing::Leased),
            (id(6, 1), Standing::Over),
            (id(8, 1), Standing::Unknown),
            (id(7, 3), Standing::Unknown),
        ] {
            assert_eq!(held.standing(id, now), standing, "{id}");
        }
    }
}
