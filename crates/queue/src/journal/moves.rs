//! Records that are written again further on, so that the segment they lie in can go.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use gpuvitals_log::Place;

use crate::broker::{Home, TopicId};
use crate::frame::Millis;

/// Bytes that are moved at once.
const LEN_MAX: usize = 4 << 20;
/// How long what could not be moved stays where it is before that is tried again.
const RETRY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Moves {
    /// It is being looked for what can be moved.
    is_looking: bool,
    /// What is being moved, and whose frame it is.
    under_way: HashMap<Place, TopicId, foldhash::fast::RandomState>,
    /// What could not be moved, and when it is tried again.
    left: BTreeSet<Place>,
    again_at: Millis,
    /// Records whose bytes are gone.
    damaged: u64,
}

impl Moves {
    pub(super) fn are_under_way(&self) -> bool {
        self.is_looking || !self.under_way.is_empty()
    }

    pub(super) fn looking(&mut self) {
        self.is_looking = true;
    }

    /// As much of `found` as is moved at once. Each is to be answered.
    pub(super) fn begin(&mut self, now: Millis, found: Vec<(Home, TopicId)>) -> Vec<Home> {
        self.is_looking = false;
        if now >= self.again_at {
            self.left.clear();
        }
        let (mut homes, mut len) = (Vec::new(), 0);
        for (home, topic) in found {
            if self.left.contains(&home.place) {
                continue;
            }
            len += home.place.payload_len();
            if len > LEN_MAX && !homes.is_empty() {
                break;
            }
            self.under_way.insert(home.place, topic);
            homes.push(home);
        }
        homes
    }

    /// What became of a record is known: the topic of its frame.
    pub(super) fn answered(&mut self, from: Place) -> Option<TopicId> {
        self.under_way.remove(&from)
    }

    /// A record is not what was written.
    pub(super) fn damaged(&mut self) {
        self.damaged += 1;
    }

    /// A record stays where it is, for now.
    pub(super) fn stays(&mut self, now: Millis, from: Place) {
        self.left.insert(from);
        self.again_at = now.after(RETRY);
    }

    /// What is not well, in words; empty if all is.
    pub(super) fn complaints(&self) -> String {
        let mut complaints = Vec::new();
        if self.damaged > 0 {
            complaints.push(format!("{} records of the queue's log are damaged", self.damaged));
        }
        if !self.left.is_empty() {
            let count = self.left.len();
            complaints
                .push(format!("{count} records cannot be moved: the queue's log cannot let go of them"));
        }
        complaints.join("; ")
    }
}
