//! What is done about the log under the broker's lock: its answers taken in, checkpoints made, segments let go.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gpuvitals_core::quantity::counted;
use gpuvitals_log::{Appended, Durability, Log, LogError, Place};

use super::answers::{Append, Done, Joiner, Journal, Publisher, Reply};
use super::checkpoint::PieceMaker;
use super::checkpoints::{Checkpoints, Ended, Piece};
use super::fact_record::encode_facts;
use super::moves::Moves;
use super::{CHECKPOINT, FACTS, MOVED, in_words};
use crate::broker::{Broker, ConsumerId, Home, Pin, PublishError, Receipt, Snapshot, TopicId};
use crate::config::QueueConfig;
use crate::frame::Millis;
use crate::trouble::{Cause, Recent, Trouble};

/// Longest record of facts, and longest piece of a checkpoint, in segments large enough for them.
const FACTS_LEN_MAX: usize = 256 << 10;
const PIECE_LEN_MAX: usize = 1 << 20;
/// Segments that the log may have beyond twice what is held, before records are moved.
const SLACK_SEGMENTS: u64 = 4;

/// What is known of the log, under the broker's lock.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// Held by what lies in each segment.
    pins: BTreeMap<u64, Arc<Pin>>,
    newest_segment: u64,
    checkpoints: Checkpoints,
    moves: Moves,
    is_truncating: bool,
    /// Segments before it may go: what made them unneeded is on disk.
    secured: Option<u64>,
    sync_every: Duration,
    /// When what was only written is to be synced.
    sync_at: Option<Millis>,
    /// Who waits for the outcome of a frame that somebody else sent.
    repeats: HashMap<(TopicId, u64), Vec<Publisher>, foldhash::fast::RandomState>,
    /// Who has joined a group that the log has, while facts are missing in it.
    joined: Vec<(ConsumerId, Joiner)>,
    damage: Vec<String>,
    /// Writes that failed lately, and why the last one did.
    unwritten: (Recent, Arc<str>),
    /// Reads that failed lately, and why the last one did.
    unread: (Recent, Arc<str>),
    poisoned: Option<Arc<str>>,
    was_full: bool,
}

impl Keeper {
    /// `newest_checkpoint` is its first sequence.
    pub(crate) fn new(
        config: &QueueConfig,
        pins: BTreeMap<u64, Arc<Pin>>,
        newest_checkpoint: Option<u64>,
        damage: Vec<String>,
    ) -> Self {
        Self {
            newest_segment: pins.keys().next_back().copied().unwrap_or(0),
            pins,
            checkpoints: Checkpoints::new(newest_checkpoint),
            moves: Moves::default(),
            is_truncating: false,
            secured: None,
            sync_every: config.sync_every,
            sync_at: None,
            repeats: HashMap::default(),
            joined: Vec::new(),
            damage,
            unwritten: Default::default(),
            unread: Default::default(),
            poisoned: None,
            was_full: false,
        }
    }

    /// When the log is to be looked after at the latest.
    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        let deadlines = [self.sync_at, self.checkpoints.next_deadline()];
        deadlines.into_iter().flatten().min().filter(|_| self.poisoned.is_none())
    }

    /// Something was written that nothing else syncs.
    pub(crate) fn written(&mut self, now: Millis) {
        self.sync_at.get_or_insert(now.after(self.sync_every));
    }

    /// The same frame is under way: what becomes of it is told to `publisher` too.
    pub(crate) fn wait_for(&mut self, topic: TopicId, offset: u64, publisher: Publisher) {
        self.repeats.entry((topic, offset)).or_default().push(publisher);
    }

    /// Hands the broker's facts to the log. `joined` is told when they are on disk.
    pub(crate) fn keep_facts(
        &mut self,
        journal: &Journal,
        broker: &mut Broker,
        now: Millis,
        joined: Option<(ConsumerId, Joiner)>,
        append: Append<'_>,
    ) {
        let facts = broker.take_facts();
        if facts.is_empty() && joined.is_none() {
            return;
        }
        let mut records = encode_facts(&facts, FACTS_LEN_MAX.min(quarter(&journal.config)));
        let last = records.pop().unwrap_or_default();
        for record in records {
            append(
                FACTS,
                record.into(),
                Durability::Written,
                Box::new(|outcome| Done::Facts { joined: None, outcome }),
            );
        }
        let durability = if joined.is_some() { Durability::Synced } else { Durability::Written };
        append(FACTS, last.into(), durability, Box::new(|outcome| Done::Facts { joined, outcome }));
        self.written(now);
    }

    /// Takes an answer of the log in.
    pub(crate) fn take_in(&mut self, broker: &mut Broker, now: Millis, done: Done, replies: &mut Vec<Reply>) {
        match done {
            Done::Unread(reason) => failed(&mut self.unread, now, reason),
            Done::Frame { topic, offset, payload, publisher, outcome } => {
                let outcome = self.landed(broker, now, topic, offset, payload, outcome);
                for repeat in self.repeats.remove(&(topic, offset)).unwrap_or_default() {
                    let outcome = outcome.clone().map(|receipt| broker.repeated(topic, &receipt));
                    replies.push(Reply::Published(repeat, outcome));
                }
                replies.push(Reply::Published(publisher, outcome));
            }
            Done::Facts { joined, outcome } => {
                let outcome =
                    self.noted(broker, now, outcome).map(|appended| self.reached(now, appended.place));
                if outcome.is_err() {
                    self.checkpoints.facts_were_lost(now);
                }
                let outcome = outcome.map(|_| ()).map_err(|error| in_words(&error));
                match joined {
                    // Its group may have been made by facts that are lost, and what others settled since would count
                    // before it: only a checkpoint puts that right.
                    Some(joined) if outcome.is_ok() && !self.checkpoints.are_whole() => {
                        self.joined.push(joined);
                        self.checkpoints.hurry(now);
                    }
                    joined => tell_joined(broker, now, joined, &outcome, replies),
                }
            }
            Done::Piece { piece, outcome } => {
                let outcome = self.noted(broker, now, outcome);
                self.piece(broker, now, piece, &outcome, replies);
            }
            Done::Moved { from, outcome } => {
                let outcome = self.noted(broker, now, outcome);
                self.moved(broker, now, &from, &outcome);
            }
            Done::Synced(outcome) => {
                let outcome = self.noted(broker, now, outcome).map(|_| ());
                self.try_again(now, &outcome);
            }
            Done::Secured { before, outcome } => {
                let outcome = self.noted(broker, now, outcome).map(|_| ());
                // Facts that the log lost were answered before.
                if outcome.is_ok() && self.checkpoints.may_let_go() {
                    self.secured = Some(before);
                } else {
                    self.is_truncating = false;
                    self.try_again(now, &outcome);
                }
            }
            Done::Truncated(outcome) => {
                self.is_truncating = false;
                let outcome = self.noted(broker, now, outcome).map(|_| ());
                self.try_again(now, &outcome);
            }
        }
        if let Some(reason) = &self.poisoned {
            let refused = Err(Arc::clone(reason));
            tell_joined(broker, now, self.joined.drain(..), &refused, replies);
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

    /// The pin of the segment that a record is in. A checkpoint is due in each segment.
    fn reached(&mut self, now: Millis, place: Place) -> Arc<Pin> {
        let segment = place.segment();
        if segment > self.newest_segment {
            self.newest_segment = segment;
            self.checkpoints.hurry(now);
        }
        Arc::clone(self.pins.entry(segment).or_default())
    }

    fn landed(
        &mut self,
        broker: &mut Broker,
        now: Millis,
        topic: TopicId,
        offset: u64,
        payload: Bytes,
        outcome: Result<Appended, LogError>,
    ) -> Result<Receipt, PublishError> {
        match self.noted(broker, now, outcome) {
            Ok(appended) => {
                let home = Home { offset, place: appended.place, pin: self.reached(now, appended.place) };
                broker.land(topic, offset, home, payload).ok_or(PublishError::Closed)
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
                        PublishError::Full { topic, retry_after: None }
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

    fn piece(
        &mut self,
        broker: &mut Broker,
        now: Millis,
        piece: Piece,
        outcome: &Result<Appended, LogError>,
        replies: &mut Vec<Reply>,
    ) {
        if let Ok(appended) = outcome {
            // The checkpoint itself may have begun a segment: that one has its checkpoint now.
            self.newest_segment = self.newest_segment.max(appended.place.segment());
        }
        let written = outcome.as_ref().ok().map(|appended| appended.sequence);
        let Some(ended) = self.checkpoints.piece(now, piece, written) else { return };
        if ended == Ended::Kept {
            // Segments may go.
            self.written(now);
        }
        let outcome = match outcome {
            Err(error) => Err(in_words(error)),
            Ok(_) if ended == Ended::Failed => Err("a checkpoint could not be written".into()),
            Ok(_) => Ok(()),
        };
        if outcome.is_err() || self.checkpoints.are_whole() {
            tell_joined(broker, now, self.joined.drain(..), &outcome, replies);
        } else if !self.joined.is_empty() {
            self.checkpoints.hurry(now);
        }
    }

    fn moved(&mut self, broker: &mut Broker, now: Millis, from: &Home, outcome: &Result<Appended, LogError>) {
        let topic = self.moves.answered(from.place);
        let home = match outcome {
            Ok(Appended { place, .. }) => {
                Home { offset: from.offset, place: *place, pin: self.reached(now, *place) }
            }
            // It is not what was written: nothing is gained by keeping its segment.
            Err(LogError::Damaged { .. } | LogError::Gone { .. }) => {
                self.moves.damaged();
                Home { pin: Arc::new(Pin), ..from.clone() }
            }
            Err(_) => return self.moves.stays(now, from.place),
        };
        if let Some(topic) = topic {
            broker.rehome(from.place, &home, topic, from.offset);
        }
        self.checkpoints.want(now);
    }

    /// Makes a checkpoint before anything else is taken: it holds the offsets that are left out, so that none comes again
    /// in any later life. Blocks on the disk. If the disk is full, it is tried again later.
    pub(crate) fn first_checkpoint(&mut self, log: &Log, broker: &Broker) {
        let snapshot = broker.snapshot();
        let mut maker = PieceMaker::new(0, piece_len_max(broker.config()));
        let head = maker.head(snapshot.decided());
        let pieces = head.into_iter().chain(maker.image(&snapshot.image()));
        let tickets: Vec<_> =
            pieces.map(|piece| log.append(CHECKPOINT, piece.into(), Durability::Synced)).collect();
        let appended: Result<Vec<_>, _> = tickets.into_iter().map(gpuvitals_log::Ticket::wait).collect();
        if let Ok(appended) = appended {
            self.checkpoints.made_first(appended.first().map(|first| first.sequence));
            self.newest_segment = appended.last().map_or(0, |last| last.place.segment());
        }
    }

    /// Makes a checkpoint at the end, if something has changed.
    pub(crate) fn last_checkpoint(&mut self, journal: &Journal, broker: &Broker, append: Append<'_>) {
        self.checkpoints.begin_again();
        if let Some(draft) = self.checkpoint(journal, broker, Millis(0), append) {
            draft.finish(append);
        }
    }

    /// Begins a checkpoint of this moment if one is due; it is to be [finished](CheckpointDraft::finish).
    pub(crate) fn checkpoint(
        &mut self,
        journal: &Journal,
        broker: &Broker,
        now: Millis,
        append: Append<'_>,
    ) -> Option<CheckpointDraft> {
        if self.poisoned.is_some() {
            return None;
        }
        let number = self.checkpoints.begin(now)?;
        let snapshot = broker.snapshot();
        let mut maker = PieceMaker::new(number, piece_len_max(&journal.config));
        for (at, piece) in maker.head(snapshot.decided()).into_iter().enumerate() {
            let piece_at = Piece { number, is_first: at == 0, is_last: false };
            append_piece(piece_at, piece, append);
        }
        Some(CheckpointDraft { number, maker, snapshot })
    }

    /// Whether what was written is to be synced now.
    pub(crate) fn take_sync(&mut self, now: Millis) -> bool {
        self.sync_at.take_if(|at| *at <= now).is_some()
    }

    /// The sequence before which the log's segments can go, if there are such, once all that was noted so far is on disk:
    /// a crash may take back the facts by which they are not needed, as long as they are there.
    pub(crate) fn truncation(&mut self, journal: &Journal) -> Option<u64> {
        let needed_from = self.checkpoints.needed_from()?;
        if self.is_truncating || !self.checkpoints.may_let_go() {
            return None;
        }
        while let Some(oldest) = self.pins.first_entry() {
            if Arc::strong_count(oldest.get()) > 1 || *oldest.key() >= self.newest_segment {
                break;
            }
            oldest.remove();
        }
        let held = self.pins.keys().next().copied().unwrap_or(u64::MAX);
        let before = needed_from.min(held);
        let segments = journal.log.segments();
        let can_go = segments.len() > 1 && segments.first().is_some_and(|oldest| oldest.end <= before);
        self.is_truncating = can_go;
        can_go.then_some(before)
    }

    /// The sequence before which segments are to go now.
    pub(crate) fn take_secured(&mut self) -> Option<u64> {
        self.secured.take()
    }

    /// Looks for records to be moved out of the oldest segment, if the log is far larger than what is held. What is found
    /// is to be [answered](Keeper::begin_moving).
    pub(crate) fn look_for_moves(&mut self, journal: &Journal, broker: &Broker) -> Option<(u64, Snapshot)> {
        if self.moves.are_under_way() || self.poisoned.is_some() {
            return None;
        }
        let segments = journal.log.segments();
        let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let bound = broker
            .kept_bytes()
            .saturating_mul(2)
            .saturating_add(SLACK_SEGMENTS * u64::from(journal.config.segment_len));
        let oldest = segments.first().map_or(0, |segment| segment.base);
        let is_held = self.pins.get(&oldest).is_some_and(|pin| Arc::strong_count(pin) > 1);
        if bytes <= bound || !is_held {
            return None;
        }
        self.moves.looking();
        Some((oldest, broker.snapshot()))
    }

    /// What is moved now of what was found. Each is to be answered.
    pub(crate) fn begin_moving(&mut self, now: Millis, found: Vec<(Home, TopicId)>) -> Vec<Home> {
        self.moves.begin(now, found)
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
        let records = Some(self.moves.complaints()).filter(|words| !words.is_empty());
        let records = records.map(|words| Trouble::new(Cause::Records, words));
        let poisoned = self.poisoned.iter().map(|why| format!("queue takes nothing: {why}"));
        let poisoned = poisoned.map(|words| Trouble::new(Cause::Poisoned, words));
        damage.chain(passing).chain(records).chain(poisoned).collect()
    }
}

fn failed(lately: &mut (Recent, Arc<str>), now: Millis, reason: Arc<str>) {
    lately.0.note(now, 1);
    lately.1 = reason;
}

/// A checkpoint whose moment is marked in the log, and whose image is not made yet.
#[derive(Debug)]
pub(crate) struct CheckpointDraft {
    number: u64,
    maker: PieceMaker,
    snapshot: Snapshot,
}

impl CheckpointDraft {
    /// Makes the image and hands it to the log. It takes a step for each frame that is held, and needs no lock.
    pub(crate) fn finish(mut self, append: Append<'_>) {
        let image = self.snapshot.image();
        // What it holds in common with the broker is copied there with each change.
        drop(self.snapshot);
        let pieces = self.maker.image(&image);
        let last = pieces.len().saturating_sub(1);
        for (at, piece) in pieces.into_iter().enumerate() {
            let piece_at = Piece { number: self.number, is_first: false, is_last: at == last };
            append_piece(piece_at, piece, append);
        }
    }
}

fn append_piece(piece_at: Piece, piece: Vec<u8>, append: Append<'_>) {
    let durability = if piece_at.is_last { Durability::Synced } else { Durability::Written };
    let done = move |outcome| Done::Piece { piece: piece_at, outcome };
    append(CHECKPOINT, piece.into(), durability, Box::new(done));
}

/// Tells who has joined whether the log has their groups.
fn tell_joined(
    broker: &mut Broker,
    now: Millis,
    joined: impl IntoIterator<Item = (ConsumerId, Joiner)>,
    outcome: &Result<(), Arc<str>>,
    replies: &mut Vec<Reply>,
) {
    for (consumer, joiner) in joined {
        broker.group_is_kept(now, consumer, outcome.is_ok());
        replies.push(Reply::Joined(joiner, outcome.clone()));
    }
}

/// Records are a part of a segment, so that a roll wastes little.
fn quarter(config: &QueueConfig) -> usize {
    usize::try_from(config.segment_len / 4).unwrap_or(usize::MAX)
}

fn piece_len_max(config: &QueueConfig) -> usize {
    PIECE_LEN_MAX.min(quarter(config))
}

/// Reads records and hands them to the log again. Blocks on the disk.
pub(crate) fn move_records(journal: &Journal, homes: Vec<Home>, append: Append<'_>) {
    for from in homes {
        match journal.log.read(from.place) {
            Ok(record) => {
                let done = move |outcome| Done::Moved { from, outcome };
                append(MOVED, record.payload, Durability::Synced, Box::new(done));
            }
            Err(error) => journal.note(Done::Moved { from, outcome: Err(error) }),
        }
    }
}
