//! The thread that turns acknowledged rows into lines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use gpuvitals_core::{Batch, causes, clock};
use gpuvitals_log::{Durability, Log};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::error::JsonlError;
use crate::files::Files;
use crate::pending::{self, Pending};
use crate::recovery::{KIND_WRITTEN, ReplayedRows};
use crate::shared::{PERMIT_BYTES, Shared};

/// Events that wait at most; then the log's thread waits.
pub(crate) const EVENTS: usize = 1024;
/// How long rows wait for others of their GPU and instant; also the pause after a failure.
const WRITE_AGE: Duration = Duration::from_secs(1);
/// How long written lines wait for a sync: they are in the log, and thousands of files take their time.
const SYNC_AGE: Duration = Duration::from_secs(10);

/// Outcome of [`Event::Flush`].
pub(crate) type Flushed = Result<(), JsonlError>;

/// What the thread that writes files is told.
pub(crate) enum Event {
    /// The log has made these durable.
    Durable {
        sequence: u64,
        batches: Vec<Batch>,
        room: OwnedSemaphorePermit,
    },
    /// Write and sync everything.
    Flush(oneshot::Sender<Flushed>),
    Close,
}

/// The state of the thread that writes files.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    log: Arc<Log>,
    files: Files,
    pending: Pending,
    /// Room that the rows take that came since files were written last.
    permits: usize,
    /// The last record whose rows came.
    sequence: u64,
    /// The last one whose rows are all in files, synced or not.
    written: u64,
    /// The last one that the log knows to be in files.
    noted: u64,
    /// Next time at which rows are written, and at which files are synced.
    write_at: Option<Instant>,
    sync_at: Option<Instant>,
    /// A note that could not be appended to the log: it is repeated.
    is_unnoted: Arc<AtomicBool>,
}

impl Writer {
    /// Of the rows that the log gave back.
    pub(crate) fn new(shared: Arc<Shared>, log: Arc<Log>, files: Files, replayed: &ReplayedRows) -> Self {
        let ReplayedRows { batches, sequence } = replayed;
        let mut pending = Pending::default();
        pending.add(batches, 0);
        let bytes: usize = batches.iter().filter_map(|batch| pending::check(batch).ok()).sum();
        shared.backlog.store(bytes / PERMIT_BYTES, Ordering::Relaxed);
        let is_unnoted = Arc::new(AtomicBool::new(false));
        let write_at = (!batches.is_empty()).then(clock::instant);
        let noted = if batches.is_empty() { *sequence } else { 0 };
        Self {
            shared,
            log,
            files,
            pending,
            permits: 0,
            sequence: *sequence,
            written: noted,
            noted,
            write_at,
            sync_at: None,
            is_unnoted,
        }
    }

    /// Works until closed, or until no sender is left.
    pub(crate) fn run(mut self, events: &Receiver<Event>) {
        let mut waiting = Vec::new();
        loop {
            let first = match events.recv_timeout(self.patience()) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Event::Close),
            };
            let mut is_closing = false;
            for event in first.into_iter().chain(events.try_iter().take(EVENTS)) {
                match event {
                    Event::Durable { sequence, batches, room } => self.take(sequence, &batches, room),
                    Event::Flush(reply) => waiting.push(reply),
                    Event::Close => is_closing = true,
                }
            }
            let is_asked = is_closing || !waiting.is_empty();
            let outcome = self.work(is_asked).map_err(|error| self.shared.troubled(error));
            for reply in waiting.drain(..) {
                let answer = outcome.clone().map_err(JsonlError::Unwritten);
                let _gone = reply.send(answer);
            }
            if is_closing {
                return;
            }
        }
    }

    fn patience(&self) -> Duration {
        let next = self.write_at.into_iter().chain(self.sync_at).min();
        next.map_or(Duration::from_hours(1), |next| next.saturating_duration_since(clock::instant()))
    }

    fn take(&mut self, sequence: u64, batches: &[Batch], room: OwnedSemaphorePermit) {
        let permits = room.num_permits();
        room.forget();
        let left = self.pending.add(batches, permits);
        self.shared.room.add_permits(left);
        self.permits += permits;
        self.shared.backlog.fetch_add(permits, Ordering::Relaxed);
        self.sequence = sequence;
        if self.write_at.is_none() {
            self.write_at = Some(clock::instant() + WRITE_AGE);
        }
    }

    /// Writes, syncs and notes what is due, or all of it.
    ///
    /// # Errors
    /// If something could not be written; it is tried again.
    fn work(&mut self, is_asked: bool) -> Result<(), JsonlError> {
        if self.shared.failure().is_some() {
            (self.write_at, self.sync_at) = (None, None);
            return self.shared.check();
        }
        let now = clock::instant();
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_asked || is_due(self.write_at) || self.permits >= self.shared.room_permits / 3 {
            self.write_at = None;
            if let Err(error) = self.write() {
                self.write_at = Some(now + WRITE_AGE);
                return Err(error);
            }
            self.shared.set_stuck(None);
            if self.sync_at.is_none() && (self.files.is_dirty() || self.written > self.noted) {
                self.sync_at = Some(now + SYNC_AGE);
            }
        }
        if is_asked || is_due(self.sync_at) {
            self.sync_at = None;
            self.files.sync()?;
            self.note();
        }
        Ok(())
    }

    /// Appends the pending rows to their files. Those of a file that cannot be written stay, and so do all after a failed sync.
    fn write(&mut self) -> Result<(), JsonlError> {
        let mut error = None;
        self.permits = 0;
        let (files, room) = (&mut self.files, &self.shared.room);
        self.pending.0.retain(|gpu, rows| {
            if matches!(error, Some(JsonlError::Failed(_))) {
                return true;
            }
            let written = files.write(gpu, rows);
            let stays = written.is_err();
            if !stays {
                room.add_permits(rows.permits);
            }
            error = written.err().or_else(|| error.take());
            stays
        });
        if let Some(error) = error {
            return Err(error);
        }
        self.written = self.sequence;
        self.shared.backlog.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Notes in the log what is in files, and has it forget that.
    fn note(&mut self) {
        let is_unnoted = self.is_unnoted.swap(false, Ordering::Relaxed);
        if self.written == self.noted && !is_unnoted {
            return;
        }
        self.noted = self.written;
        let unnoted = Arc::clone(&self.is_unnoted);
        let payload = self.written.to_le_bytes().to_vec().into();
        // Neither waits: the log's thread may be waiting for this one.
        self.log.append_exceeding_with(
            KIND_WRITTEN,
            payload,
            Durability::Written,
            Box::new(move |noted| unnoted.store(noted.is_err(), Ordering::Relaxed)),
        );
        let truncated = |outcome: Result<u64, _>| {
            if let Err(error) = outcome {
                tracing::warn!(error = causes(&error), "the log of the JSON lines is not truncated");
            }
        };
        self.log.truncate_before_with(self.written + 1, Box::new(truncated));
    }
}
