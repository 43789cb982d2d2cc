//! Who waits for what the log is asked to do for somebody else.

use std::collections::HashMap;
use std::sync::Arc;

use super::answers::{Joiner, JournalReply, Publisher};
use crate::broker::{Broker, GroupId, PublishError, Receipt, TopicId};

/// Those who wait.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    /// For the outcome of a frame that somebody else sent.
    frames: HashMap<(TopicId, u64), Vec<Publisher>, foldhash::fast::RandomState>,
    /// Until the log has a group that was made.
    groups: Vec<(GroupId, Joiner)>,
}

impl Waiters {
    /// This publisher waits for the frame, too.
    pub(super) fn add_publisher(&mut self, topic: TopicId, offset: u64, publisher: Publisher) {
        self.frames.entry((topic, offset)).or_default().push(publisher);
    }

    /// This joiner waits for the group, too.
    pub(super) fn add_joiner(&mut self, group: GroupId, joiner: Joiner) {
        self.groups.push((group, joiner));
    }

    /// What became of a frame goes to all who wait for it.
    pub(super) fn tell_publishers(
        &mut self,
        broker: &mut Broker,
        (topic, offset): (TopicId, u64),
        outcome: &Result<Receipt, PublishError>,
        replies: &mut Vec<JournalReply>,
    ) {
        for publisher in self.frames.remove(&(topic, offset)).unwrap_or_default() {
            let outcome = outcome.clone().map(|receipt| broker.repeated(topic, &receipt));
            replies.push(JournalReply::Published(publisher, outcome));
        }
    }

    /// What became of a group goes to all who wait for it.
    pub(super) fn tell_joiners(
        &mut self,
        group: GroupId,
        outcome: &Result<(), Arc<str>>,
        replies: &mut Vec<JournalReply>,
    ) {
        let joined = self.groups.extract_if(.., |(joining, _)| *joining == group);
        replies.extend(joined.map(|(_, joiner)| JournalReply::Joined(joiner, outcome.clone())));
    }
}
