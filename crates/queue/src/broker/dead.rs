//! Dead letters: frames that a group has given up on, in a topic of their own beside that of their origin.
//!
//! A frame is published there first, and settled in its topic once it is as durable as that topic promises. Its stamp is
//! made of the group and the frame's offset, so that a repeat after a crash is recognised.

use std::sync::Arc;
use std::time::Duration;

use super::Broker;
use super::env::Phase;
use super::facts::What;
use super::group::{Group, UnsettledState};
use super::shelf::Shelf;
use super::stored::{Home, Lent};
use super::terms::{
    AdminError, DeadLetter, DeadSelection, Durability, Failure, GroupId, PublishError, TopicId, Wake,
};
use crate::frame::{ContentType, DeadFacts, Frame, Millis, ProducerStamp};
use crate::name;

/// When a frame whose dead letter could not be stored is delivered again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Frames whose dead letters have one producer id; the offset within such a block is the sequence. Fewer than the
/// sequences that are told apart, because frames die in any order.
const BLOCK: u64 = 64;

/// A frame that a group has given up on. Its dead letter is to be published, and the outcome told to
/// [`Broker::dead_letter_published`].
#[derive(Clone, Debug)]
pub struct GivenUp {
    topic: TopicId,
    group: GroupId,
    /// Messages in the frame.
    count: u32,
    facts: DeadFacts,
    /// The frame, or where to read it.
    body: Lent<Arc<Frame>>,
}

impl GivenUp {
    pub(super) fn new(shelf: &Shelf, group: &Group, offset: u64, failure: &Failure) -> Option<Self> {
        let entry = shelf.entries.get(&offset)?;
        let frame = group.unsettled.get(&offset)?;
        let attempts = if *failure == Failure::ConsumerGone { frame.losses } else { frame.failures };
        let facts = DeadFacts {
            topic: Arc::clone(&shelf.name),
            group: Arc::clone(&group.name),
            offset,
            attempts,
            reason: DeadFacts::shortened(&failure.to_string()),
            published_at: entry.published_at,
        };
        let (item, home) = entry.stored.lend();
        let body = Lent { item, home };
        Some(Self { topic: shelf.id, group: group.id, count: entry.count, facts, body })
    }

    /// Where the frame is to be read, if it is not in memory.
    pub fn home(&self) -> Option<&Home> {
        self.body.home.as_ref()
    }

    /// The topic of the dead letter.
    pub fn dead_topic(&self) -> String {
        name::dead_topic(&self.facts.topic)
    }

    /// The dead letter. `read` is the frame that was read, if it was not in memory.
    pub fn letter(&self, read: Option<Frame>) -> Frame {
        self.with_body(read.unwrap_or_else(|| Frame::clone(&self.body.item)))
    }

    /// The dead letter of a frame whose bytes are gone.
    pub fn letter_without_payload(&self) -> Frame {
        self.with_body(Frame::new(ContentType::Batch, self.count, Vec::new()))
    }

    fn with_body(&self, body: Frame) -> Frame {
        let DeadFacts { group, offset, .. } = &self.facts;
        let stamp =
            ProducerStamp { id: format!("{group}/{}", offset / BLOCK).into(), sequence: offset % BLOCK };
        Frame { producer: Some(stamp), dead: Some(Box::new(self.facts.clone())), ..body }
    }
}

impl DeadLetter {
    /// The letter that a frame in a topic of dead letters is.
    pub(crate) fn of(id: u64, died_at: Millis, mut frame: Frame) -> Self {
        frame.producer = None;
        let facts = frame.dead.take().map(|facts| *facts);
        Self { id, died_at, facts: facts.unwrap_or_default(), frame: Arc::new(frame) }
    }
}

impl Group {
    /// The dead letter of a frame is stored, so that the frame is settled; or it could not be stored, and the frame is
    /// delivered again.
    fn dead_letter_published(&mut self, broker: (&mut super::Env, &mut Shelf), offset: u64, is_stored: bool) {
        let (env, shelf) = broker;
        let is_given_up = |frame: &super::group::Unsettled| matches!(frame.state, UnsettledState::GivenUp);
        if !self.unsettled.get(&offset).is_some_and(is_given_up) {
            return;
        }
        let Some(mut frame) = self.detach(offset) else { return };
        if is_stored || !shelf.entries.contains_key(&offset) {
            self.note_settled(env, shelf, offset);
            self.settled(env, shelf, offset, frame.count);
        } else {
            // The delivery that led here is not counted twice.
            frame.failures = frame.failures.saturating_sub(1);
            self.deliver_again(env, offset, frame, AGAIN_AFTER);
        }
    }
}

impl Broker {
    /// Whether dead letters are to be published by the caller.
    pub fn has_given_up(&self) -> bool {
        !self.env.given_up.is_empty()
    }

    /// Frames that groups have given up on since the last call; their dead letters are to be published. A broker without
    /// a log publishes them itself.
    pub fn take_given_up(&mut self) -> Vec<GivenUp> {
        std::mem::take(&mut self.env.given_up)
    }

    /// What became of a dead letter. One that its topic can never hold is dropped, as at the topic's bound.
    pub fn dead_letter_published(
        &mut self,
        now: Millis,
        given_up: &GivenUp,
        outcome: &Result<(), PublishError>,
    ) {
        self.advance(now);
        self.env.dying = self.env.dying.saturating_sub(1);
        if matches!(outcome, Err(PublishError::TooLarge { .. })) {
            self.drop_dead_letter(given_up);
        }
        let is_stored = matches!(outcome, Ok(()) | Err(PublishError::TooLarge { .. }));
        if let Some(topic) = self.topics.get_mut(given_up.topic.0)
            && let Some(group) = topic.groups.get_mut(&given_up.group)
        {
            let broker = (&mut self.env, &mut topic.shelf);
            group.dead_letter_published(broker, given_up.facts.offset, is_stored);
        }
        if self.env.phase != Phase::Open {
            self.env.wake(Wake::Drained);
        }
    }

    /// Publishes the dead letters of frames that no log keeps.
    pub(super) fn publish_dead_in_memory(&mut self) {
        if self.env.given_up.is_empty() {
            return;
        }
        let (in_memory, kept): (Vec<_>, Vec<_>) = self.take_given_up().into_iter().partition(|given_up| {
            given_up.body.home.is_none() && self.env.durability(&given_up.facts.topic) == Durability::Memory
        });
        self.env.given_up = kept;
        let now = self.env.now;
        for given_up in in_memory {
            let frame = Arc::new(given_up.letter(None));
            let outcome = self.publish(now, &given_up.dead_topic(), &frame).map(drop);
            self.dead_letter_published(now, &given_up, &outcome);
        }
    }

    fn drop_dead_letter(&mut self, given_up: &GivenUp) {
        let now = self.env.now;
        if let Ok((_, _, dead)) = self.open(&given_up.dead_topic()) {
            let count = u64::from(given_up.count);
            dead.shelf.ledger.published += count;
            dead.shelf.ledger.dropped += count;
            dead.shelf.ledger.too_large_lately.note(now, count);
        }
    }

    /// The topic that holds the dead letters of a topic, if there are any.
    pub(super) fn dead_shelf(&self, topic: &str) -> Option<&Shelf> {
        self.topic(&name::dead_topic(topic)).ok().map(|topic| &topic.shelf)
    }

    /// Dead letters of a topic with ids from `from` on, oldest first, at most `limit`. For a broker whose frames are all
    /// in memory, as [`Broker::receive`].
    ///
    /// # Errors
    ///
    /// No such topic.
    pub fn dead_letters(&self, topic: &str, from: u64, limit: usize) -> Result<Vec<DeadLetter>, AdminError> {
        Ok(self.lend_dead_letters(topic, from, limit)?.into_iter().map(|lent| lent.item).collect())
    }

    /// The same. What is not in memory is to be read before it is shown.
    ///
    /// # Errors
    ///
    /// No such topic.
    pub fn lend_dead_letters(
        &self,
        topic: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Lent<DeadLetter>>, AdminError> {
        self.topic(topic)?;
        let entries = self.dead_shelf(topic).into_iter().flat_map(|shelf| shelf.entries.range(from..));
        let letters = entries.take(limit).map(|(id, entry)| {
            let (frame, home) = entry.stored.lend();
            let frame = Frame { count: entry.count, ..Frame::clone(&frame) };
            Lent { item: DeadLetter::of(*id, entry.published_at, frame), home }
        });
        Ok(letters.collect())
    }

    /// Ids of the selected dead letters and the number of their messages, oldest first.
    ///
    /// # Errors
    ///
    /// No such topic.
    pub fn select_dead(&self, topic: &str, selection: &DeadSelection) -> Result<Vec<(u64, u32)>, AdminError> {
        self.topic(topic)?;
        let Some(shelf) = self.dead_shelf(topic) else { return Ok(Vec::new()) };
        let count = |id: &u64| shelf.entries.get(id).map(|entry| (*id, entry.count));
        Ok(match selection {
            DeadSelection::Oldest(most) => {
                shelf.entries.iter().take(*most).map(|(id, entry)| (*id, entry.count)).collect()
            }
            DeadSelection::Ids(ids) => {
                let mut ids = ids.clone();
                ids.sort_unstable();
                ids.dedup();
                ids.iter().filter_map(count).collect()
            }
        })
    }

    /// Throws dead letters away. Answers how many.
    ///
    /// # Errors
    ///
    /// No such topic.
    pub fn purge_dead(
        &mut self,
        now: Millis,
        topic: &str,
        selection: &DeadSelection,
    ) -> Result<usize, AdminError> {
        self.advance(now);
        let ids = self.select_dead(topic, selection)?;
        if let Some(id) = self.topic_named(&name::dead_topic(topic))
            && let Some(topic) = self.topics.get_mut(id.0)
        {
            for (offset, _) in &ids {
                topic.shelf.note(&mut self.env, What::Dropped { offset: *offset });
                topic.shelf.take(&mut self.env, *offset);
            }
        }
        Ok(ids.len())
    }
}
