//! The model: what is known of each row of each group.

use std::collections::BTreeMap;

use gpuvitals_queue::{ConsumerId, DeliveryId, NackKind, QueueConfig, Rows};

/// Where a row is, for one group.
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
    /// Was dead; the letter was replayed (as rows of a new offset) or purged.
    Exhumed,
    /// Made room at the bound.
    Dropped,
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) place: Place,
    /// The last delivery of it. A row refused apart from its fellows belongs to none until it comes again.
    pub(crate) id: Option<DeliveryId>,
    pub(crate) failures: u32,
    /// Consumers that were lost with it since the last restart.
    pub(crate) losses: u32,
}

impl Row {
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
    pub(crate) rows: Rows,
    /// Replayed for this group alone.
    pub(crate) only: Option<&'static str>,
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
pub(crate) struct GroupRows {
    /// By (offset, row).
    pub(crate) rows: BTreeMap<(u64, u32), Row>,
    /// Every delivery there was.
    pub(crate) history: Vec<DeliveryId>,
}

impl GroupRows {
    pub(crate) fn add(&mut self, offset: u64, rows: &Rows) {
        let new = Row { place: Place::New, id: None, failures: 0, losses: 0 };
        self.rows.extend(rows.iter().map(|row| ((offset, row), new.clone())));
    }

    /// Whether something of the frame is not settled.
    pub(crate) fn is_open(&self, offset: u64) -> bool {
        self.rows.range((offset, 0)..=(offset, u32::MAX)).any(|(_, row)| row.is_open())
    }

    pub(crate) fn count(&self, which: impl Fn(&Row) -> bool) -> u64 {
        self.rows.values().filter(|row| which(row)).count() as u64
    }

    /// Open rows that were delivered as this part of that frame, whichever time.
    pub(crate) fn of_part(&mut self, id: DeliveryId) -> impl Iterator<Item = (u32, &mut Row)> {
        let same = move |row: &Row| row.id.is_some_and(|own| (own.offset, own.part) == (id.offset, id.part));
        let open = self.rows.iter_mut().filter(move |(_, row)| same(row) && row.is_open());
        open.map(|(key, row)| (key.1, row))
    }

    pub(crate) fn ack(&mut self, id: DeliveryId, named: Option<&Rows>) -> u64 {
        let mut count = 0;
        for (number, row) in self.of_part(id) {
            if named.is_none_or(|named| named.contains(number)) {
                row.place = Place::Acked;
                count += 1;
            }
        }
        count
    }

    /// Rows of the live lease `id`.
    pub(crate) fn leased(&self, id: DeliveryId) -> Vec<u32> {
        let live =
            self.rows.iter().filter(|(_, row)| row.id == Some(id) && matches!(row.place, Place::Out { .. }));
        live.map(|(key, _)| key.1).collect()
    }

    /// One row's delivery fails.
    pub(crate) fn fail(&mut self, key: (u64, u32), held: bool, fault: Fault, now: u64, config: &QueueConfig) {
        let Some(row) = self.rows.get_mut(&key) else { return };
        if !held {
            row.place = Place::Dropped;
            return;
        }
        let is_lost = matches!(fault, Fault::Gone);
        let counts = !is_lost && !matches!(fault, Fault::Nack(NackKind::Release));
        row.failures += u32::from(counts);
        row.losses += u32::from(is_lost);
        let rejected = matches!(fault, Fault::Nack(NackKind::Reject));
        let tried_out = counts && row.failures > config.max_retries;
        row.place = if rejected || tried_out || (is_lost && row.losses >= 100) {
            Place::Dead
        } else if counts || is_lost {
            let longest = config.backoff_base.as_millis() << (row.failures + row.losses - 1).min(20);
            let longest = longest.min(config.backoff_cap.as_millis());
            Place::Back { by: now + u64::try_from(longest).unwrap_or(u64::MAX) }
        } else {
            Place::Back { by: now }
        };
    }
}
