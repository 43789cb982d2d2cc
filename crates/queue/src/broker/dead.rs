//! Dead letters: frames that a group has given up on, in a topic of their own beside that of their origin.
//!
//! A frame is published there first, and settled in its topic once it is as durable as that topic promises. Its stamp is
//! made of the group, its life and the frame's offset, so that a repeat after a crash is recognised.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_log::Place;

use super::env::Phase;
use super::facts::TopicChange;
use super::given_up::GivenUp;
use super::group::{Group, UnsettledState};
use super::shelf::Shelf;
use super::terms::{
    AdminError, DeadLetter, DeadSelection, Failure, FrameDurability, Lent, PublishError, Wake,
};
use super::whole::Broker;
use crate::frame::{DeadFacts, Frame, Millis, ProducerStamp};
use crate::name;

/// When a frame whose dead letter could not be stored is delivered again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Frames whose dead letters have one producer id; the offset within such a block is the sequence. Fewer than the
/// sequences that are told apart, because frames die in any order.
const BLOCK: u64 = 64;

impl GivenUp {
    pub(super) fn new(shelf: &Shelf, group: &Group, offset: u64, failure: &Failure) -> Option<Self> {
        let entry = shelf.entries.get(offset)?;
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
        Some(Self {
            topic: shelf.id,
            group: group.id,
            life: group.life,
            facts,
            body: shelf.entries.lend(offset)?,
        })
    }

    /// Where the frame is to be read, if it is not in memory.
    pub fn place(&self) -> Option<Place> {
        self.body.place
    }

    /// The topic of the dead letter.
    pub fn dead_topic(&self) -> String {
        name::dead_topic(&self.facts.topic)
    }

    /// The dead letter. `read` is the frame that was read, if it was not in memory; without it the letter has no payload.
    pub fn letter(&self, read: Option<Frame>) -> Frame {
        let (group, life, offset) = (&self.facts.group, self.life, self.facts.offset);
        // At most 128 bytes, for the longest name of a group too.
        let id = format!("{group}/{life:x}/{}", offset / BLOCK).into();
        let stamp = ProducerStamp { id, sequence: offset % BLOCK };
        let body = read.unwrap_or_else(|| Frame::clone(&self.body.item));
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
        self.give_up_ends(given_up, is_stored);
        if self.env.phase != Phase::Open {
            self.env.wake(Wake::Drained);
        }
    }

    /// The dead letter of a frame is stored, so that the frame is settled; or it could not be stored, and the frame is
    /// delivered again.
    fn give_up_ends(&mut self, given_up: &GivenUp, is_stored: bool) {
        let DeadFacts { group: name, offset, .. } = &given_up.facts;
        let Some(topic) = self.topics.get_mut(given_up.topic.0) else { return };
        let Some(group) = topic.groups.get_mut(name).filter(|group| group.id == given_up.group) else {
            return;
        };
        let state = group.unsettled.get(offset).map(|frame| &frame.state);
        if !matches!(state, Some(UnsettledState::GivenUp)) {
            return;
        }
        if is_stored || !topic.shelf.entries.contains(*offset) {
            topic.settle(&mut self.env, name, *offset);
        } else if let Some(mut frame) = group.detach(*offset) {
            // The delivery that led here is not counted twice.
            frame.failures = frame.failures.saturating_sub(1);
            group.deliver_again(&mut self.env, *offset, frame, AGAIN_AFTER);
        }
    }

    /// Publishes the dead letters of frames that no log keeps.
    pub(super) fn publish_dead_in_memory(&mut self) {
        if self.env.given_up.is_empty() {
            return;
        }
        let (in_memory, kept): (Vec<_>, Vec<_>) = self.take_given_up().into_iter().partition(|given_up| {
            given_up.body.place.is_none() && self.env.durability() == FrameDurability::Memory
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
        if let Ok((_, dead)) = self.open(&given_up.dead_topic()) {
            let count = u64::from(given_up.body.item.count);
            dead.shelf.ledger.published += count;
            dead.shelf.ledger.dropped += count;
            dead.shelf.ledger.too_large_lately.note(now, count);
        }
    }

    /// The topic that holds the dead letters of a topic, if there are any.
    pub(super) fn dead_shelf(&self, topic: &str) -> Option<&Shelf> {
        self.topic(&name::dead_topic(topic)).ok().map(|topic| &topic.shelf)
    }

    /// Dead letters of a topic with ids from `from` on, oldest first, at most `limit`. What is not in memory is to be read
    /// before it is shown.
    ///
    /// # Errors
    ///
    /// No such topic.
    pub fn dead_letters(
        &self,
        topic: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Lent<DeadLetter>>, AdminError> {
        self.topic(topic)?;
        let Some(shelf) = self.dead_shelf(topic) else { return Ok(Vec::new()) };
        let letters = shelf.entries.from(from).take(limit).filter_map(|(id, entry)| {
            let Lent { item, place } = shelf.entries.lend(id)?;
            Some(Lent { item: DeadLetter::of(id, entry.published_at, Frame::clone(&item)), place })
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
        let count = |id: &u64| shelf.entries.get(*id).map(|entry| (*id, entry.count));
        Ok(match selection {
            DeadSelection::Oldest(most) => {
                shelf.entries.iter().take(*most).map(|(id, entry)| (id, entry.count)).collect()
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
                topic.change(&mut self.env, TopicChange::Dropped { offset: *offset });
            }
        }
        Ok(ids.len())
    }
}
