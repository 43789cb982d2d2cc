//! What is done about the log under the broker's lock: its answers taken in, checkpoints made, segments let go.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gpuvitals_log::{Appended, Durability, Log, LogError, Place};
use tokio::sync::oneshot;

use super::checkpoint::encode_checkpoint;
use super::fact_record::encode_facts;
use super::frame_record::FrameRecord;
use super::{CHECKPOINT, FACTS, FRAME, MOVED, in_words};
use crate::broker::{Broker, ConsumerId, Home, Pin, PublishError, Receipt, TopicId};
use crate::config::QueueConfig;
use crate::frame::{Frame, Millis};
use crate::stats::{Health, HealthStatus};

/// How long a write that failed shows in the health.
const TROUBLE_SHOWS: Duration = Duration::from_secs(10);
/// Longest record of facts, and longest piece of a checkpoint, in segments large enough for them.
const FACTS_LEN_MAX: usize = 256 << 10;
const PIECE_LEN_MAX: usize = 1 << 20;
/// Bytes that are moved at once.
const MOVE_LEN_MAX: usize = 4 << 20;
/// Segments that the log may have beyond twice what is held, before records are moved.
const SLACK_SEGMENTS: u64 = 4;

/// Where the outcome of a publish is awaited.
type Publisher = oneshot::Sender<Result<Receipt, PublishError>>;
/// Where it is awaited that a group is on disk; if not, why.
type Joiner = oneshot::Sender<Result<(), Arc<str>>>;

/// What the log has answered.
pub(crate) enum Done {
    Frame {
        topic: TopicId,
        offset: u64,
        payload: Bytes,
        publisher: Publisher,
        outcome: Result<Appended, LogError>,
    },
    Facts {
        joined: Option<(ConsumerId, Joiner)>,
        outcome: Result<Appended, LogError>,
    },
    Piece {
        number: u64,
        is_first: bool,
        is_last: bool,
        outcome: Result<Appended, LogError>,
    },
    Moved {
        from: Home,
        outcome: Result<Appended, LogError>,
    },
    Synced(Result<u64, LogError>),
    Truncated(Result<u64, LogError>),
}

/// Who is to be told what, once the lock is free.
pub(crate) enum Reply {
    Published(Publisher, Result<Receipt, PublishError>),
    Joined(Joiner, Result<(), Arc<str>>),
}

impl Reply {
    pub(crate) fn send(self) {
        // Who does not wait any more need not be told.
        match self {
            Self::Published(publisher, outcome) => drop(publisher.send(outcome)),
            Self::Joined(joiner, outcome) => drop(joiner.send(outcome)),
        }
    }
}

/// The log, and its answers that nobody has looked at yet.
pub(crate) struct Journal {
    pub(crate) log: Log,
    done: Mutex<Vec<Done>>,
    pub(crate) config: QueueConfig,
    /// Held as long as the directory is ours.
    _lock: Option<File>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("log", &self.log).finish_non_exhaustive()
    }
}

/// Hands a record to the log; what comes of it is to be [noted](Journal::note).
pub(crate) type Append<'a> = &'a dyn Fn(u8, Bytes, Durability, Answer);

/// What the log's answer to an append means.
pub(crate) type Answer = Box<dyn FnOnce(Result<Appended, LogError>) -> Done + Send>;

impl Journal {
    pub(crate) fn new(log: Log, config: QueueConfig, lock: Option<File>) -> Self {
        Self { log, done: Mutex::default(), config, _lock: lock }
    }

    /// Keeps an answer until somebody looks.
    pub(crate) fn note(&self, done: Done) {
        self.lock().push(done);
    }

    /// The answers since the last look.
    pub(crate) fn take_done(&self) -> Vec<Done> {
        std::mem::take(&mut *self.lock())
    }

    pub(crate) fn has_done(&self) -> bool {
        !self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Done>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a frame back. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// In words, why it cannot be read.
    pub(crate) fn read(&self, home: &Home) -> Result<Frame, Arc<str>> {
        let record = self.log.read(home.place).map_err(|error| in_words(&error))?;
        let is_frame = record.kind == FRAME || record.kind == MOVED;
        let frame = FrameRecord::decode(&record.payload).map_err(|error| in_words(&error))?;
        if is_frame && frame.offset == home.source {
            Ok(frame.frame(&record.payload))
        } else {
            Err("another record lies there".into())
        }
    }
}

#[derive(Debug, Default)]
struct Checkpoints {
    /// When one is wanted.
    due: Option<Millis>,
    /// The number of the last one begun.
    number: u64,
    /// Of the one under way: the sequence of its first piece, while no piece has failed.
    under_way: Option<Result<Option<u64>, ()>>,
    /// The first sequence of the newest one that is on disk.
    durable: Option<u64>,
}

/// What is known of the log, under the broker's lock.
#[derive(Debug)]
pub(crate) struct Keeper {
    /// Held by what lies in each segment.
    pins: BTreeMap<u64, Arc<Pin>>,
    newest_segment: u64,
    checkpoints: Checkpoints,
    /// Records being moved: how many are under way, and where those went that are done.
    moving: usize,
    moved: HashMap<Place, Home, foldhash::fast::RandomState>,
    /// A segment with a record that cannot be read: it stays.
    stuck: Option<u64>,
    is_truncating: bool,
    sync_every: Duration,
    /// When what was only written is to be synced.
    sync_at: Option<Millis>,
    /// Who waits for the outcome of a frame that somebody else sent.
    repeats: HashMap<(TopicId, u64), Vec<Publisher>, foldhash::fast::RandomState>,
    damage: Vec<String>,
    trouble: Option<(Millis, Arc<str>)>,
    poisoned: Option<Arc<str>>,
    was_full: bool,
}

impl Keeper {
    pub(crate) fn new(config: &QueueConfig, pins: BTreeMap<u64, Arc<Pin>>, damage: Vec<String>) -> Self {
        Self {
            newest_segment: pins.keys().next_back().copied().unwrap_or(0),
            pins,
            checkpoints: Checkpoints { due: Some(Millis(0)), ..Checkpoints::default() },
            moving: 0,
            moved: HashMap::default(),
            stuck: None,
            is_truncating: false,
            sync_every: config.sync_every,
            sync_at: None,
            repeats: HashMap::default(),
            damage,
            trouble: None,
            poisoned: None,
            was_full: false,
        }
    }

    /// When [`Keeper::tend`] is to be called at the latest.
    pub(crate) fn next_deadline(&self) -> Option<Millis> {
        let checkpoint = self.checkpoints.due.filter(|_| self.checkpoints.under_way.is_none());
        [self.sync_at, checkpoint].into_iter().flatten().min()
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
            Done::Frame { topic, offset, payload, publisher, outcome } => {
                let outcome = self.landed(broker, now, topic, offset, payload, outcome);
                for repeat in self.repeats.remove(&(topic, offset)).unwrap_or_default() {
                    let outcome = outcome.clone().map(|receipt| broker.repeated(topic, &receipt));
                    replies.push(Reply::Published(repeat, outcome));
                }
                replies.push(Reply::Published(publisher, outcome));
            }
            Done::Facts { joined, outcome } => {
                let outcome = self.noted(now, outcome).map(|appended| self.reached(now, appended.place));
                if outcome.is_err() {
                    // What could not be noted is in the next checkpoint.
                    self.checkpoint_later(now);
                }
                if let Some((consumer, joiner)) = joined {
                    broker.group_is_kept(now, consumer, outcome.is_ok());
                    replies
                        .push(Reply::Joined(joiner, outcome.map(|_| ()).map_err(|error| in_words(&error))));
                }
            }
            Done::Piece { number, is_first, is_last, outcome } => {
                let outcome = self.noted(now, outcome);
                self.piece(now, number, is_first, is_last, &outcome);
            }
            Done::Moved { from, outcome } => {
                let outcome = self.noted(now, outcome);
                self.moved(broker, now, &from, &outcome);
            }
            Done::Synced(outcome) => drop(self.noted(now, outcome)),
            Done::Truncated(outcome) => {
                self.is_truncating = false;
                drop(self.noted(now, outcome));
            }
        }
    }

    /// Remembers what went wrong.
    fn noted<T>(&mut self, now: Millis, outcome: Result<T, LogError>) -> Result<T, LogError> {
        match &outcome {
            Err(error @ LogError::Poisoned { .. }) => {
                self.poisoned.get_or_insert_with(|| in_words(error));
            }
            Err(error @ LogError::Write { .. }) => self.trouble = Some((now, in_words(error))),
            _ => {}
        }
        outcome
    }

    /// The pin of the segment that a record is in. A checkpoint is due in each segment.
    fn reached(&mut self, now: Millis, place: Place) -> Arc<Pin> {
        let segment = place.segment();
        if segment > self.newest_segment {
            self.newest_segment = segment;
            self.checkpoints.due = Some(now);
        }
        Arc::clone(self.pins.entry(segment).or_default())
    }

    /// What failed now is not tried again at once.
    fn checkpoint_later(&mut self, now: Millis) {
        self.checkpoints.due.get_or_insert(now.after(self.sync_every));
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
        match self.noted(now, outcome) {
            Ok(appended) => {
                let home =
                    Home { source: offset, place: appended.place, pin: self.reached(now, appended.place) };
                if std::mem::take(&mut self.was_full) {
                    broker.wake_publishers();
                }
                broker.land(topic, offset, home, payload).ok_or(PublishError::Closed)
            }
            Err(error) => {
                let frame = broker.give_up(topic, offset);
                Err(match error {
                    LogError::Full { .. } => {
                        self.was_full = true;
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
        now: Millis,
        number: u64,
        is_first: bool,
        is_last: bool,
        outcome: &Result<Appended, LogError>,
    ) {
        let checkpoints = &mut self.checkpoints;
        if number != checkpoints.number {
            return;
        }
        match (outcome, &mut checkpoints.under_way) {
            (Ok(appended), Some(Ok(first))) => {
                if is_first {
                    *first = Some(appended.sequence);
                }
                // The checkpoint itself may have begun a segment: that one has its checkpoint now.
                self.newest_segment = self.newest_segment.max(appended.place.segment());
            }
            (_, under_way) => *under_way = Some(Err(())),
        }
        if is_last {
            if let Some(Ok(Some(first))) = checkpoints.under_way.take() {
                checkpoints.durable = Some(first);
                // Segments may go.
                self.written(now);
            } else {
                self.checkpoint_later(now);
            }
        }
    }

    fn moved(&mut self, broker: &mut Broker, now: Millis, from: &Home, outcome: &Result<Appended, LogError>) {
        self.moving = self.moving.saturating_sub(1);
        match outcome {
            Ok(appended) => {
                let home = Home {
                    source: from.source,
                    place: appended.place,
                    pin: self.reached(now, appended.place),
                };
                self.moved.insert(from.place, home);
            }
            Err(LogError::Damaged { .. } | LogError::Read { .. }) => self.stuck = Some(from.place.segment()),
            Err(_) => {}
        }
        if self.moving == 0 {
            broker.rehome(&std::mem::take(&mut self.moved));
            self.checkpoints.due.get_or_insert(now);
        }
    }

    /// Makes a checkpoint before anything else is taken: it holds the offsets that are left out, so that none comes again
    /// in any later life. Blocks on the disk. If the disk is full, it is tried again later.
    pub(crate) fn first_checkpoint(&mut self, log: &Log, broker: &Broker) {
        let pieces = encode_checkpoint(0, &broker.image(), piece_len_max(broker.config()));
        let tickets: Vec<_> = pieces
            .into_iter()
            .map(|piece| log.append(CHECKPOINT, piece.into(), Durability::Synced))
            .collect();
        let appended: Result<Vec<_>, _> = tickets.into_iter().map(gpuvitals_log::Ticket::wait).collect();
        if let Ok(appended) = appended {
            self.checkpoints.due = None;
            self.checkpoints.durable = appended.first().map(|first| first.sequence);
            self.newest_segment = appended.last().map_or(0, |last| last.place.segment());
        }
    }

    /// Makes a checkpoint at the end, if something has changed.
    pub(crate) fn last_checkpoint(&mut self, journal: &Journal, broker: &Broker, append: Append<'_>) {
        self.checkpoints.due = Some(Millis(0));
        self.checkpoints.under_way = None;
        self.checkpoint(journal, broker, Millis(0), append);
    }

    /// Makes a checkpoint if one is due.
    pub(crate) fn checkpoint(&mut self, journal: &Journal, broker: &Broker, now: Millis, append: Append<'_>) {
        if self.checkpoints.due.is_none_or(|due| due > now) || self.checkpoints.under_way.is_some() {
            return;
        }
        self.checkpoints.due = None;
        self.checkpoints.number += 1;
        self.checkpoints.under_way = Some(Ok(None));
        let number = self.checkpoints.number;
        let pieces = encode_checkpoint(number, &broker.image(), piece_len_max(&journal.config));
        let last = pieces.len().saturating_sub(1);
        for (at, piece) in pieces.into_iter().enumerate() {
            let (is_first, is_last) = (at == 0, at == last);
            let durability = if is_last { Durability::Synced } else { Durability::Written };
            let done = move |outcome| Done::Piece { number, is_first, is_last, outcome };
            append(CHECKPOINT, piece.into(), durability, Box::new(done));
        }
    }

    /// Whether what was written is to be synced now.
    pub(crate) fn take_sync(&mut self, now: Millis) -> bool {
        self.sync_at.take_if(|at| *at <= now).is_some()
    }

    /// The sequence before which the log's segments can go, if there are such.
    pub(crate) fn truncation(&mut self, journal: &Journal) -> Option<u64> {
        let durable = self.checkpoints.durable?;
        if self.is_truncating {
            return None;
        }
        while let Some(oldest) = self.pins.first_entry() {
            if Arc::strong_count(oldest.get()) > 1 || *oldest.key() >= self.newest_segment {
                break;
            }
            oldest.remove();
        }
        let held = self.pins.keys().next().copied().unwrap_or(u64::MAX);
        let before = durable.min(held);
        let segments = journal.log.segments();
        let can_go = segments.len() > 1 && segments.first().is_some_and(|oldest| oldest.end <= before);
        self.is_truncating = can_go;
        can_go.then_some(before)
    }

    /// Records to be moved out of the oldest segment, if the log is far larger than what is held.
    pub(crate) fn take_to_move(&mut self, journal: &Journal, broker: &Broker) -> Vec<Home> {
        let segments = journal.log.segments();
        let bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let bound = broker
            .kept_bytes()
            .saturating_mul(2)
            .saturating_add(SLACK_SEGMENTS * u64::from(journal.config.segment_len));
        let oldest = segments.first().map_or(0, |segment| segment.base);
        let is_held = self.pins.get(&oldest).is_some_and(|pin| Arc::strong_count(pin) > 1);
        if self.moving > 0
            || self.poisoned.is_some()
            || bytes <= bound
            || !is_held
            || self.stuck == Some(oldest)
        {
            return Vec::new();
        }
        let mut homes = broker.homes_in(oldest);
        let mut len = 0;
        homes.retain(|home| {
            len += home.place.payload_len();
            len <= MOVE_LEN_MAX || len == home.place.payload_len()
        });
        self.moving = homes.len();
        homes
    }

    /// Why the log takes nothing more, if it does not.
    pub(crate) fn poisoned(&self) -> Option<Arc<str>> {
        self.poisoned.clone()
    }

    /// Adds what is not well with the log.
    pub(crate) fn judge(&self, now: Millis, health: &mut Health) {
        let trouble = self.trouble.as_ref().filter(|(at, _)| now.since(*at) < TROUBLE_SHOWS);
        let trouble = trouble.map(|(_, reason)| format!("queue cannot store: {reason}"));
        let stuck = self.stuck.map(|segment| format!("a record in segment {segment:016x} cannot be read"));
        let degraded: Vec<_> = self.damage.iter().cloned().chain(trouble).chain(stuck).collect();
        if !degraded.is_empty() && health.status == HealthStatus::Healthy {
            health.status = HealthStatus::Degraded;
        }
        health.reasons.extend(degraded);
        if let Some(reason) = &self.poisoned {
            health.status = HealthStatus::Unhealthy;
            health.reasons.push(format!("queue takes nothing: {reason}"));
        }
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
