//! The log, and what it has answered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use gpuvitals_log::{Appended, DirectoryLock, Durability, Log, LogError, Place, Record, free_bytes};
use tokio::sync::oneshot;

use super::definers::Handed;
use super::frame_record::{Defined, FrameRecord, encode_head};
use super::kinds::in_words;
use crate::broker::{GroupId, PublishError, Receipt, TopicId};
use crate::config::QueueConfig;
use crate::frame::Frame;

/// Records whose names are remembered for those that refer to them.
const NAMED_MAX: usize = 64;

/// Where the outcome of a publish is awaited.
pub(super) type Publisher = oneshot::Sender<Result<Receipt, PublishError>>;
/// Where it is awaited that a group is on disk; if not, why.
pub(super) type Joiner = oneshot::Sender<Result<(), Arc<str>>>;

/// What the log has answered.
pub(crate) enum LogAnswer {
    Frame {
        topic: TopicId,
        offset: u64,
        handed: Option<Handed>,
        publisher: Publisher,
        outcome: Result<Appended, LogError>,
    },
    /// Facts, and the groups that were made by them.
    Facts {
        made: Vec<GroupId>,
        outcome: Result<Appended, LogError>,
    },
    Checkpoint(Result<Appended, LogError>),
    Moved {
        topic: TopicId,
        offset: u64,
        from: Place,
        outcome: Result<Appended, LogError>,
    },
    /// All that was handed over before is on disk; with that, the segments before a sequence may go.
    Synced {
        before: Option<u64>,
        outcome: Result<u64, LogError>,
    },
    Truncated(Result<u64, LogError>),
    /// Whether the directory is in its place.
    Checked(Result<u64, LogError>),
    /// A record could not be read for now, and why.
    Unread(Arc<str>),
}

/// Why a frame cannot be read back, in words.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// Its bytes are gone.
    #[error("cannot be read back: {0}")]
    Lost(Arc<str>),
    /// The disk or the system did not give them this time.
    #[error("cannot be read back for now")]
    ForNow,
}

/// Who is to be told what, once the lock is free.
pub(crate) enum JournalReply {
    Published(Publisher, Result<Receipt, PublishError>),
    Joined(Joiner, Result<(), Arc<str>>),
}

impl JournalReply {
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
    done: Mutex<Vec<LogAnswer>>,
    /// What records define that others referred to lately: a record that is large is not read for each of them.
    named: Mutex<VecDeque<(Place, Arc<Defined>)>>,
    pub(crate) config: QueueConfig,
    /// Held as long as the directory is ours. None on a disk of the caller's.
    directory: Option<Arc<DirectoryLock>>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("log", &self.log).finish_non_exhaustive()
    }
}

/// A record whose bytes are whole and make no sense is as good as damaged.
fn senseless(place: Place) -> LogError {
    LogError::Damaged { file: format!("{:016x}.wal", place.segment()), offset: place.offset() }
}

/// Hands a record to the log; what comes of it is to be [noted](Journal::note).
pub(crate) type Append<'a> = &'a dyn Fn(u8, Bytes, Durability, Answer);

/// What the log's answer to an append means.
pub(crate) type Answer = Box<dyn FnOnce(Result<Appended, LogError>) -> LogAnswer + Send>;

impl Journal {
    pub(crate) fn new(log: Log, config: QueueConfig, directory: Option<Arc<DirectoryLock>>) -> Self {
        Self { log, done: Mutex::default(), named: Mutex::default(), config, directory }
    }

    /// Bytes that are free on its disk; none if nobody says.
    pub(crate) fn disk_free_bytes(&self) -> Option<u64> {
        free_bytes(self.directory.as_ref()?.directory())
    }

    /// Looks whether the directory is in its place; `done` gets the outcome. On a disk of the caller's there is nothing to
    /// look at.
    pub(crate) fn check(&self, done: impl FnOnce(LogAnswer) + Send + 'static) {
        if self.directory.is_some() {
            self.log.check_with(Box::new(move |outcome| done(LogAnswer::Checked(outcome))));
        }
    }

    /// Ends the log. Blocks until all is on disk.
    ///
    /// # Errors
    /// If it was or became poisoned.
    pub(crate) fn close(&self) -> Result<(), LogError> {
        self.log.close()
    }

    /// Keeps an answer until somebody looks.
    pub(crate) fn note(&self, done: LogAnswer) {
        self.lock().push(done);
    }

    /// The answers since the last look.
    pub(crate) fn take_done(&self) -> Vec<LogAnswer> {
        std::mem::take(&mut *self.lock())
    }

    pub(crate) fn has_done(&self) -> bool {
        !self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LogAnswer>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a frame back. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// Why it cannot be read. That it cannot for now is noted, too.
    pub(crate) fn read(&self, place: Place) -> Result<Frame, Unreadable> {
        let record = self.log.read(place).map_err(|error| self.unreadable(&error))?;
        let of = self.referred(&record).map_err(|error| self.unreadable(&error))?;
        let frame = FrameRecord::decode(&record.payload, of.as_deref());
        frame.map(|frame| frame.frame(&record.payload)).map_err(|error| Unreadable::Lost(in_words(&error)))
    }

    /// A frame's record with all its names, which may stand in any segment. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// If it, or the record that it refers to, cannot be read.
    pub(crate) fn read_whole(&self, place: Place) -> Result<Bytes, LogError> {
        let record = self.log.read(place)?;
        let Some(of) = self.referred(&record)? else { return Ok(record.payload) };
        let read = FrameRecord::decode(&record.payload, Some(&of)).map_err(|_| senseless(place))?;
        let Defined { topic, offset, at, .. } = read.defined.kept();
        let frame = read.frame(&record.payload);
        Ok([&*encode_head(&topic, &frame, offset, at), &*frame.payload].concat().into())
    }

    /// What the record defines that this one refers to, if it refers to one.
    fn referred(&self, record: &Record) -> Result<Option<Arc<Defined>>, LogError> {
        let refers = FrameRecord::refers_to(&record.payload).map_err(|_| senseless(record.place))?;
        let Some((offset, len)) = refers else { return Ok(None) };
        let place = record.place.beside(offset, len);
        let known = || self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, named)) = known().iter().find(|(at, _)| *at == place) {
            return Ok(Some(Arc::clone(named)));
        }
        let named = self.log.read(place)?;
        let named = FrameRecord::decode(&named.payload, None).map_err(|_| senseless(place))?;
        let named = Arc::new(named.defined.kept());
        let mut known = known();
        known.truncate(NAMED_MAX - 1);
        known.push_front((place, Arc::clone(&named)));
        Ok(Some(named))
    }

    fn unreadable(&self, error: &LogError) -> Unreadable {
        let reason = in_words(error);
        if matches!(error, LogError::Damaged { .. } | LogError::Gone { .. }) {
            return Unreadable::Lost(reason);
        }
        self.note(LogAnswer::Unread(reason));
        Unreadable::ForNow
    }
}
