//! Messages that a consumer has received and not settled.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Subject;
use tokio::time::Instant;

use crate::broker::DeliveryId;
use crate::frame::{Frame, Millis};

/// A received message.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) id: DeliveryId,
    /// Subject of its acknowledgement.
    pub(super) reply: Subject,
    pub(super) frame: Arc<Frame>,
    /// Delivery attempt, counted from 1.
    pub(super) attempt: u32,
    pub(super) published_at: Millis,
    /// When the server delivers it again.
    pub(super) until: Instant,
}

/// The leases of a consumer. Sequence numbers begin anew when a stream is created anew; ids carry how often that was,
/// so that an id of before settles nothing.
#[derive(Debug, Default)]
pub(super) struct Leases {
    created: u32,
    held: BTreeMap<u64, Lease>,
    /// Highest sequence number received.
    highest: Option<u64>,
}

impl Leases {
    /// Forgets everything: the group was created anew, by this member or another one.
    pub(super) fn restart(&mut self) {
        let created = self.created.wrapping_add(u32::from(self.highest.is_some()));
        *self = Self { created, ..Self::default() };
    }

    /// The id of a delivery of now.
    pub(super) fn id(&self, offset: u64, attempt: u32) -> DeliveryId {
        DeliveryId { offset, token: attempt.into() }.of_session(self.created)
    }

    pub(super) fn insert(&mut self, lease: Lease) {
        self.highest = self.highest.max(Some(lease.id.offset));
        self.held.insert(lease.id.offset, lease);
    }

    /// Takes the lease of a message to acknowledge it, also by the id of an earlier delivery. `None`: it was settled, or
    /// has been over for long.
    ///
    /// # Errors
    ///
    /// The delivery was never received.
    pub(super) fn take(&mut self, id: DeliveryId) -> Result<Option<Lease>, DeliveryId> {
        self.known(id).map(|is_held| if is_held { self.held.remove(&id.offset) } else { None })
    }

    /// Takes the lease of a delivery to refuse it. `None`: it was settled, or is over.
    ///
    /// # Errors
    ///
    /// As [`Self::take`].
    pub(super) fn take_running(&mut self, id: DeliveryId, now: Instant) -> Result<Option<Lease>, DeliveryId> {
        if self.running(id, now)?.is_some() { self.take(id) } else { Ok(None) }
    }

    /// Extends the lease of a delivery and returns the subject of its acknowledgement. `None` and errors: as for
    /// [`Self::take_running`].
    pub(super) fn extend(
        &mut self,
        id: DeliveryId,
        now: Instant,
        by: Duration,
    ) -> Result<Option<Subject>, DeliveryId> {
        let lease = self.running(id, now)?;
        Ok(lease.map(|lease| {
            lease.until = now + by;
            lease.reply.clone()
        }))
    }

    /// The lease of a delivery, unless that is over: the message may be with another member by then.
    fn running(&mut self, id: DeliveryId, now: Instant) -> Result<Option<&mut Lease>, DeliveryId> {
        self.known(id)?;
        Ok(self.held.get_mut(&id.offset).filter(|lease| lease.id == id && lease.until > now))
    }

    fn known(&self, id: DeliveryId) -> Result<bool, DeliveryId> {
        let is_current = id.session() == self.created;
        if is_current && self.highest < Some(id.offset) { Err(id) } else { Ok(is_current) }
    }

    /// Messages (rows) in leases that are not over, and the end of the next one of these.
    pub(super) fn in_flight(&self, now: Instant) -> (u64, Option<Instant>) {
        let running = || self.held.values().filter(|lease| lease.until > now);
        let rows = running().map(|lease| u64::from(lease.frame.count)).sum();
        (rows, running().map(|lease| lease.until).min())
    }

    /// Forgets leases that have been over for `spare`. Before that, a late acknowledgement still counts.
    pub(super) fn forget_over(&mut self, now: Instant, spare: Duration) {
        self.held.retain(|_, lease| lease.until + spare > now);
    }

    /// Takes all leases.
    pub(super) fn drain(&mut self) -> Vec<Lease> {
        std::mem::take(&mut self.held).into_values().collect()
    }
}
