//! Facts: the transitions that change which frames a group still has to settle. A restart applies them again.
//!
//! The broker applies and notes facts in the order in which they happen. The log may lose any of them: then frames are
//! delivered again, or a dead letter that was purged comes back, but no frame is lost.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::terms::GroupId;

/// One transition of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Name of the topic.
    pub topic: Arc<str>,
    /// What happened there.
    pub what: TopicChange,
    /// The group that was made, which has to be on disk before its first members are told that they have joined.
    pub made: Option<GroupId>,
}

/// What happened to a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicChange {
    /// A group was made. An older one of that name has ended.
    GroupMade {
        /// Name of the group.
        group: Arc<str>,
        /// How many groups the topic had before, in all its time.
        life: u32,
        /// The first frame that it wants.
        start: u64,
        /// How long it outlives its last member.
        ttl: Option<Duration>,
    },
    /// A group ended. The frames that only it waited for go, unless it was the last group.
    GroupEnded {
        /// Name of the group.
        group: Arc<str>,
        /// Frames from here on were under way: none of them goes.
        end: u64,
    },
    /// A group settled these frames.
    Settled {
        /// Name of the group.
        group: Arc<str>,
        /// The frames, by offset.
        frames: Range<u64>,
    },
    /// A frame was dropped at the bound, or purged, though groups may still have wanted it.
    Dropped {
        /// Offset of the frame in the topic.
        offset: u64,
    },
}

/// The facts since they were last taken.
#[derive(Debug, Default)]
pub(super) struct TopicFacts(Vec<Fact>);

impl TopicFacts {
    /// Notes a fact. Neighbours that a group settles one after the other are one fact.
    pub(super) fn note(&mut self, topic: &Arc<str>, what: TopicChange, made: Option<GroupId>) {
        if let TopicChange::Settled { group, frames } = &what
            && let Some(Fact {
                topic: last_topic,
                what: TopicChange::Settled { group: last_group, frames: last },
                ..
            }) = self.0.last_mut()
            && last.end == frames.start
            && last_topic == topic
            && last_group == group
        {
            last.end = frames.end;
            return;
        }
        self.0.push(Fact { topic: Arc::clone(topic), what, made });
    }

    pub(super) fn take(&mut self) -> Vec<Fact> {
        std::mem::take(&mut self.0)
    }
}
