//! The handle that callers hold.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use bytes::Bytes;

use crate::config::{Durability, LogConfig};
use crate::disk::Disk;
use crate::error::LogError;
use crate::recovery::{Recovery, recover};
use crate::submit::{Append, Command, Completion, Shared, Stats, WhenFull};
use crate::writer::Writer;

/// An open log. Share it in an `Arc`; all methods take `&self`. Dropping it is [`Log::close`] without the answer.
pub struct Log {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    record_len_max: usize,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Log {
    /// Recovers what is on the disk and starts the writer thread. Nothing but unfinished segments is removed, and no
    /// space is taken before the first append. The caller sees to it that no other process has the directory.
    ///
    /// # Errors
    /// If a setting is out of range, the disk cannot be read or synced, or a segment is of a later version. Damaged
    /// segments are no error: see [`Recovery::damage`].
    pub fn open(disk: impl Disk, config: LogConfig) -> Result<(Self, Recovery), LogError> {
        config.check()?;
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let (resume, recovery) = recover(&disk)?;
        let record_len_max = config.record_len_max();
        let writer = Writer::new(disk, config, resume);
        let shared = writer.shared();
        let thread = thread::Builder::new()
            .name("log-writer".into())
            .spawn(move || writer.run())
            .map_err(|source| LogError::Thread { source: Arc::new(source) })?;
        Ok((Self { shared, writer: Mutex::new(Some(thread)), record_len_max }, recovery))
    }

    /// Appends a record; waits for room if the queue is full. The ticket tells the outcome.
    pub fn append(&self, kind: u8, payload: Bytes, durability: Durability) -> Ticket {
        let (ticket, done) = Ticket::new();
        self.submit(kind, payload, durability, done, WhenFull::Wait);
        ticket
    }

    /// Appends a record and never waits: if the queue is full, `done` gets [`LogError::Full`]. `done` is called exactly
    /// once with the record's sequence or the error, on the writer thread or before this returns. It must be
    /// quick, must not panic, and must not wait for this log.
    pub fn append_with(
        &self,
        kind: u8,
        payload: Bytes,
        durability: Durability,
        done: Box<dyn FnOnce(Result<u64, LogError>) + Send>,
    ) {
        self.submit(kind, payload, durability, Completion::new(done), WhenFull::Refuse);
    }

    fn submit(
        &self,
        kind: u8,
        payload: Bytes,
        durability: Durability,
        done: Completion,
        when_full: WhenFull,
    ) {
        let (len, max) = (payload.len(), self.record_len_max);
        if len > max {
            return done.complete(Err(LogError::TooLarge { len, max }));
        }
        self.shared.submit(Command::Append(Append { kind, payload, durability, done }), when_full);
    }

    /// Waits until everything appended before is durable, the merely written too. Returns the sequence that the next
    /// record gets.
    ///
    /// # Errors
    /// [`LogError::Poisoned`] or [`LogError::Closed`].
    pub fn sync(&self) -> Result<u64, LogError> {
        let (ticket, done) = Ticket::new();
        self.shared.submit(Command::Sync(done), WhenFull::Wait);
        ticket.wait()
    }

    /// Removes the segments all of whose records are below `sequence`, and says how many. The last segment stays, and
    /// damaged ones are renamed, not removed. Queued behind the appends made before.
    ///
    /// # Errors
    /// [`LogError::Write`] if a file could not be removed (call again later), [`LogError::Poisoned`] or
    /// [`LogError::Closed`].
    pub fn truncate_before(&self, sequence: u64) -> Result<u64, LogError> {
        let (ticket, done) = Ticket::new();
        self.shared.submit(Command::TruncateBefore(sequence, done), WhenFull::Wait);
        ticket.wait()
    }

    /// Counts as of now.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Refuses new work, does what is queued, syncs, and ends the writer thread. Later calls return the same.
    ///
    /// # Errors
    /// [`LogError::Poisoned`] if the log was or became poisoned.
    pub fn close(&self) -> Result<(), LogError> {
        self.shared.close();
        let handle = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
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

#[derive(Default)]
struct Slot {
    result: Mutex<Option<Result<u64, LogError>>>,
    filled: Condvar,
}

/// The outcome of an append, to be waited for. Dropping it does not take the append back.
#[must_use = "an append may fail"]
pub struct Ticket(Arc<Slot>);

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let result = self.0.result.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_tuple("Ticket").field(&*result).finish()
    }
}

impl Ticket {
    fn new() -> (Self, Completion) {
        let slot = Arc::new(Slot::default());
        let filler = Arc::clone(&slot);
        let done = Completion::new(Box::new(move |result| {
            *filler.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            filler.filled.notify_all();
        }));
        (Self(slot), done)
    }

    /// Blocks until the record is as durable as was asked, and returns its sequence.
    ///
    /// # Errors
    /// [`LogError::Write`] if it could not be written and nothing of it remains; [`LogError::Poisoned`] if nobody knows;
    /// [`LogError::TooLarge`] or [`LogError::Closed`] if it was never tried.
    pub fn wait(self) -> Result<u64, LogError> {
        let mut result = self.0.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = result.take() {
                return result;
            }
            result = self.0.filled.wait(result).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
