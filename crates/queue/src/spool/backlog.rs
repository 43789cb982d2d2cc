//! What is kept, oldest first, within bounds: in memory, and in a log where there is a directory.
//!
//! The log has two kinds of records: a frame, and the note that all before a sequence number is settled.

use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use gpuvitals_core::causes;
use gpuvitals_log::{Appended, Disk, Durability, FsDisk, Log, LogConfig, LogError, Place, Recovery};
use tokio::sync::oneshot;

use super::sending::SPAN;
use super::{Amount, LIMIT_MIN, MEMORY_MAX, SpoolError, SpoolStats, record};
use crate::frame::Frame;

/// Frames that are kept at most: their places are in memory, some 5 MB of it.
const FRAMES_MAX: u64 = 1 << 17;
/// Settled frames after which that is noted.
const NOTE_EVERY: u32 = 64;
/// Segments of a spool at its limit, if that is not more than as many of the largest.
const SEGMENTS: u64 = 16;
/// Largest segment of the log.
const SEGMENT_LEN_MAX: u64 = 16 << 20;
/// What a record takes beside its payload, its rounding included.
const RECORD_OVERHEAD: u64 = 40;
/// Held locked by who has the directory.
const LOCK_FILE: &str = "spool.lock";

const KIND_FRAME: u8 = 1;
const KIND_SETTLED: u8 = 2;

/// What is kept.
pub(super) struct Backlog {
    shelf: Option<Shelf>,
    /// Bytes in all, and of those in memory.
    limit: u64,
    memory_limit: u64,
    entries: VecDeque<Entry>,
    /// Number of the first of them; numbers grow by one.
    first: u64,
    /// Nothing before this number waits.
    next: u64,
    /// Numbers of what is in memory, and of some that are there no more.
    in_memory: VecDeque<u64>,
    memory_bytes: u64,
    bytes: u64,
    kept: Amount,
    dropped: Amount,
}

/// A log and what is known of it.
struct Shelf {
    log: Arc<Log>,
    writing: FuturesUnordered<BoxFuture<'static, (u64, Result<Appended, LogError>)>>,
    /// The last sequence that was given.
    last: u64,
    segment_len: u64,
    /// Frames settled since that was last noted.
    settled: u32,
    settled_bytes: u64,
    /// The first sequence that the last note left.
    noted: u64,
    is_failing: bool,
    _lock: Option<File>,
}

struct Entry {
    messages: u32,
    bytes: u64,
    state: State,
    body: Body,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    UnderWay,
    Gone,
}

enum Body {
    Memory(Box<Frame>),
    /// Still in memory, on its way to the disk.
    Writing(Box<Frame>),
    Disk(Appended),
    None,
}

/// A frame, or where it is.
pub(super) enum Stored {
    Frame(Frame),
    Record(Arc<Log>, Place),
}

impl Backlog {
    /// In memory only.
    pub(super) fn in_memory(limit: u64) -> Self {
        let limit = limit.min(MEMORY_MAX);
        Self {
            shelf: None,
            limit,
            memory_limit: limit,
            entries: VecDeque::new(),
            first: 0,
            next: 0,
            in_memory: VecDeque::new(),
            memory_bytes: 0,
            bytes: 0,
            kept: Amount::default(),
            dropped: Amount::default(),
        }
    }

    /// In a directory of its own, with what an earlier process left there.
    pub(super) fn in_directory(directory: &Path, limit: u64) -> Result<Self, SpoolError> {
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
        Self::on_disk(disk, limit, Some(lock))
            .map_err(|source| SpoolError::Log { directory: directory.to_owned(), source })
    }

    fn on_disk(disk: impl Disk, limit: u64, lock: Option<File>) -> Result<Self, LogError> {
        let segment_len = (limit / SEGMENTS).min(SEGMENT_LEN_MAX);
        let config = LogConfig {
            segment_len: u32::try_from(segment_len).unwrap_or(u32::MAX),
            fill_len: 256 << 10,
            // Nobody waits for an append here, and a spool that is empty takes no room.
            spares: 0,
            queue_len_max: 4 << 20,
            ..LogConfig::default()
        };
        let (log, recovery) = Log::open(disk, config)?;
        for damage in &recovery.damage {
            tracing::error!(?damage, "a part of what was spooled is damaged and lost");
        }
        let shelf = Shelf {
            log: Arc::new(log),
            writing: FuturesUnordered::new(),
            last: recovery.next_sequence.saturating_sub(1),
            segment_len,
            settled: 0,
            settled_bytes: 0,
            noted: 0,
            is_failing: false,
            _lock: lock,
        };
        // Free of it are a segment that is only partly settled, one to be written, and what does not fit at a segment's end.
        let limit = limit - 3 * segment_len;
        let mut backlog = Self { shelf: Some(shelf), limit, ..Self::in_memory(MEMORY_MAX) };
        backlog.recover(recovery)?;
        Ok(backlog)
    }

    fn recover(&mut self, recovery: Recovery) -> Result<(), LogError> {
        for record in recovery {
            let record = record?;
            let appended = Appended { sequence: record.sequence, place: record.place };
            match record.kind {
                KIND_SETTLED => {
                    let Ok(bytes) = <[u8; 8]>::try_from(&*record.payload) else { continue };
                    self.forget_before(u64::from_le_bytes(bytes));
                }
                KIND_FRAME => {
                    let bytes = record.payload.len() as u64 + RECORD_OVERHEAD;
                    if let Some(frame) = record::decode(record.payload) {
                        self.add(frame.count, bytes, Body::Disk(appended));
                    } else {
                        tracing::warn!(sequence = record.sequence, "a spooled record is no frame");
                    }
                }
                kind => tracing::warn!(kind, "a spooled record is of an unknown kind"),
            }
        }
        self.hold_bounds();
        if self.kept.frames > 0 {
            let Amount { frames, messages } = self.kept;
            tracing::info!(frames, messages, "what was spooled before is sent again");
        }
        Ok(())
    }

    /// Takes off what the log says is settled. Nothing is noted: more of the log is still to be read.
    fn forget_before(&mut self, sequence: u64) {
        let is_before = |entry: &mut Entry| matches!(entry.body, Body::Disk(at) if at.sequence < sequence);
        while let Some(entry) = self.entries.pop_front_if(is_before) {
            self.first += 1;
            self.bytes -= entry.bytes;
            self.kept.remove(entry.messages);
        }
    }

    /// What is kept.
    pub(super) fn kept(&self) -> Amount {
        self.kept
    }

    /// Fills in what the stats say of it.
    pub(super) fn add_to(&self, stats: &mut SpoolStats) {
        (stats.kept, stats.kept_bytes, stats.memory_bytes) = (self.kept, self.bytes, self.memory_bytes);
        stats.dropped = self.dropped;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.frames == 0
    }

    /// Whether there is a directory.
    pub(super) fn is_on_disk(&self) -> bool {
        self.shelf.is_some()
    }

    /// Whether nothing would be safer by waiting: all is gone, or written, or cannot be.
    pub(super) fn is_safe(&self) -> bool {
        match &self.shelf {
            Some(shelf) => shelf.writing.is_empty(),
            None => self.is_empty(),
        }
    }

    /// Keeps a frame; the oldest make room.
    pub(super) fn push(&mut self, frame: Frame) {
        let number = self.first + self.entries.len() as u64;
        let messages = frame.count;
        let (bytes, body) = match &self.shelf {
            None => (frame.cost_bytes(), Body::Memory(Box::new(frame))),
            Some(shelf) => {
                let payload = record::encode(&frame);
                let bytes = payload.len() as u64 + RECORD_OVERHEAD;
                shelf.write(number, payload);
                (bytes, Body::Writing(Box::new(frame)))
            }
        };
        self.add(messages, bytes, body);
        self.hold_bounds();
    }

    fn add(&mut self, messages: u32, bytes: u64, body: Body) {
        if body.is_in_memory() {
            self.in_memory.push_back(self.first + self.entries.len() as u64);
            self.memory_bytes += bytes;
        }
        self.bytes += bytes;
        self.kept.add(messages);
        self.entries.push_back(Entry { messages, bytes, state: State::Waiting, body });
    }

    fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.entries.get_mut(index)
    }

    /// The oldest frame that waits; it is under way from now on. None if there is none, or it is too far ahead of one that is
    /// not settled.
    pub(super) fn take(&mut self) -> Option<(u64, Stored)> {
        let end = (self.first + SPAN).min(self.first + self.entries.len() as u64);
        for number in self.next.max(self.first)..end {
            self.next = number + 1;
            let log = self.shelf.as_ref().map(|shelf| Arc::clone(&shelf.log));
            let Some(entry) = self.entry(number).filter(|entry| entry.state == State::Waiting) else {
                continue;
            };
            let stored = match (&entry.body, log) {
                (Body::Memory(frame) | Body::Writing(frame), _) => Stored::Frame((**frame).clone()),
                (Body::Disk(at), Some(log)) => Stored::Record(log, at.place),
                _ => continue,
            };
            entry.state = State::UnderWay;
            return Some((number, stored));
        }
        None
    }

    /// A frame that was under way waits again.
    pub(super) fn give_back(&mut self, number: u64) {
        if let Some(entry) = self.entry(number) {
            entry.state = State::Waiting;
            self.next = self.next.min(number);
        }
    }

    /// A frame that was under way is needed no more. Gives its messages.
    pub(super) fn settle(&mut self, number: u64) -> Option<u32> {
        let messages = self.remove(number)?;
        self.pop_gone();
        Some(messages)
    }

    fn remove(&mut self, number: u64) -> Option<u32> {
        let entry = self.entry(number).filter(|entry| entry.state != State::Gone)?;
        let (messages, bytes) = (entry.messages, entry.bytes);
        let body = std::mem::replace(&mut entry.body, Body::None);
        entry.state = State::Gone;
        if body.is_in_memory() {
            self.memory_bytes -= bytes;
        }
        if let Some(shelf) = &mut self.shelf {
            shelf.settled += 1;
            shelf.settled_bytes += bytes;
        }
        self.bytes -= bytes;
        self.kept.remove(messages);
        Some(messages)
    }

    /// Takes off the front what is gone, and notes it if it has become much or all.
    fn pop_gone(&mut self) {
        while self.entries.pop_front_if(|entry| entry.state == State::Gone).is_some() {
            self.first += 1;
        }
        let first = self.first;
        while self.in_memory.pop_front_if(|number| *number < first).is_some() {}
        if self.shelf.as_ref().is_some_and(|shelf| {
            let is_much = shelf.settled >= NOTE_EVERY || shelf.settled_bytes > shelf.segment_len / 4;
            let is_all = self.kept.frames == 0 && shelf.writing.is_empty();
            is_much || (is_all && shelf.settled > 0)
        }) {
            self.note();
        }
    }

    /// Lets the oldest go that wait, until the bounds hold.
    fn hold_bounds(&mut self) {
        let mut number = self.first;
        let end = self.first + self.entries.len() as u64;
        while (self.bytes > self.limit || self.kept.frames > FRAMES_MAX) && number < end {
            self.drop_waiting(number);
            number += 1;
        }
        // Only while the disk takes less than comes: what is written leaves memory.
        while self.memory_bytes > self.memory_limit
            && let Some(number) = self.in_memory.pop_front()
        {
            if self.entry(number).is_some_and(|entry| entry.body.is_in_memory()) {
                self.drop_waiting(number);
            }
        }
        self.pop_gone();
    }

    fn drop_waiting(&mut self, number: u64) {
        if self.entry(number).is_some_and(|entry| entry.state == State::Waiting)
            && let Some(messages) = self.remove(number)
        {
            self.dropped.add(messages);
        }
    }

    /// Waits until a frame is on the disk, or cannot be. None if none is on its way there.
    pub(super) async fn written(&mut self) -> Option<()> {
        let shelf = self.shelf.as_mut()?;
        let (number, result) = shelf.writing.next().await?;
        shelf.tell(result.as_ref().err());
        if let Ok(appended) = &result {
            shelf.last = shelf.last.max(appended.sequence);
        }
        let Some(entry) = self.entry(number).filter(|entry| entry.state != State::Gone) else {
            // It was sent from memory meanwhile, and only now there is something to note.
            if let Some(shelf) = &mut self.shelf {
                shelf.settled += 1;
            }
            self.pop_gone();
            return Some(());
        };
        let bytes = entry.bytes;
        match (result, std::mem::replace(&mut entry.body, Body::None)) {
            (Ok(appended), _) => {
                entry.body = Body::Disk(appended);
                self.memory_bytes -= bytes;
                self.in_memory.pop_front_if(|front| *front == number);
            }
            (Err(_), Body::Writing(frame)) => entry.body = Body::Memory(frame),
            (Err(_), other) => entry.body = other,
        }
        Some(())
    }

    /// Syncs what is written, some time soon.
    pub(super) fn sync(&self) {
        if let Some(shelf) = &self.shelf {
            // One that fails is told by the appends after it.
            shelf.log.sync_with(Box::new(|_| {}));
        }
    }

    /// Notes how far everything is settled, and frees the disk up to there.
    fn note(&mut self) {
        let Some(shelf) = &mut self.shelf else { return };
        (shelf.settled, shelf.settled_bytes) = (0, 0);
        let on_disk = self.entries.iter().find_map(|entry| match (&entry.body, entry.state) {
            (Body::Disk(at), State::Waiting | State::UnderWay) => Some(at.sequence),
            _ => None,
        });
        // What is still being written comes after everything that was.
        let settled = on_disk.unwrap_or(shelf.last + 1);
        if settled > shelf.noted {
            shelf.noted = settled;
            let bytes = Bytes::copy_from_slice(&settled.to_le_bytes());
            // A note that is lost costs a few frames that are sent again, and a removal is tried with the next note.
            shelf.log.append_with(KIND_SETTLED, bytes, Durability::Written, Box::new(|_| {}));
            shelf.log.truncate_before_with(settled, Box::new(|_| {}));
        }
    }

    /// Brings to the disk what can be, and counts the rest as dropped.
    pub(super) async fn close(&mut self) {
        let numbers = self.first..self.first + self.entries.len() as u64;
        for number in numbers.clone() {
            let Some(entry) = self.entry(number) else { continue };
            if let Body::Memory(frame) = &entry.body {
                let payload = record::encode(frame);
                if let Some(shelf) = &self.shelf {
                    shelf.write(number, payload);
                }
            }
        }
        while self.written().await.is_some() {}
        self.note();
        for number in numbers {
            if self.entry(number).is_some_and(|entry| entry.body.is_in_memory())
                && let Some(messages) = self.remove(number)
            {
                self.dropped.add(messages);
            }
        }
        let Some(shelf) = &self.shelf else { return };
        let log = Arc::clone(&shelf.log);
        match tokio::task::spawn_blocking(move || log.close()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(error = causes(&error), "the spool could not be synced"),
            Err(error) => tracing::error!(%error, "the spool was not closed"),
        }
    }
}

impl Shelf {
    fn write(&self, number: u64, payload: Bytes) {
        let (done, written) = oneshot::channel();
        let tell = move |result| {
            // Nobody waits for it once the spool is gone.
            let _gone = done.send(result);
        };
        self.log.append_with(KIND_FRAME, payload, Durability::Written, Box::new(tell));
        self.writing.push(Box::pin(async move { (number, written.await.unwrap_or(Err(LogError::Closed))) }));
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
}

impl Body {
    fn is_in_memory(&self) -> bool {
        matches!(self, Self::Memory(_) | Self::Writing(_))
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use gpuvitals_log::fault::{FaultDisk, Op};

    use super::*;
    use crate::frame::ContentType;

    fn frame(number: u32, len: usize) -> Frame {
        Frame::new(ContentType::Batch, number, vec![7; len])
    }

    /// The messages of the frames that are kept, read from wherever they are.
    fn read_all(backlog: &mut Backlog) -> Vec<u32> {
        let mut read = Vec::new();
        while let Some((number, stored)) = backlog.take() {
            let frame = match stored {
                Stored::Frame(frame) => frame,
                Stored::Record(log, place) => record::decode(log.read(place).unwrap().payload).unwrap(),
            };
            assert_eq!(backlog.settle(number), Some(frame.count));
            read.push(frame.count);
        }
        read
    }

    #[tokio::test]
    async fn a_disk_that_fails_leaves_frames_in_memory_within_its_bound() {
        let disk = FaultDisk::new();
        let mut backlog = Backlog::on_disk(disk.clone(), 64 << 20, None).unwrap();
        backlog.push(frame(1, 100));
        while backlog.written().await.is_some() {}
        assert_eq!((backlog.memory_bytes, backlog.kept.frames), (0, 1));
        disk.fail_all(Op::Write, Some(ErrorKind::StorageFull));
        for number in 2..=20 {
            backlog.push(frame(number, 500_000));
            while backlog.written().await.is_some() {}
        }
        assert!(backlog.memory_bytes <= MEMORY_MAX && backlog.memory_bytes > MEMORY_MAX / 2);
        assert!(backlog.dropped.frames > 0);
        disk.fail_all(Op::Write, None);
        backlog.push(frame(21, 100));
        while backlog.written().await.is_some() {}
        let oldest = 2 + u32::try_from(backlog.dropped.frames).unwrap();
        let expected: Vec<u32> = std::iter::once(1).chain(oldest..=21).collect();
        assert_eq!(read_all(&mut backlog), expected);
        assert_eq!((backlog.bytes, backlog.memory_bytes, backlog.entries.len()), (0, 0, 0));
    }

    #[tokio::test]
    async fn what_a_failing_disk_left_in_memory_goes_there_at_the_end_if_it_can() {
        for (works_again, kept, dropped) in [(true, 2, 0), (false, 0, 2)] {
            let disk = FaultDisk::new();
            let mut backlog = Backlog::on_disk(disk.clone(), LIMIT_MIN, None).unwrap();
            disk.fail_all(Op::Write, Some(ErrorKind::StorageFull));
            backlog.push(frame(1, 100));
            backlog.push(frame(2, 100));
            while backlog.written().await.is_some() {}
            if works_again {
                disk.fail_all(Op::Write, None);
            }
            backlog.close().await;
            assert_eq!((backlog.kept.frames, backlog.dropped.frames), (kept, dropped));
            disk.fail_all(Op::Write, None);
            let next = Backlog::on_disk(disk, LIMIT_MIN, None).unwrap();
            assert_eq!(next.kept.frames, kept);
        }
    }

    #[tokio::test]
    async fn what_is_synced_outlives_a_power_cut() {
        for seed in 0..50 {
            let disk = FaultDisk::new();
            let mut backlog = Backlog::on_disk(disk.clone(), LIMIT_MIN, None).unwrap();
            for number in 1..=100 {
                backlog.push(frame(number, 1000));
            }
            while backlog.written().await.is_some() {}
            let (log, half) = (backlog.shelf.as_ref().map(|shelf| Arc::clone(&shelf.log)).unwrap(), 50);
            for expected in 1..=half {
                let (number, _) = backlog.take().unwrap();
                assert_eq!(backlog.settle(number), Some(expected));
            }
            log.sync().unwrap();
            for number in 101..=110 {
                backlog.push(frame(number, 1000));
            }
            while backlog.written().await.is_some() {}
            let mut next = Backlog::on_disk(disk.crashed(seed), LIMIT_MIN, None).unwrap();
            let read = read_all(&mut next);
            let (first, last) = (read[0], read[read.len() - 1]);
            assert_eq!(read, (first..=last).collect::<Vec<_>>(), "{seed}");
            assert!(first <= half + 1 && last >= 100, "{seed}: {first} to {last}");
        }
    }
}
