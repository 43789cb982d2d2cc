//! A frame is given up, and its dead letter is to be published.

use std::sync::Arc;

use super::terms::{GroupId, Lent, TopicId};
use crate::frame::{DeadFacts, Frame};

/// A frame that a group has given up on. Its dead letter is to be published, and the outcome told to
/// [`Broker::dead_letter_published`](super::Broker::dead_letter_published).
#[derive(Clone, Debug)]
pub struct GivenUp {
    pub(super) topic: TopicId,
    pub(super) group: GroupId,
    pub(super) life: u32,
    pub(super) facts: DeadFacts,
    /// The frame, or where to read it.
    pub(super) body: Lent<Arc<Frame>>,
}
