//! Appends to the log, and recovery from its failures.
//!
//! A write that fails (a full disk) is rolled back by the log, which continues. A sync that fails poisons it:
//! then the next append reopens it, not more often than [`RETRY`] allows. Records of the reopened log beyond
//! the visible ones were never acknowledged; they become visible, as they would after a restart.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use gpuvitals_core::causes;
use gpuvitals_core::clock;
use gpuvitals_core::wire;
use gpuvitals_log::{Appended, Durability, Log, LogConfig, LogError, Record, Stats};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::board::Part;
use crate::directory::{self, Directory, QUARANTINE};
use crate::error::AppendError;
use crate::machine::Machine;
use crate::shared::Shared;
use crate::step::{Step, Steps};
use crate::writer::{Arrival, Event};

/// Kind of a log record that is the wire form of rows of `gpu_events`.
pub(crate) const KIND_GPU_EVENTS: u8 = 1;
/// Delays before a poisoned log is opened again; the last one repeats.
const RETRY: [Duration; 4] =
    [Duration::from_millis(50), Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(5)];

/// When the log may be opened again, and why it was not.
#[derive(Debug, Default)]
struct Backoff {
    failures: usize,
    last: Option<(Instant, LogError)>,
}

/// The log, and how to get another.
#[derive(Debug)]
pub(crate) struct Port {
    shared: Arc<Shared>,
    directory: Arc<Directory>,
    machine: Machine,
    config: LogConfig,
    log: ArcSwapOption<Log>,
    /// The records of one append are adjacent in the log.
    order: Mutex<()>,
    reopening: tokio::sync::Mutex<Backoff>,
    /// Held while the log is reopened: closing waits for that, or the directory would be released under it.
    opening: Mutex<()>,
    closed: AtomicBool,
    events: SyncSender<Event>,
}

impl Port {
    pub(crate) fn new(
        shared: Arc<Shared>,
        directory: Arc<Directory>,
        machine: Machine,
        config: LogConfig,
        log: Log,
        events: SyncSender<Event>,
    ) -> Self {
        Self {
            shared,
            directory,
            machine,
            config,
            log: ArcSwapOption::from_pointee(log),
            order: Mutex::new(()),
            reopening: tokio::sync::Mutex::default(),
            opening: Mutex::new(()),
            closed: AtomicBool::new(false),
            events,
        }
    }

    /// Writes records side by side and waits until they are durable and visible; the version that shows them.
    ///
    /// # Errors
    /// When they are not durable.
    pub(crate) async fn write(
        self: &Arc<Self>,
        records: Vec<Bytes>,
        arrivals: Vec<Arrival>,
        room: OwnedSemaphorePermit,
    ) -> Result<(u64, u64), AppendError> {
        let log = self.ready().await?;
        let (answer, outcome) = oneshot::channel();
        let (visible, version) = oneshot::channel();
        let pending = Arc::new(Pending {
            left: AtomicUsize::new(records.len()),
            failure: OnceLock::new(),
            rows: Mutex::new(Some((arrivals, room, visible, answer))),
            events: self.events.clone(),
        });
        {
            let _together = self.order.lock().unwrap_or_else(PoisonError::into_inner);
            for record in records {
                let pending = Arc::clone(&pending);
                let done = Box::new(move |outcome| pending.done(outcome));
                log.append_with(KIND_GPU_EVENTS, record, Durability::Synced, done);
            }
        }
        match outcome.await {
            Ok(Ok(sequence)) => {
                self.shared.board.set(Part::Log, None);
                version.await.map(|version| (sequence, version)).map_err(|_| AppendError::Closed)
            }
            Ok(Err(error)) => {
                let refused = self.failed(&log, error);
                if refused.is_retryable() {
                    self.shared
                        .board
                        .set(Part::Log, Some(format!("rows are not taken: {}", causes(&refused))));
                }
                Err(refused)
            }
            Err(_) => Err(AppendError::Closed),
        }
    }

    fn failed(&self, log: &Arc<Log>, error: LogError) -> AppendError {
        match error {
            LogError::TooLarge { len, max } => AppendError::TooLarge { len, max },
            LogError::Closed if self.closed.load(Ordering::Acquire) => AppendError::Closed,
            LogError::Poisoned { .. } | LogError::Closed => {
                // Only the log that failed is let go of, not one that was opened since.
                self.log.compare_and_swap(log, None);
                AppendError::Log(error)
            }
            error => AppendError::Log(error),
        }
    }

    async fn ready(self: &Arc<Self>) -> Result<Arc<Log>, AppendError> {
        if let Some(log) = self.log.load_full() {
            return Ok(log);
        }
        let mut backoff = self.reopening.lock().await;
        if let Some(log) = self.log.load_full() {
            return Ok(log);
        }
        if self.closed.load(Ordering::Acquire) {
            return Err(AppendError::Closed);
        }
        if let Some((until, error)) = &backoff.last
            && clock::instant() < *until
        {
            return Err(AppendError::Log(error.clone()));
        }
        let port = Arc::clone(self);
        let opened =
            tokio::task::spawn_blocking(move || port.reopen()).await.map_err(|_| AppendError::Closed)?;
        match opened {
            Ok(log) => {
                *backoff = Backoff::default();
                tracing::info!("the log is open again");
                Ok(log)
            }
            Err(_) if self.closed.load(Ordering::Acquire) => Err(AppendError::Closed),
            Err(error) => {
                let delay = RETRY.get(backoff.failures).or(RETRY.last()).copied().unwrap_or_default();
                backoff.failures += 1;
                backoff.last = Some((clock::instant() + delay, error.clone()));
                self.shared.board.set(Part::Log, Some(format!("the log does not open: {}", causes(&error))));
                Err(AppendError::Log(error))
            }
        }
    }

    /// Reopens the log. The failed one has answered all callers by now: its writer ends by itself and was the
    /// last to call back.
    fn reopen(&self) -> Result<Arc<Log>, LogError> {
        let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if self.closed.load(Ordering::Acquire) {
            return Err(LogError::Closed);
        }
        let (log, recovery) = self.machine.open_log(self.config.clone())?;
        let (done, taken) = sync_channel(1);
        if self.events.send(Event::Barrier(done)).is_err() || taken.recv().is_err() {
            return Err(LogError::Closed);
        }
        let visible = self.shared.last_applied.load(Ordering::Acquire);
        for record in recovery {
            let record = record?;
            if record.sequence <= visible {
                continue;
            }
            match replay(&record, &self.directory) {
                Ok(found) => self.events.send(event(found)).map_err(|_| LogError::Closed)?,
                Err(reason) => self.shared.board.set(Part::Damage, Some(reason)),
            }
        }
        let log = Arc::new(log);
        self.log.store(Some(Arc::clone(&log)));
        Ok(log)
    }

    /// Truncates records below a sequence.
    ///
    /// # Errors
    /// The log's error.
    pub(crate) fn truncate_before(&self, sequence: u64) -> Result<u64, LogError> {
        self.log.load_full().map_or(Ok(0), |log| log.truncate_before(sequence))
    }

    /// Counts of the log as it is now; none while it is not open.
    pub(crate) fn stats(&self) -> Option<Stats> {
        self.log.load().as_ref().map(|log| log.stats())
    }

    /// Takes nothing more, and has written everything taken. Blocks.
    ///
    /// # Errors
    /// The log's error.
    pub(crate) fn close(&self) -> Result<(), LogError> {
        self.closed.store(true, Ordering::Release);
        let _opened = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        self.log.load_full().map_or(Ok(()), |log| log.close())
    }
}

fn event((sequence, arrival): (u64, Arrival)) -> Event {
    Event::Durable { sequence, arrivals: vec![arrival], room: None, answer: None }
}

/// Rows of a log record.
///
/// # Errors
/// If it does not hold rows: then it has been set aside, and the error has its new path or the reason for
/// failing.
pub(crate) fn replay(record: &Record, directory: &Directory) -> Result<(u64, Arrival), String> {
    let reason = if record.kind == KIND_GPU_EVENTS {
        match wire::decode(&record.payload)
            .map_err(|error| causes(&error))
            .and_then(|batch| Arrival::new(batch).map_err(|row| format!("row {row} names no GPU")))
        {
            Ok(arrival) => return Ok((record.sequence, arrival)),
            Err(reason) => reason,
        }
    } else {
        format!("kind {} is not known", record.kind)
    };
    let path = directory.root().join(QUARANTINE).join(format!("record-{}.bin", record.sequence));
    let kept = directory::write(&path, &record.payload, &Steps::default(), Step::Rename);
    let place = kept.map_or_else(|error| error.to_string(), |()| path.display().to_string());
    Err(format!("log record {} holds no rows ({reason}), kept in {place}", record.sequence))
}

type Rows =
    (Vec<Arrival>, OwnedSemaphorePermit, oneshot::Sender<u64>, oneshot::Sender<Result<u64, LogError>>);

/// Records of one append that are on their way.
struct Pending {
    left: AtomicUsize,
    failure: OnceLock<LogError>,
    rows: Mutex<Option<Rows>>,
    events: SyncSender<Event>,
}

impl Pending {
    /// One of them is durable, or failed. Called by the log's thread in the order of records.
    fn done(&self, outcome: Result<Appended, LogError>) {
        let sequence = match outcome {
            Ok(appended) => appended.sequence,
            Err(error) => {
                let _first = self.failure.set(error);
                0
            }
        };
        if self.left.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let Some((arrivals, room, visible, answer)) =
            self.rows.lock().unwrap_or_else(PoisonError::into_inner).take()
        else {
            return;
        };
        if let Some(error) = self.failure.get() {
            // The caller may have gone.
            let _told = answer.send(Err(error.clone()));
            return;
        }
        let event = Event::Durable { sequence, arrivals, room: Some(room), answer: Some(visible) };
        // A writer that has ended drops the event and with it `visible`: the append is answered with `Closed`.
        let _taken = self.events.send(event);
        let _told = answer.send(Ok(sequence));
    }
}
