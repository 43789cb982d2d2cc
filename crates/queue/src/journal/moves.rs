//! Records that are written again further on, so that the segment they lie in can go.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_log::Place;

use crate::broker::{Home, Pin};
use crate::frame::Millis;

/// Bytes that are moved at once.
const LEN_MAX: usize = 4 << 20;
/// How long what could not be moved stays where it is before that is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// Old places and the homes that what lay there has now.
pub(super) type Moved = HashMap<Place, Home, foldhash::fast::RandomState>;

#[derive(Debug, Default)]
pub(super) struct Moves {
    under_way: usize,
    moved: Moved,
    /// What could not be moved, and when it is tried again.
    left: BTreeSet<Place>,
    again_at: Millis,
    /// Records whose bytes are gone.
    damaged: u64,
}

impl Moves {
    pub(super) fn are_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// As much of `homes` as is moved at once. Each is to be answered.
    pub(super) fn begin(&mut self, now: Millis, mut homes: Vec<Home>) -> Vec<Home> {
        if now >= self.again_at {
            self.left.clear();
        }
        let mut len = 0;
        homes.retain(|home| {
            if self.left.contains(&home.place) {
                return false;
            }
            len += home.place.payload_len();
            len <= LEN_MAX || len == home.place.payload_len()
        });
        self.under_way = homes.len();
        homes
    }

    /// A record is written again; its home is there.
    pub(super) fn moved(&mut self, from: Place, home: Home) -> Option<Moved> {
        self.moved.insert(from, home);
        self.answered()
    }

    /// A record is not what was written: nothing is gained by keeping its segment.
    pub(super) fn damaged(&mut self, from: &Home) -> Option<Moved> {
        self.damaged += 1;
        self.moved.insert(from.place, Home { pin: Arc::new(Pin), ..from.clone() });
        self.answered()
    }

    /// A record stays where it is, for now.
    pub(super) fn stays(&mut self, now: Millis, from: Place) -> Option<Moved> {
        self.left.insert(from);
        self.again_at = now.after(RETRY);
        self.answered()
    }

    /// All that has a new home, once nothing is under way.
    fn answered(&mut self) -> Option<Moved> {
        self.under_way = self.under_way.saturating_sub(1);
        (self.under_way == 0 && !self.moved.is_empty()).then(|| std::mem::take(&mut self.moved))
    }

    /// What is not well, in words.
    pub(super) fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        if self.damaged > 0 {
            complaints.push(format!("{} records of the queue's log are damaged", self.damaged));
        }
        if !self.left.is_empty() {
            let count = self.left.len();
            complaints
                .push(format!("{count} records cannot be moved: the queue's log cannot let go of them"));
        }
        complaints
    }
}
