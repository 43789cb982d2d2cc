//! The model: what is known of each frame of each group.

use std::collections::BTreeMap;

use gpuvitals_queue::{ConsumerId, DeliveryId, NackKind, QueueConfig};

/// Where a frame is, for one group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    New,
    Out {
        consumer: ConsumerId,
        granted: u64,
        deadline: u64,
        again: bool,
    },
    /// Failed; comes again by then at the latest.
    Back {
        by: u64,
    },
    Acked,
    Dead,
    /// Made room at the bound.
    Dropped,
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Messages in it.
    pub(crate) count: u64,
    pub(crate) place: Place,
    /// The last delivery of it.
    pub(crate) id: Option<DeliveryId>,
    pub(crate) failures: u32,
    /// Consumers that were lost with it since the last restart.
    pub(crate) losses: u32,
}

impl Entry {
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.place, Place::New | Place::Out { .. } | Place::Back { .. })
    }

    pub(crate) fn is_with(&self, who: ConsumerId) -> bool {
        matches!(self.place, Place::Out { consumer, .. } if consumer == who)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Timeout,
    Gone,
    Nack(NackKind),
}

#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) count: u64,
    /// Some group waited for it once.
    pub(crate) wanted: bool,
}

#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) published: u64,
    pub(crate) refused: u64,
    pub(crate) dropped: u64,
    pub(crate) duplicates: u64,
    /// Of groups that are gone.
    pub(crate) acked: u64,
    pub(crate) dead: u64,
}

#[derive(Debug, Default)]
pub(crate) struct GroupFrames {
    /// By offset.
    pub(crate) frames: BTreeMap<u64, Entry>,
    /// Every delivery there was.
    pub(crate) history: Vec<DeliveryId>,
}

impl GroupFrames {
    pub(crate) fn add(&mut self, offset: u64, count: u64) {
        self.frames.insert(offset, Entry { count, place: Place::New, id: None, failures: 0, losses: 0 });
    }

    /// Whether the frame is not settled.
    pub(crate) fn is_open(&self, offset: u64) -> bool {
        self.frames.get(&offset).is_some_and(Entry::is_open)
    }

    /// Messages in such frames.
    pub(crate) fn count(&self, which: impl Fn(&Entry) -> bool) -> u64 {
        self.frames.values().filter(|entry| which(entry)).map(|entry| entry.count).sum()
    }

    /// The last delivery of the frame that `id` names, if that is not settled.
    pub(crate) fn open_as(&self, id: DeliveryId) -> Option<DeliveryId> {
        self.frames.get(&id.offset).filter(|entry| entry.is_open()).and_then(|entry| entry.id)
    }

    pub(crate) fn ack(&mut self, id: DeliveryId) -> u64 {
        let open = self.frames.get_mut(&id.offset).filter(|entry| entry.is_open() && entry.id.is_some());
        open.map_or(0, |entry| {
            entry.place = Place::Acked;
            entry.count
        })
    }

    /// The frame of the live lease `id`.
    pub(crate) fn leased(&mut self, id: DeliveryId) -> Option<&mut Entry> {
        let is_live = |entry: &&mut Entry| entry.id == Some(id) && matches!(entry.place, Place::Out { .. });
        self.frames.get_mut(&id.offset).filter(is_live)
    }

    /// A delivery fails. Answers how many messages are dead now.
    pub(crate) fn fail(
        &mut self,
        offset: u64,
        held: bool,
        fault: Fault,
        now: u64,
        config: &QueueConfig,
    ) -> Option<u64> {
        let entry = self.frames.get_mut(&offset)?;
        if !held {
            entry.place = Place::Dropped;
            return None;
        }
        let is_lost = matches!(fault, Fault::Gone);
        let counts = !is_lost && !matches!(fault, Fault::Nack(NackKind::Release));
        entry.failures += u32::from(counts);
        entry.losses += u32::from(is_lost);
        let rejected = matches!(fault, Fault::Nack(NackKind::Reject));
        let tried_out = counts && entry.failures > config.max_retries;
        entry.place = if rejected || tried_out || (is_lost && entry.losses >= 100) {
            Place::Dead
        } else if counts || is_lost {
            let longest = config.backoff_base.as_millis() << (entry.failures + entry.losses - 1).min(20);
            let longest = longest.min(config.backoff_cap.as_millis());
            Place::Back { by: now + u64::try_from(longest).unwrap_or(u64::MAX) }
        } else {
            Place::Back { by: now }
        };
        (entry.place == Place::Dead).then_some(entry.count)
    }
}
