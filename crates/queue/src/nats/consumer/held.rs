//! What a consumer was given and has not settled: its leases, and which of their rows are still open.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Subject;
use tokio::time::Instant;

use super::super::head::Remnant;
use super::watch::Born;
use crate::broker::DeliveryId;
use crate::frame::{Frame, Millis};
use crate::rows::Rows;

/// A message as it was delivered.
#[derive(Debug)]
pub(super) struct Loan {
    /// Where it is acknowledged.
    pub(super) reply: Subject,
    pub(super) id: DeliveryId,
    pub(super) frame: Arc<Frame>,
    /// Which rows of the frame are meant.
    pub(super) rows: Rows,
    /// The how-manieth try this is, from 1.
    pub(super) attempt: u32,
    /// Place of the frame when it was published first, and when that was.
    pub(super) origin: u64,
    pub(super) published_at: Millis,
    /// How long the server waits for an acknowledgement.
    pub(super) patience: Duration,
}

impl Loan {
    /// What `group` still has to do with: `rows` after so many attempts.
    pub(super) fn remnant(&self, group: &Arc<str>, rows: &Rows, attempts: u32) -> Remnant {
        Remnant {
            group: Arc::clone(group),
            rows: rows.clone(),
            attempts,
            offset: self.origin,
            published_at: self.published_at,
        }
    }
}

#[derive(Debug)]
struct Lease {
    loan: Arc<Loan>,
    /// Neither settled nor being moved.
    open: Rows,
    /// How many moves of its rows are under way.
    moves: usize,
    /// A move failed: the message has to come again.
    is_lost: bool,
    until: Instant,
}

/// Rows that are refused and on their way elsewhere.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) loan: Arc<Loan>,
    pub(super) rows: Rows,
    /// They are all of the message, which is settled with them.
    pub(super) is_whole: bool,
}

/// What is to be told to the server when the last row of a message is settled.
#[derive(Debug)]
pub(super) enum End {
    Acknowledge(Arc<Loan>),
    /// Rows of it went nowhere: it has to come again.
    Again(Arc<Loan>),
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
        DeliveryId { offset, part: 0, token: deliveries.into() }.of_session(self.life)
    }

    pub(super) fn lend(&mut self, loan: Arc<Loan>, until: Instant) {
        let offset = loan.id.offset;
        self.highest = self.highest.max(Some(offset));
        let lease = Lease { open: loan.rows.clone(), loan, moves: 0, is_lost: false, until };
        self.leases.insert(offset, lease);
    }

    /// Messages that count against the credits, and when the next lease ends.
    pub(super) fn in_flight(&self, now: Instant) -> (u64, Option<Instant>) {
        let running = || self.leases.values().filter(|lease| lease.until > now);
        (running().map(|lease| lease.open.len()).sum(), running().map(|lease| lease.until).min())
    }

    /// Forgets leases that have been over for as long as they lasted.
    pub(super) fn forget_over(&mut self, now: Instant) {
        self.leases.retain(|_, lease| lease.until + lease.loan.patience > now);
    }

    pub(super) fn standing(&self, id: DeliveryId, now: Instant) -> Standing {
        if id.session() < self.life {
            return Standing::Over;
        }
        let is_possible = id.session() == self.life && id.part == 0 && id.count() > 0;
        let known = is_possible && self.highest.is_some_and(|highest| id.offset <= highest);
        match self.leases.get(&id.offset) {
            _ if !known => Standing::Unknown,
            Some(lease) if id.token > lease.loan.id.token => Standing::Unknown,
            Some(lease) if id.token == lease.loan.id.token && lease.until > now => Standing::Leased,
            _ => Standing::Over,
        }
    }

    /// Acknowledges rows, all that are open without `rows`. Answers how many, and whether that was the last of the
    /// message.
    pub(super) fn ack(&mut self, id: DeliveryId, rows: Option<&Rows>) -> (u64, Option<End>) {
        let counts = |lease: &&mut Lease| {
            let of = lease.loan.id;
            id.session() == of.session() && id.count() <= of.count()
        };
        let Some(lease) = self.leases.get_mut(&id.offset).filter(counts) else { return (0, None) };
        let acked = rows.map_or_else(|| lease.open.clone(), |rows| lease.open.intersection(rows));
        lease.open = lease.open.difference(&acked);
        (acked.len(), self.end(id.offset))
    }

    /// All leases up to an offset, that one included.
    pub(super) fn up_to(&self, offset: u64) -> Vec<DeliveryId> {
        self.leases.range(..=offset).map(|(_, lease)| lease.loan.id).collect()
    }

    /// Takes open rows out of a running lease, to move them elsewhere.
    pub(super) fn begin_move(&mut self, id: DeliveryId, rows: Option<&Rows>, now: Instant) -> Option<Move> {
        let lease = self.leases.get_mut(&id.offset)?;
        if id.token != lease.loan.id.token || lease.until <= now {
            return None;
        }
        let rows = rows.map_or_else(|| lease.open.clone(), |rows| lease.open.intersection(rows));
        let loan = Arc::clone(&lease.loan);
        if rows.is_empty() {
            return None;
        }
        let is_whole = rows == loan.rows;
        if is_whole {
            self.leases.remove(&id.offset);
        } else {
            lease.open = lease.open.difference(&rows);
            lease.moves += 1;
        }
        Some(Move { loan, rows, is_whole })
    }

    /// Ends a move of part of a message.
    pub(super) fn end_move(&mut self, id: DeliveryId, has_arrived: bool) -> Option<End> {
        let lease = self.leases.get_mut(&id.offset).filter(|lease| lease.loan.id == id)?;
        lease.moves = lease.moves.saturating_sub(1);
        lease.is_lost |= !has_arrived;
        self.end(id.offset)
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

    fn end(&mut self, offset: u64) -> Option<End> {
        let lease = self.leases.get(&offset)?;
        if !lease.open.is_empty() || lease.moves > 0 {
            return None;
        }
        let lease = self.leases.remove(&offset)?;
        Some(if lease.is_lost { End::Again(lease.loan) } else { End::Acknowledge(lease.loan) })
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
            id: DeliveryId { offset, part: 0, token: token.into() },
            frame: Arc::new(Frame::new(ContentType::Json, count, "[]")),
            rows: Rows::all(count),
            attempt: token,
            origin: offset,
            published_at: Millis(0),
            patience: PATIENCE,
        })
    }

    fn id(offset: u64, token: u32) -> DeliveryId {
        DeliveryId { offset, part: 0, token: token.into() }
    }

    fn held(now: Instant) -> Held {
        let mut held = Held::default();
        held.lend(loan(7, 2, 10), now + PATIENCE);
        held
    }

    #[tokio::test]
    async fn a_message_is_acknowledged_with_its_last_row() {
        let now = Instant::now();
        let mut held = held(now);
        assert_eq!(held.ack(id(7, 2), Some(&Rows::all(9))).0, 9);
        assert_eq!(held.in_flight(now), (1, Some(now + PATIENCE)));
        let (rows, end) = held.ack(id(7, 2), None);
        assert!(matches!((rows, end), (1, Some(End::Acknowledge(_)))));
        assert_eq!(held.ack(id(7, 2), None).0, 0, "nothing is settled twice");
        assert_eq!(held.in_flight(now), (0, None));
    }

    #[tokio::test]
    async fn rows_that_went_nowhere_bring_the_message_back() {
        let now = Instant::now();
        for (has_arrived, comes_again) in [(true, false), (false, true)] {
            let mut held = held(now);
            let moved = held.begin_move(id(7, 2), Some(&Rows::one(3)), now).unwrap();
            assert!(!moved.is_whole && moved.rows == Rows::one(3));
            assert!(held.ack(id(7, 2), None).1.is_none(), "one row is still on its way");
            let end = held.end_move(id(7, 2), has_arrived);
            assert_eq!(matches!(end, Some(End::Again(_))), comes_again);
            assert_eq!(matches!(end, Some(End::Acknowledge(_))), !comes_again);
        }
    }

    #[tokio::test]
    async fn a_stale_id_acknowledges_and_refuses_nothing() {
        let now = Instant::now();
        let mut held = held(now);
        assert_eq!(held.standing(id(7, 1), now), Standing::Over);
        assert!(held.begin_move(id(7, 1), None, now).is_none());
        assert!(held.extend(id(7, 1), now).is_none());
        assert_eq!(held.ack(id(7, 1), None).0, 10);
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
        assert_eq!((held.standing(id(7, 2), now), held.ack(id(7, 2), None).0), (Standing::Over, 0));
        assert!(held.begin_move(id(7, 2), None, now).is_none() && held.extend(id(7, 2), now).is_none());
        assert_eq!(held.ack(anew, None).0, 10);
    }

    #[tokio::test]
    async fn a_lease_that_is_over_needs_no_credits_and_can_be_acknowledged() {
        let now = Instant::now();
        let mut held = held(now);
        let late = now + PATIENCE;
        assert_eq!(held.in_flight(late), (0, None));
        assert_eq!(held.standing(id(7, 2), late), Standing::Over);
        held.forget_over(late);
        assert_eq!(held.ack(id(7, 2), None).0, 10);
        let mut held = self::held(now);
        held.forget_over(late + PATIENCE);
        assert_eq!(held.ack(id(7, 2), None).0, 0);
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
            (DeliveryId { offset: 7, part: 1, token: 2 }, Standing::Unknown),
        ] {
            assert_eq!(held.standing(id, now), standing, "{id}");
        }
    }
}
