//! What is kept on the disk: a log in a directory.
//!
//! It has two kinds of records: a frame, and the note that all before a sequence number is settled.
//!
//! A failed sync poisons a log: nobody knows what of it is on the disk. It is closed then and opened anew, ever more rarely
//! as long as that fails, and what it holds after that is what counts.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use gpuvitals_core::causes;
use gpuvitals_log::{Appended, Disk, Durability, FsDisk, Log, LogConfig, LogError, Place, Recovery};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{LIMIT_MIN, SpoolError, record};
use crate::frame::Frame;
use crate::link::Backoff;

/// Between two tries to open a poisoned log anew.
const REOPENS: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_mins(5) };
/// Settled frames after which that is noted.
const NOTE_EVERY: u32 = 64;
/// Segments of a spool at its limit, if that is not more than as many of the largest.
const SEGMENTS: u64 = 16;
/// Largest segment of the log.
const SEGMENT_LEN_MAX: u64 = 16 << 20;
/// What waits to be written at most.
pub(super) const QUEUE_LEN_MAX: u32 = 4 << 20;
/// What a record takes beside its payload, its rounding included.
pub(super) const RECORD_OVERHEAD: u64 = 40;
/// What a segment takes beside its records.
const SEGMENT_OVERHEAD: u64 = 1 << 10;
/// Held locked by who has the directory.
const LOCK_FILE: &str = "spool.lock";

const KIND_FRAME: u8 = 1;
const KIND_SETTLED: u8 = 2;

/// A log and what is known of it.
pub(super) struct Shelf {
    log: Arc<Log>,
    opener: Opener,
    reopening: Reopening,
    /// In the order of their sequences: what still is here comes after all that came out.
    writing: FuturesOrdered<BoxFuture<'static, Told>>,
    /// How often the log was opened anew since a sync was known to work.
    reopened: u32,
    /// The last sequence that was given.
    last: u64,
    segment_len: u64,
    /// Frames settled since that was last noted.
    settled: u32,
    settled_bytes: u64,
    /// The first sequence that the last note left.
    noted: u64,
    is_failing: bool,
    lock: Option<File>,
}

/// What became of a frame, by its number, that was to be so durable.
type Told = (u64, Durability, Result<Appended, LogError>);

/// Opens the log of the directory; blocks.
type Opener = Arc<dyn Fn() -> Result<(Log, Recovery), LogError> + Send + Sync>;

/// Where the frames of a log stand, by their sequences.
pub(super) type Places = HashMap<u64, Place>;

/// How a poisoned log stands.
enum Reopening {
    /// It is not poisoned.
    Not,
    /// It was tried so often, and is again then.
    At(u32, Instant),
    /// It is being opened, as often tried before.
    UnderWay(u32, JoinHandle<Result<(Log, u64, Places), LogError>>),
}

/// What a disk has to say.
pub(super) enum News {
    /// A frame is there, or cannot be.
    Written(u64, Result<Appended, LogError>),
    /// The log was opened anew, with these frames.
    Reopened(Places),
}

/// A frame that an earlier process left.
pub(super) struct Found {
    /// Whose it is, counted from the first in the log, and its number there.
    pub(super) order: (usize, u64),
    is_stamped: bool,
    pub(super) messages: u32,
    pub(super) bytes: u64,
    pub(super) at: Appended,
}

impl Shelf {
    /// In a directory of its own, with what an earlier process left there.
    pub(super) fn in_directory(directory: &Path, limit: u64) -> Result<(Self, Vec<Found>), SpoolError> {
        if limit < LIMIT_MIN {
            return Err(SpoolError::Limit { limit });
        }
        let refused = |source| SpoolError::Directory { directory: directory.to_owned(), source };
        let disk = FsDisk::open(directory).map_err(refused)?;
        let path = directory.join(LOCK_FILE);
        let lock = File::options().create(true).truncate(false).write(true).open(path).map_err(refused)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(SpoolError::InUse(directory.to_owned())),
            Err(std::fs::TryLockError::Error(error)) => return Err(refused(error)),
        }
        Self::open(disk, limit, Some(lock))
            .map_err(|source| SpoolError::Log { directory: directory.to_owned(), source })
    }

    pub(super) fn open(
        disk: impl Disk + Clone,
        limit: u64,
        lock: Option<File>,
    ) -> Result<(Self, Vec<Found>), LogError> {
        let segment_len = (limit / SEGMENTS).min(SEGMENT_LEN_MAX);
        let config = LogConfig {
            segment_len: u32::try_from(segment_len).unwrap_or(u32::MAX),
            fill_len: 256 << 10,
            // Nobody waits for an append here, and a spool that is empty takes no room.
            spares: 0,
            queue_len_max: QUEUE_LEN_MAX,
            ..LogConfig::default()
        };
        let opener: Opener = Arc::new(move || Log::open(disk.clone(), config.clone()));
        let (log, recovery) = opener()?;
        for damage in &recovery.damage {
            tracing::error!(%damage, "a part of what was spooled is damaged and lost");
        }
        if let Some(torn) = &recovery.torn {
            tracing::warn!("spool: {torn}");
        }
        let shelf = Self {
            log: Arc::new(log),
            opener,
            reopening: Reopening::Not,
            writing: FuturesOrdered::new(),
            reopened: 0,
            last: recovery.next_sequence.saturating_sub(1),
            segment_len,
            settled: 0,
            settled_bytes: 0,
            noted: 0,
            is_failing: false,
            lock,
        };
        Ok((shelf, found(recovery)?))
    }

    pub(super) fn log(&self) -> Arc<Log> {
        Arc::clone(&self.log)
    }

    /// What of a limit is kept free: a segment that is only partly settled, one to be written, and what does not fit at a
    /// segment's end.
    pub(super) fn slack(&self) -> u64 {
        3 * self.segment_len
    }

    /// Whether a frame of so many bytes, its record's own among them, can be there at all.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        bytes + SEGMENT_OVERHEAD <= self.segment_len
    }

    /// Whether the log takes anything: it is not to be opened anew.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.reopening, Reopening::Not)
    }

    pub(super) fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    pub(super) fn write(&mut self, number: u64, payload: Bytes, durability: Durability) {
        let (done, written) = oneshot::channel();
        let tell = move |result| {
            // Nobody waits for it once the spool is gone.
            let _gone = done.send(result);
        };
        self.log.append_with(KIND_FRAME, payload, durability, Box::new(tell));
        let written = async move { (number, durability, written.await.unwrap_or(Err(LogError::Closed))) };
        self.writing.push_back(Box::pin(written));
    }

    /// Waits until a frame is on the disk, or cannot be: which one. None if none is on its way there.
    pub(super) async fn written(&mut self) -> Option<(u64, Result<Appended, LogError>)> {
        let (number, durability, result) = self.writing.next().await?;
        self.take_note(durability, &result);
        Some((number, result))
    }

    /// The same, or until a poisoned log was opened anew. None if neither is to come.
    pub(super) async fn news(&mut self) -> Option<News> {
        if !self.writing.is_empty() || self.is_open() {
            return self.written().await.map(|(number, result)| News::Written(number, result));
        }
        let (log, next_sequence, places) = self.reopening.opened(&self.log, &self.opener).await;
        tracing::info!("the log of the spool was opened anew");
        self.reopening = Reopening::Not;
        self.reopened += 1;
        self.log = Arc::new(log);
        (self.last, self.noted) = (next_sequence.saturating_sub(1), 0);
        Some(News::Reopened(places))
    }

    /// Tries a poisoned log at once.
    pub(super) fn hurry(&mut self) {
        if let Reopening::At(_, at) = &mut self.reopening {
            *at = Instant::now();
        }
    }

    fn take_note(&mut self, durability: Durability, result: &Result<Appended, LogError>) {
        self.tell(result.as_ref().err());
        match result {
            Ok(appended) => {
                self.last = self.last.max(appended.sequence);
                if durability == Durability::Synced {
                    self.reopened = 0;
                }
            }
            Err(LogError::Poisoned { .. }) if self.is_open() => {
                let wait = REOPENS.after(self.reopened + 1);
                self.reopening = Reopening::At(self.reopened, Instant::now() + wait);
            }
            Err(_) => {}
        }
    }

    /// Logs when writing begins to fail and when it works again.
    fn tell(&mut self, error: Option<&LogError>) {
        match (error, self.is_failing) {
            (Some(error), false) => {
                tracing::error!(
                    error = causes(error),
                    "the spool cannot be written; frames are kept in memory"
                );
            }
            (None, true) => tracing::info!("the spool can be written again"),
            _ => {}
        }
        self.is_failing = error.is_some();
    }

    /// A frame of so many bytes is needed no more.
    pub(super) fn settle(&mut self, bytes: u64) {
        self.settled += 1;
        self.settled_bytes += bytes;
    }

    /// Whether so much is settled, or all, that it is worth a note.
    pub(super) fn is_worth_a_note(&self, is_all: bool) -> bool {
        let is_much = self.settled >= NOTE_EVERY || self.settled_bytes > self.segment_len / 4;
        is_much || (is_all && self.writing.is_empty() && self.settled > 0)
    }

    /// Notes that all on the disk before `oldest` is settled, or all if there is none, and frees the disk up to there.
    pub(super) fn note(&mut self, oldest: Option<u64>) {
        (self.settled, self.settled_bytes) = (0, 0);
        // What is still being written comes after everything that was.
        let settled = oldest.unwrap_or(self.last + 1);
        if settled > self.noted {
            self.noted = settled;
            let bytes = Bytes::copy_from_slice(&settled.to_le_bytes());
            // A note that is lost costs a few frames that are sent again, and a removal is tried with the next note.
            self.log.append_with(KIND_SETTLED, bytes, Durability::Written, Box::new(|_| {}));
            self.log.truncate_before_with(settled, Box::new(|_| {}));
        }
    }

    /// Syncs what is written, some time soon.
    pub(super) fn sync(&self) {
        // One that fails is told by the appends after it.
        self.log.sync_with(Box::new(|_| {}));
    }

    /// Syncs and closes, and waits for that until the deadline. A disk that hangs keeps the directory until it goes on or
    /// the process has ended.
    pub(super) async fn close(&mut self, deadline: Instant) {
        let (log, lock) = (self.log(), self.lock.take());
        let closing = tokio::task::spawn_blocking(move || {
            let closed = log.close();
            drop(lock);
            closed
        });
        match timeout_at(deadline, closing).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::error!(error = causes(&error), "the spool could not be synced"),
            Ok(Err(error)) => tracing::error!(%error, "the spool was not closed"),
            Err(_) => tracing::error!(
                "the disk of the spool hangs and is waited for no longer; what it has not written is lost"
            ),
        }
    }
}

impl Reopening {
    /// Waits until the log was opened anew, and tries as often as it takes. What is under way goes on if nobody waits.
    async fn opened(&mut self, log: &Arc<Log>, opener: &Opener) -> (Log, u64, Places) {
        loop {
            match self {
                Self::Not => std::future::pending().await,
                Self::At(tries, at) => {
                    sleep_until(*at).await;
                    let (log, opener) = (Arc::clone(log), Arc::clone(opener));
                    let opening = tokio::task::spawn_blocking(move || {
                        // It is poisoned, which is known.
                        log.close().ok();
                        let (log, recovery) = opener()?;
                        let next_sequence = recovery.next_sequence;
                        Ok((log, next_sequence, places(recovery)?))
                    });
                    *self = Self::UnderWay(*tries, opening);
                }
                Self::UnderWay(tries, opening) => {
                    let tries = *tries + 1;
                    let error = match opening.await {
                        Ok(Ok(opened)) => return opened,
                        Ok(Err(error)) => causes(&error),
                        Err(error) => causes(&error),
                    };
                    if tries == 1 {
                        // The others would say the same.
                        tracing::error!(error, "the log of the spool cannot be opened anew");
                    }
                    *self = Self::At(tries, Instant::now() + REOPENS.after(tries + 1));
                }
            }
        }
    }
}

/// Where the frames of a log stand.
fn places(recovery: Recovery) -> Result<Places, LogError> {
    let mut places = Places::new();
    for record in recovery {
        let record = record?;
        if record.kind == KIND_FRAME {
            places.insert(record.sequence, record.place);
        }
    }
    Ok(places)
}

/// What the log holds and no note says is settled. Those of one producer in the order of its numbers: that of the log is
/// another one where a disk failed for a while, or a suspect was written anew.
fn found(recovery: Recovery) -> Result<Vec<Found>, LogError> {
    let mut found = VecDeque::new();
    let mut producers = HashMap::new();
    for record in recovery {
        let record = record?;
        let at = Appended { sequence: record.sequence, place: record.place };
        match record.kind {
            KIND_SETTLED => {
                let Ok(bytes) = <[u8; 8]>::try_from(&*record.payload) else { continue };
                let settled = u64::from_le_bytes(bytes);
                while found.pop_front_if(|frame: &mut Found| frame.at.sequence < settled).is_some() {}
            }
            KIND_FRAME => {
                let bytes = record.payload.len() as u64 + RECORD_OVERHEAD;
                if let Some(Frame { producer, count: messages, .. }) = record::decode(record.payload) {
                    let is_stamped = producer.is_some();
                    let (id, number) = producer.map(|stamp| (stamp.id, stamp.sequence)).unwrap_or_default();
                    let next = producers.len();
                    let order = (*producers.entry(id).or_insert(next), number);
                    found.push_back(Found { order, is_stamped, messages, bytes, at });
                } else {
                    tracing::warn!(sequence = record.sequence, "a spooled record is no frame");
                }
            }
            kind => tracing::warn!(kind, "a spooled record is of an unknown kind"),
        }
    }
    let mut found = Vec::from(found);
    found.sort_by_key(|frame| frame.order);
    // Of a frame that was written twice the later record stays: what is before it can be freed.
    found.dedup_by(|later, frame| {
        let is_same = frame.is_stamped && later.is_stamped && later.order == frame.order;
        if is_same {
            std::mem::swap(later, frame);
        }
        is_same
    });
    Ok(found)
}
