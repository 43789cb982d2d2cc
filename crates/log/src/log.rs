//! The callers' handle.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use bytes::Bytes;

use crate::board::Board;
use crate::config::{CommitOn, Durability, LogConfig};
use crate::disk::Disk;
use crate::error::LogError;
use crate::place::{Appended, Place, SegmentStats};
use crate::read::Reader;
use crate::recovery::{Record, Recovery, recover};
use crate::spare::Stock;
use crate::submit::{Append, Callback, Command, Completion, Shared, Shorter, WhenFull};
use crate::writer::{Writer, lock, run};

/// An open log. Share it in an `Arc`; all methods take `&self`. Dropping it is [`Log::close`] without the
/// result.
pub struct Log {
    shared: Arc<Shared>,
    board: Arc<Board>,
    reader: Arc<Reader>,
    stock: Arc<Stock>,
    writer: Arc<Mutex<Writer>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    record_len_max: usize,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Log {
    /// Recovers the records on the disk and starts the writer thread. It removes nothing but unfinished
    /// segments, and takes no space before the first append. The caller ensures that no other process uses
    /// the directory.
    ///
    /// # Errors
    /// If a setting is out of range, the disk cannot be read or synced, or a segment is of a later version.
    /// Damaged segments are no error: see [`Recovery::damage`].
    pub fn open(disk: impl Disk, config: LogConfig) -> Result<(Self, Recovery), LogError> {
        config.check()?;
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let (resume, recovery) = recover(&disk)?;
        let record_len_max = config.record_len_max();
        let writer = Writer::new(disk, config, resume);
        let (shared, board, reader) = (writer.shared(), writer.board(), writer.reader());
        let stock = writer.stock();
        let writer = Arc::new(Mutex::new(writer));
        let theirs = Arc::clone(&writer);
        let thread = thread::Builder::new()
            .name("log-writer".into())
            .spawn(move || run(&theirs))
            .map_err(|source| LogError::Thread { source: Arc::new(source) })?;
        let thread = Mutex::new(Some(thread));
        Ok((Self { shared, board, reader, stock, writer, thread, record_len_max }, recovery))
    }

    /// Appends a record; waits for room if the queue is full. The ticket holds the outcome.
    pub fn append(&self, kind: u8, payload: Bytes, durability: Durability) -> Ticket {
        let (ticket, done) = Ticket::new();
        self.submit(Append::of(kind, payload, durability, done), WhenFull::Wait);
        ticket
    }

    /// Appends a record and never waits: if the queue is full, `done` gets [`LogError::Full`]. `done` is
    /// called exactly once with the record's number and place or the error, by the thread that writes it or
    /// before this returns. It must be quick, must not panic, and must not wait for this log; the calls whose
    /// name ends in `_with`, including this one, do not wait and may be made from it.
    pub fn append_with(
        &self,
        kind: u8,
        payload: Bytes,
        durability: Durability,
        done: Box<dyn FnOnce(Result<Appended, LogError>) + Send>,
    ) {
        self.submit(Append::of(kind, payload, durability, Completion::new(done)), WhenFull::Refuse);
    }

    /// [`Log::append_with`] that does not wake the writer: [`Log::commit`] must follow. The payload is written as one part
    /// behind the other, so that a caller that puts a header before its bytes need not copy them. Only the writer knows in
    /// which segment it will stand, so `shorter` may come with it.
    pub fn enqueue_with(
        &self,
        kind: u8,
        payload: [Bytes; 2],
        shorter: Option<Shorter>,
        durability: Durability,
        done: Box<dyn FnOnce(Result<Appended, LogError>) + Send>,
    ) {
        let append = Append { kind, payload, shorter, durability, done: Completion::new(done) };
        if let Some(append) = self.checked(append) {
            self.shared.submit_quietly(append, WhenFull::Refuse);
        }
    }

    /// Wakes the writer for enqueued records. If there is only one, no one holds the turn, and the segment
    /// has room, and [`CommitOn::Caller`] allows it, the record is written and synced on this thread: that saves a lone
    /// caller two thread switches, each of which costs more than anything but the sync, and costs the calling
    /// thread the time of a sync, however long that takes.
    pub fn commit(&self, on: CommitOn) {
        if on == CommitOn::Caller
            && let Some((turn, size)) = self.shared.turn_of_lone()
        {
            lock(&self.writer).commit_within(&turn, size);
        } else {
            self.shared.wake();
        }
    }

    /// [`Log::append_with`] that takes the record also if the queue is full: for records that must not be
    /// refused, and that the caller bounds in another way. They count against the bounds of the others.
    pub fn append_exceeding_with(
        &self,
        kind: u8,
        payload: Bytes,
        durability: Durability,
        done: Box<dyn FnOnce(Result<Appended, LogError>) + Send>,
    ) {
        self.submit(Append::of(kind, payload, durability, Completion::new(done)), WhenFull::Exceed);
    }

    fn submit(&self, append: Append, when_full: WhenFull) {
        if let Some(append) = self.checked(append) {
            self.shared.submit(append, when_full);
        }
    }

    /// Largest payload of a record, in bytes.
    pub fn record_len_max(&self) -> usize {
        self.record_len_max
    }

    /// The append, unless it is too large: then it is done.
    fn checked(&self, mut append: Append) -> Option<Command> {
        // A longer one would not have the room that is kept for it, and who appended it tells by the length which one was taken.
        let [first, _] = &append.payload;
        append.shorter = append.shorter.filter(|shorter| shorter.part.len() < first.len());
        let (len, max) = (append.payload_len(), self.record_len_max);
        if len > max {
            append.done.complete(Err(LogError::TooLarge { len, max }));
            return None;
        }
        Some(Command::Append(append))
    }

    /// Waits until everything appended before is durable, records that were only written included. Returns
    /// the sequence of the next record.
    ///
    /// # Errors
    /// [`LogError::Poisoned`] or [`LogError::Closed`].
    pub fn sync(&self) -> Result<u64, LogError> {
        let (ticket, done) = Ticket::new();
        self.shared.submit(Command::Sync(done), WhenFull::Wait);
        ticket.wait()
    }

    /// [`Log::sync`] that never waits, however full the queue is: called on a timer, it bounds how long a power cut may
    /// lose a record that was only written. `done` is called as in [`Log::append_with`].
    pub fn sync_with(&self, done: Box<dyn FnOnce(Result<u64, LogError>) + Send>) {
        self.shared.submit(Command::Sync(Completion::new(done)), WhenFull::Exceed);
    }

    /// Looks whether the directory is still in its place, as every sync does, and each segment too: called on a timer, it bounds
    /// how long a log without appends goes on after one of them was removed or moved. It notes how far the log goes. `done` is called as in [`Log::append_with`], with
    /// the sequence below which everything is durable, or with [`LogError::Poisoned`].
    pub fn check_with(&self, done: Box<dyn FnOnce(Result<u64, LogError>) + Send>) {
        self.shared.submit(Command::Check(Completion::new(done)), WhenFull::Exceed);
    }

    /// Removes the segments all of whose records are below `sequence`, and returns how many. The last segment
    /// stays, and damaged ones are renamed, not removed. Queued behind earlier appends, which are durable
    /// before a segment is removed.
    ///
    /// # Errors
    /// [`LogError::Write`] if a file could not be removed (call again later), [`LogError::Poisoned`] or
    /// [`LogError::Closed`].
    pub fn truncate_before(&self, sequence: u64) -> Result<u64, LogError> {
        let (ticket, done) = Ticket::new();
        self.shared.submit(Command::TruncateBefore(sequence, done), WhenFull::Wait);
        ticket.wait()
    }

    /// [`Log::truncate_before`] that never waits. `done` is called as in [`Log::append_with`]; if the queue
    /// is full, with [`LogError::Full`].
    pub fn truncate_before_with(&self, sequence: u64, done: Box<dyn FnOnce(Result<u64, LogError>) + Send>) {
        self.shared.submit(Command::TruncateBefore(sequence, Completion::new(done)), WhenFull::Refuse);
    }

    /// Reads a record back; blocks on the disk, not on the writer. Works while the log exists, open or
    /// closed.
    ///
    /// # Errors
    /// [`LogError::Gone`] if its segment was truncated away, [`LogError::Damaged`] if its bytes have changed,
    /// and [`LogError::Read`] if the disk fails.
    pub fn read(&self, place: Place) -> Result<Record, LogError> {
        self.reader.read(place)
    }

    /// The segments in order, to choose the argument of [`Log::truncate_before`].
    pub fn segments(&self) -> Vec<SegmentStats> {
        self.board.segments()
    }

    /// Counts as of now.
    pub fn stats(&self) -> LogStats {
        let (segments, counts, load) = (self.board.segments(), self.board.counts(), self.shared.load());
        LogStats {
            segments: segments.len() as u64,
            bytes: segments.iter().map(|segment| segment.bytes).sum(),
            records: segments.iter().map(|segment| segment.records).sum(),
            spares: self.stock.ready() as u64,
            next_sequence: counts.next_sequence,
            groups: counts.groups,
            syncs: counts.syncs,
            write_failures: counts.write_failures,
            refused: load.refused,
            queued: load.commands,
            queued_bytes: load.bytes,
            poisoned: load.poisoned,
        }
    }

    /// Refuses new work, finishes queued work, syncs, and ends the writer thread. Later calls return the
    /// same.
    ///
    /// # Errors
    /// [`LogError::Poisoned`] if the log was or became poisoned.
    pub fn close(&self) -> Result<(), LogError> {
        self.shared.close();
        let handle = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A callback may hold the last handle: the writer cannot wait for itself, and ends by itself.
        if let Some(handle) = handle
            && handle.thread().id() != thread::current().id()
            && handle.join().is_err()
        {
            return Err(LogError::Closed); // the writer died of a bug, which the panic hook has reported
        }
        match self.shared.failure() {
            Some(error @ LogError::Poisoned { .. }) => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.close().ok();
    }
}

/// Counts of a log, all since it was opened unless said otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Segments on the disk now.
    pub segments: u64,
    /// Bytes of these up to their last record (zero-filled space is not counted).
    pub bytes: u64,
    /// Records in these.
    pub records: u64,
    /// Spare segments ready on the disk, in addition to these: [`LogConfig::spares`].
    pub spares: u64,
    /// The sequence of the next record.
    pub next_sequence: u64,
    /// Groups of records that were written, each at once.
    pub groups: u64,
    /// Syncs of record data.
    pub syncs: u64,
    /// Groups that could not be written, and were rolled back.
    pub write_failures: u64,
    /// Calls refused with [`LogError::Full`].
    pub refused: u64,
    /// Appends, syncs and truncations that wait for the writer now.
    pub queued: u64,
    /// Bytes that the appends among them will take.
    pub queued_bytes: u64,
    /// Whether the log is poisoned.
    pub poisoned: bool,
}

struct TicketSlot<T> {
    result: Mutex<Option<Result<T, LogError>>>,
    filled: Condvar,
}

/// A pending outcome. Dropping it does not cancel the request.
#[must_use = "it may fail"]
pub struct Ticket<T = Appended>(Arc<TicketSlot<T>>);

impl<T: fmt::Debug> fmt::Debug for Ticket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = self.0.result.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_tuple("Ticket").field(&*result).finish()
    }
}

impl<T: Send + 'static> Ticket<T> {
    fn new() -> (Self, Completion<T>) {
        let slot = Arc::new(TicketSlot { result: Mutex::new(None), filled: Condvar::new() });
        let filler = Arc::clone(&slot);
        let done: Callback<T> = Box::new(move |result| {
            *filler.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            filler.filled.notify_all();
        });
        (Self(slot), Completion::new(done))
    }

    /// Blocks until it is done; for an append, until the record has its requested durability.
    ///
    /// # Errors
    /// [`LogError::Write`] if it could not be done and nothing of it remains; [`LogError::Poisoned`] if the
    /// outcome is unknown; [`LogError::TooLarge`] or [`LogError::Closed`] if it was never tried.
    pub fn wait(self) -> Result<T, LogError> {
        let mut result = self.0.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            result = self.0.filled.wait(result).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
