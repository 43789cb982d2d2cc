//! What is done about the log under the broker's lock: its answers taken in, checkpoints made, segments let go.

use std::sync::Arc;

use bytes::Bytes;
use gpuvitals_core::quantity::counted;
use gpuvitals_log::{Appended, Durability, Log, LogError, Place};

use super::answers::{Append, Joiner, Journal, JournalReply, LogAnswer, Publisher};
use super::checkpoint::encode_state;
use super::checkpoints::Checkpoints;
use super::definers::Definers;
use super::fact_record::encode_facts;
use super::kinds::{CHECKPOINT, FACTS, MOVED, in_words};
use super::reclaim::Reclaim;
use super::waiters::Waiters;
use crate::broker::{Broker, GroupId, PublishError, Receipt, TopicId};
use crate::config::QueueConfig;
use crate::frame::Millis;
use crate::trouble::{Cause, Recent, Trouble};

/// Longest record of facts or of producers, in segments large enough for it.
const RECORD_LEN_MAX: usize = 256 << 10;
/// What is known of the log, under the broker's lock.
#[derive(Debug)]
pub(crate) struct Keeper {
    newest_segment: u64,
    checkpoints: Checkpoints,
    pub(crate) definers: Definers,
    reclaim: Reclaim,
    waiters: Waiters,
    damage: Vec<String>,
    /// Writes that failed lately, and why the last one did.
    unwritten: (Recent, Arc<str>),
    /// Reads that failed lately, and why the last one did.
    unread: (Recent, Arc<str>),
    poisoned: Option<Arc<str>>,
    was_full: bool,
}

impl Keeper {
    pub(crate) fn new(config: &QueueConfig, newest_segment: u64, damage: Vec<String>) -> Self {
        Self {
            newest_segment,
            checkpoints: Checkpoints::default(),
            definers: Definers::default(),
            reclaim: Reclaim::new(config.sync_every),
            waiters: Waiters::default(),
            damage,
            unwritten: Default::default(),
            unread: Default::default(),
            poisoned: None,
            was_full: false,
        }
    }

    /// When the log is to be looked after at the latest.
    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        let deadlines = [self.reclaim.next_deadline(), self.checkpoints.next_deadline()];
        deadlines.into_iter().flatten().min().filter(|_| self.poisoned.is_none())
    }

    /// Something was written that nothing else syncs.
    pub(crate) fn written(&mut self, now: Millis) {
        self.reclaim.written(now);
    }

    /// The same frame is under way: what becomes of it is told to `publisher` too.
    pub(crate) fn wait_for(&mut self, topic: TopicId, offset: u64, publisher: Publisher) {
        self.waiters.add_publisher(topic, offset, publisher);
    }

    /// The log is being told of this group: what becomes of that is told to `joiner` too.
    pub(crate) fn wait_for_group(&mut self, group: GroupId, joiner: Joiner) {
        self.waiters.add_joiner(group, joiner);
    }

    /// Hands the broker's facts to the log. A group that was made is synced: somebody waits for that.
    pub(crate) fn keep_facts(
        &mut self,
        journal: &Journal,
        broker: &mut Broker,
        now: Millis,
        append: Append<'_>,
    ) {
        let facts = broker.take_facts();
        if facts.is_empty() {
            return;
        }
        for (record, facts) in encode_facts(&facts, RECORD_LEN_MAX.min(quarter(&journal.config))) {
            let made: Vec<_> = facts.iter().filter_map(|fact| fact.made).collect();
            let durability = if made.is_empty() { Durability::Written } else { Durability::Synced };
            append(FACTS, record.into(), durability, Box::new(|outcome| LogAnswer::Facts { made, outcome }));
        }
        self.written(now);
    }

    /// Takes an answer of the log in.
    pub(crate) fn take_in(
        &mut self,
        broker: &mut Broker,
        now: Millis,
        done: LogAnswer,
        replies: &mut Vec<JournalReply>,
    ) {
        match done {
            LogAnswer::Checked(outcome) => drop(self.noted(broker, now, outcome)),
            LogAnswer::Unread(reason) => failed(&mut self.unread, now, reason),
            LogAnswer::Frame { topic, offset, handed, publisher, outcome } => {
                if let (Ok(appended), Some(handed)) = (&outcome, handed) {
                    self.definers.landed(topic, handed, appended.place);
                }
                let outcome = self.landed(broker, now, topic, offset, outcome);
                self.waiters.tell_publishers(broker, (topic, offset), &outcome, replies);
                replies.push(JournalReply::Published(publisher, outcome));
            }
            LogAnswer::Facts { made, outcome } => {
                let outcome = self.noted(broker, now, outcome);
                match &outcome {
                    Ok(appended) => self.reached(now, appended.place),
                    Err(_) => self.checkpoints.facts_were_lost(now),
                }
                let outcome = outcome.map(|_| ()).map_err(|error| in_words(&error));
                for group in made {
                    broker.group_is_kept(group, outcome.is_ok());
                    self.waiters.tell_joiners(group, &outcome, replies);
                }
            }
            LogAnswer::Checkpoint(outcome) => {
                let outcome = self.noted(broker, now, outcome);
                if let Ok(appended) = &outcome {
                    // The checkpoint itself may have begun a segment: that one has its checkpoint now.
                    self.newest_segment = self.newest_segment.max(appended.place.segment());
                }
                if self.checkpoints.answered(now, outcome.ok().map(|appended| appended.sequence)) {
                    // Segments may go.
                    self.written(now);
                }
            }
            LogAnswer::Moved { topic, offset, from, outcome } => {
                let outcome = self.noted(broker, now, outcome);
                self.reclaim.no_longer_moves(now, outcome.is_ok());
                if let Ok(appended) = outcome {
                    self.reached(now, appended.place);
                    broker.moved(topic, offset, from, Some(appended.place));
                }
            }
            LogAnswer::Synced { before, outcome } => {
                let outcome = self.noted(broker, now, outcome).map(|_| ());
                // Facts that the log lost were answered before.
                if outcome.is_ok() && self.checkpoints.may_let_go() {
                    self.reclaim.let_go(before);
                }
                self.try_again(now, &outcome);
            }
            LogAnswer::Truncated(outcome) => {
                let outcome = self.noted(broker, now, outcome);
                if matches!(outcome, Ok(1..)) {
                    // The segment that is the oldest now may be one to move out of.
                    self.written(now);
                }
                self.try_again(now, &outcome.map(|_| ()));
            }
        }
    }

    /// A sync or a truncation that was not done is still wanted.
    fn try_again(&mut self, now: Millis, outcome: &Result<(), LogError>) {
        if !matches!(outcome, Ok(()) | Err(LogError::Poisoned { .. } | LogError::Closed)) {
            self.written(now);
        }
    }

    /// Remembers what went wrong. Where the log had no room, it has some once it answers.
    fn noted<T>(
        &mut self,
        broker: &mut Broker,
        now: Millis,
        outcome: Result<T, LogError>,
    ) -> Result<T, LogError> {
        match &outcome {
            Err(error @ LogError::Poisoned { .. }) => {
                self.poisoned.get_or_insert_with(|| in_words(error));
            }
            Err(error @ LogError::Write { .. }) => failed(&mut self.unwritten, now, in_words(error)),
            _ => {}
        }
        if !matches!(outcome, Err(LogError::Full { .. })) && std::mem::take(&mut self.was_full) {
            broker.wake_publishers();
        }
        outcome
    }

    /// A record stands there. A checkpoint is due in each segment.
    fn reached(&mut self, now: Millis, place: Place) {
        if place.segment() > self.newest_segment {
            self.newest_segment = place.segment();
            self.checkpoints.hurry(now);
        }
    }

    fn landed(
        &mut self,
        broker: &mut Broker,
        now: Millis,
        topic: TopicId,
        offset: u64,
        outcome: Result<Appended, LogError>,
    ) -> Result<Receipt, PublishError> {
        match self.noted(broker, now, outcome) {
            Ok(appended) => {
                self.reached(now, appended.place);
                broker.land(topic, offset, appended.place).ok_or(PublishError::Closed)
            }
            Err(error) => {
                let frame = broker.give_up(topic, offset);
                if !matches!(error, LogError::Full { .. }) {
                    broker.wake_publishers();
                }
                Err(match error {
                    LogError::Full { .. } => {
                        self.was_full = true;
                        // What the log still has to write may have been answered meanwhile; a sync is answered later.
                        self.written(now);
                        let topic = broker.topic_name(topic).unwrap_or_default();
                        PublishError::full(topic, None)
                    }
                    LogError::TooLarge { .. } => {
                        let (messages, bytes) =
                            frame.map_or((0, 0), |frame| (frame.count, frame.cost_bytes()));
                        PublishError::TooLarge { messages, bytes }
                    }
                    LogError::Closed => PublishError::Closed,
                    error => {
                        let passes = !matches!(error, LogError::Poisoned { .. });
                        PublishError::Storage { reason: in_words(&error), passes }
                    }
                })
            }
        }
    }

    /// Makes a checkpoint before anything else is taken: it holds the offsets that are left out, so that none comes again
    /// in any later life. Blocks on the disk. If the disk is full, it is tried again later.
    pub(crate) fn first_checkpoint(&mut self, log: &Log, broker: &Broker) {
        let tickets: Vec<_> = records(broker)
            .into_iter()
            .map(|record| log.append(CHECKPOINT, record.into(), Durability::Synced))
            .collect();
        let appended: Result<Vec<_>, _> = tickets.into_iter().map(gpuvitals_log::Ticket::wait).collect();
        let Ok(appended) = appended else { return self.checkpoints.hurry(Millis(0)) };
        self.checkpoints.made(appended.first().map(|first| first.sequence));
        self.newest_segment = appended.last().map_or(0, |last| last.place.segment());
    }

    /// Makes a checkpoint, if one is due.
    pub(crate) fn checkpoint(&mut self, broker: &Broker, now: Millis, append: Append<'_>) {
        if self.poisoned.is_some() || !self.checkpoints.is_due(now) {
            return;
        }
        let records = records(broker);
        self.checkpoints.begin(records.len());
        let last = records.len().saturating_sub(1);
        for (at, record) in records.into_iter().enumerate() {
            let durability = if at == last { Durability::Synced } else { Durability::Written };
            append(CHECKPOINT, record.into(), durability, Box::new(LogAnswer::Checkpoint));
        }
    }

    /// Whether what was written is to be synced now.
    pub(crate) fn take_sync(&mut self, now: Millis) -> bool {
        self.reclaim.take_sync(now)
    }

    /// The sequence before which the log's segments can go, if there are such, once all that was noted so far is on disk:
    /// a crash may take back the facts by which they are not needed, as long as they are there.
    pub(crate) fn unneeded(&self, journal: &Journal, broker: &Broker) -> Option<u64> {
        let held_from = broker.oldest_segment().unwrap_or(u64::MAX);
        let before = self.checkpoints.needed_from()?.min(held_from);
        let oldest = journal.log.segments().into_iter().next()?;
        (oldest.end <= before).then_some(before)
    }

    /// The sequence before which segments are to go now.
    pub(crate) fn take_truncation(&mut self) -> Option<u64> {
        self.reclaim.take_truncation()
    }

    /// What is to be moved out of the oldest segment, if the log is far larger than what is held: as much as is moved at
    /// once. Each record is to be [moved](Keeper::move_record).
    pub(crate) fn take_moves(&mut self, journal: &Journal, broker: &Broker) -> Vec<(TopicId, u64, Place)> {
        if self.poisoned.is_some() { Vec::new() } else { self.reclaim.take_moves(journal, broker) }
    }

    /// Writes a frame's record again, if the frame is still held.
    pub(crate) fn move_record(
        &mut self,
        broker: &mut Broker,
        now: Millis,
        (topic, offset, from): (TopicId, u64, Place),
        record: Result<Bytes, LogError>,
        append: Append<'_>,
    ) {
        let is_well = match record {
            // In this order: a frame that is moved is held there, in the log too.
            Ok(record) if broker.lies_at(topic, offset, from) => {
                let done = move |outcome| LogAnswer::Moved { topic, offset, from, outcome };
                return append(MOVED, record, Durability::Synced, Box::new(done));
            }
            // It is not what was written: nothing is gained by keeping its segment.
            Err(error @ LogError::Damaged { .. }) => {
                tracing::warn!(%error, "a record of the queue's log is damaged");
                let words = error.to_string();
                if !self.damage.contains(&words) {
                    self.damage.push(words);
                }
                broker.moved(topic, offset, from, None);
                true
            }
            Err(error @ LogError::Read { .. }) => {
                failed(&mut self.unread, now, in_words(&error));
                false
            }
            other => other.is_ok(),
        };
        self.reclaim.no_longer_moves(now, is_well);
    }

    /// Why the log takes nothing more, if it does not.
    pub(crate) fn poisoned(&self) -> Option<Arc<str>> {
        self.poisoned.clone()
    }

    /// What is not well with the log.
    pub(crate) fn troubles(&self, now: Millis) -> Vec<Trouble> {
        let damage = self.damage.iter().map(|words| Trouble::new(Cause::Damage, words.clone()));
        let passing = [(&self.unwritten, Cause::Store, "store"), (&self.unread, Cause::Read, "read back")];
        let passing = passing.into_iter().filter_map(|((recent, reason), cause, what)| {
            let times = counted(recent.lately(now)?, "time");
            Some(Trouble::new(cause, format!("queue cannot {what}: {reason} ({times})")))
        });
        let poisoned = self.poisoned.iter().map(|why| format!("queue takes nothing: {why}"));
        let poisoned = poisoned.map(|words| Trouble::new(Cause::Poisoned, words));
        damage.chain(passing).chain(poisoned).collect()
    }
}

fn failed(lately: &mut (Recent, Arc<str>), now: Millis, reason: Arc<str>) {
    lately.0.note(now, 1);
    lately.1 = reason;
}

/// Records are a part of a segment, so that a roll wastes little.
fn quarter(config: &QueueConfig) -> usize {
    usize::try_from(config.segment_len / 4).unwrap_or(usize::MAX)
}

fn records(broker: &Broker) -> Vec<Vec<u8>> {
    encode_state(&broker.state(), RECORD_LEN_MAX.min(quarter(broker.config())))
}
