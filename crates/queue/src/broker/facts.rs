//! Facts: the transitions that change which frames a group still has to settle. A restart needs them.
//!
//! The broker notes facts in the order in which they happen. The log may lose any of them: then frames are delivered
//! again, or a dead letter that was purged comes back, but no frame is lost.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// One transition of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// The topic.
    pub topic: Arc<str>,
    /// What happened there.
    pub what: What,
}

/// What happened to a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A group was made, or joined while it was not known to be on disk.
    GroupMade {
        /// Its name.
        group: Arc<str>,
        /// Whether it was made just now: one of that name that is known all the same has ended. If not, this changes
        /// nothing of a group that is known.
        is_new: bool,
        /// The first frame that it wants.
        start: u64,
        /// How long it outlives its last member.
        ttl: Option<Duration>,
    },
    /// A group ended. What only it waited for goes, unless it was the last.
    GroupEnded {
        /// Its name.
        group: Arc<str>,
    },
    /// A group settled these frames.
    Settled {
        /// Its name.
        group: Arc<str>,
        /// The frames, by offset.
        frames: Range<u64>,
    },
    /// A delivery failed, counted, and will be tried again.
    Failed {
        /// The group.
        group: Arc<str>,
        /// The frame.
        offset: u64,
        /// How often its delivery has failed.
        failures: u32,
    },
    /// A frame was dropped at the bound, or purged, though groups may still have wanted it.
    Dropped {
        /// The frame.
        offset: u64,
    },
}

/// The facts since they were last taken.
#[derive(Debug, Default)]
pub(super) struct Facts(Vec<Fact>);

impl Facts {
    pub(super) fn note(&mut self, topic: &Arc<str>, what: What) {
        self.0.push(Fact { topic: Arc::clone(topic), what });
    }

    /// Notes that `group` is done with a frame, in one fact with the frame before it where that came last.
    pub(super) fn note_settled(&mut self, topic: &Arc<str>, group: &Arc<str>, offset: u64) {
        if let Some(Fact { topic: last_topic, what: What::Settled { group: last_group, frames } }) =
            self.0.last_mut()
            && frames.end == offset
            && last_topic == topic
            && last_group == group
        {
            frames.end += 1;
            return;
        }
        self.note(topic, What::Settled { group: Arc::clone(group), frames: offset..offset + 1 });
    }

    pub(super) fn take(&mut self) -> Vec<Fact> {
        std::mem::take(&mut self.0)
    }
}
