//! The handle that callers hold.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;

use gpuvitals_core::figures::{Family, Kind};
use gpuvitals_core::ports::{Answer, Sink, SinkError};
use gpuvitals_core::quantity::counted;
use gpuvitals_core::{Batch, Health, Status, Table, causes, clock, wire};
use gpuvitals_log::{Appended, DirectoryLock, Disk, Durability, FsDisk, LockError, Log, LogConfig, LogError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use crate::error::JsonlError;
use crate::files::{Counts, Files};
use crate::pending;
use crate::recovery::{self, JsonlRecovered, KIND_ROWS};
use crate::writer::{EVENTS, Event, Writer};

/// Bytes of one permit of [`Shared::room`].
pub(crate) const PERMIT_BYTES: usize = 1024;
/// While the file of one GPU cannot be written, the log keeps the rows of all: at most so many times the room, since opening
/// anew has them in memory.
const BACKLOG_ROOMS: usize = 8;

/// Where and how JSON lines are written.
#[derive(Debug, Clone)]
pub struct JsonlConfig {
    /// The directory; made if it is missing.
    pub dir: PathBuf,
    /// A file that has grown to this many bytes gets its number, and a new one begins.
    pub file_bytes: u64,
    /// Most memory that rows may take that are in the log and not in files. Opening takes up to eight times as much, if a
    /// file could not be written for long.
    pub pending_bytes: usize,
    /// Size of a log segment in bytes.
    pub segment_bytes: u32,
}

impl JsonlConfig {
    /// Defaults in that directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), file_bytes: 64 << 20, pending_bytes: 64 << 20, segment_bytes: 32 << 20 }
    }
}

/// An open sink of JSON lines. Clones are handles of the same one.
#[derive(Debug, Clone)]
pub struct Jsonl(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    log: Arc<Log>,
    events: SyncSender<Event>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Locked as long as it is open.
    lock: Mutex<Option<Arc<DirectoryLock>>>,
}

/// State shared by the handles and the thread.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Room in memory for rows that are not in files.
    pub(crate) room: Arc<Semaphore>,
    pub(crate) room_permits: usize,
    /// Permits that rows took since all rows were in files. Those of written ones are back in the room.
    pub(crate) backlog: AtomicUsize,
    /// Why files cannot be written now, if so.
    stuck: watch::Sender<Option<Arc<JsonlError>>>,
    /// Why nothing is taken any more.
    failed: OnceLock<Arc<JsonlError>>,
    condition: Mutex<Condition>,
    counts: Arc<Counts>,
    /// Rows of other tables, by the table's place.
    left_out: [AtomicU64; Table::ALL.len()],
}

/// The health, and its reasons; each has its own end.
#[derive(Debug)]
struct Condition {
    health: Health,
    /// Why the log takes no rows; empty if it does.
    log: String,
    /// Why files cannot be written; empty if they can.
    files: String,
    /// What was stored and is gone; empty if nothing is.
    lost: String,
}

impl Jsonl {
    /// Opens a directory and takes its lock. Rows that were acknowledged and may be missing in files are compared and
    /// written from now on. Blocks.
    ///
    /// # Errors
    /// When the directory is in use, or cannot be read or written, or its log has a record that this version cannot read.
    pub fn open(config: &JsonlConfig) -> Result<(Self, JsonlRecovered), JsonlError> {
        let dir = config.dir.join("jsonl-log");
        let lock = DirectoryLock::take(&dir).map_err(|error| match error {
            LockError::InUse(path) => JsonlError::Locked(path),
            LockError::Io { path, source } => JsonlError::io("locking", &path.display().to_string(), source),
        })?;
        let lock = Arc::new(lock);
        let disk = |dir: &PathBuf| {
            FsDisk::under(&lock, dir).map_err(|e| JsonlError::io("opening", &dir.display().to_string(), e))
        };
        let (files, log) = (disk(&config.dir)?, disk(&dir)?);
        let (jsonl, found) = Self::open_on(config, files, log)?;
        let beyond = lock.noted_end().saturating_sub(jsonl.0.log.stats().next_sequence);
        if beyond > 0 {
            jsonl.0.shared.observe(|condition| condition.lost = lost(beyond));
        }
        *jsonl.0.lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(lock);
        Ok((jsonl, found))
    }

    /// [`Jsonl::open`] on disks of the caller's choice, which it owns: one for the files and one for the log.
    ///
    /// # Errors
    /// As [`Jsonl::open`].
    pub fn open_on(
        config: &JsonlConfig,
        files: impl Disk,
        log: impl Disk,
    ) -> Result<(Self, JsonlRecovered), JsonlError> {
        let log_config = LogConfig { segment_len: config.segment_bytes, spares: 0, ..LogConfig::default() };
        let (log, recovery) = Log::open(log, log_config)?;
        let mut found = JsonlRecovered::default();
        let (replayed, sequence) = recovery::rows(recovery, &mut found)?;
        let shared = Arc::new(Shared::new(config.pending_bytes));
        let files = Files::open(files, config.file_bytes.max(1), Arc::clone(&shared.counts))?;
        let log = Arc::new(log);
        let writer = Writer::new(Arc::clone(&shared), Arc::clone(&log), files, &replayed, sequence);
        let (events, event_queue) = sync_channel(EVENTS);
        let thread = std::thread::Builder::new()
            .name("jsonl-writer".to_owned())
            .spawn(move || writer.run(&event_queue))
            .map_err(|e| JsonlError::io("starting", "jsonl-writer", e))?;
        let inner = Inner { shared, log, events, thread: Mutex::new(Some(thread)), lock: Mutex::new(None) };
        Ok((Self(Arc::new(inner)), found))
    }

    async fn append(&self, batches: Vec<Batch>) -> Result<(), JsonlError> {
        let shared = &self.0.shared;
        shared.check()?;
        let (batches, others): (Vec<_>, Vec<_>) =
            batches.into_iter().partition(|batch| batch.table() == Table::GpuEvents);
        if batches.is_empty() {
            self.look().await?;
        } else {
            self.append_gpus(batches).await?;
        }
        for batch in others {
            shared.leave_out(&batch);
        }
        Ok(())
    }

    /// Whether rows would be taken.
    async fn look(&self) -> Result<(), JsonlError> {
        let (answer, outcome) = oneshot::channel();
        let lock = self.0.lock.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.0.log.check_with(Box::new(move |checked| {
            if let (Ok(end), Some(lock)) = (&checked, lock) {
                lock.note_end(*end);
            }
            drop(answer.send(checked));
        }));
        match outcome.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.0.shared.note_log(error)),
            Err(_) => Err(JsonlError::Closed),
        }
    }

    async fn append_gpus(&self, batches: Vec<Batch>) -> Result<(), JsonlError> {
        let shared = &self.0.shared;
        let (mut payload, mut taken, mut bytes) = (Vec::new(), Vec::with_capacity(batches.len()), 0);
        for mut batch in batches {
            bytes += pending::check(&batch)?;
            wire::push_frame(&mut payload, &wire::encode(&batch)?);
            batch.forget_wire();
            taken.push(batch);
        }
        let room = shared.room(bytes).await?;
        let (answer, outcome) = oneshot::channel();
        let events = self.0.events.clone();
        // Called in the order of records.
        let done = move |written: Result<Appended, LogError>| {
            let written = written.map(|Appended { sequence, .. }| {
                events.send(Event::Durable { sequence, batches: taken, room }).is_ok()
            });
            drop(answer.send(written));
        };
        // The room bounds what waits for the log.
        self.0.log.append_exceeding_with(KIND_ROWS, payload.into(), Durability::Synced, Box::new(done));
        match outcome.await {
            Ok(Ok(true)) => {
                shared.observe(|condition| condition.log.clear());
                Ok(())
            }
            Ok(Err(error)) => Err(shared.note_log(error)),
            Ok(Ok(false)) | Err(_) => Err(JsonlError::Closed),
        }
    }

    /// Writes all rows that were accepted to their files, durably.
    ///
    /// # Errors
    /// If a file cannot be written; the rows are safe in the log, and it is tried again.
    pub async fn flush(&self) -> Result<(), JsonlError> {
        let (reply, outcome) = oneshot::channel();
        let inner = Arc::clone(&self.0);
        // The thread's queue may be full for a moment.
        let sent = tokio::task::spawn_blocking(move || inner.events.send(Event::Flush(reply))).await;
        if !matches!(sent, Ok(Ok(()))) {
            return Err(JsonlError::Closed);
        }
        outcome.await.unwrap_or(Err(JsonlError::Closed))
    }
}

impl Sink for Jsonl {
    fn accept(&self, batches: Vec<Batch>) -> Answer<'_, Result<(), SinkError>> {
        Box::pin(async move { Ok(self.append(batches).await?) })
    }

    fn close(&self) -> Answer<'_, Result<(), SinkError>> {
        Box::pin(async move {
            // Appends that wait for room get `Closed`; those on their way to the log are in front of the sync.
            self.0.shared.room.close();
            let inner = Arc::clone(&self.0);
            let synced = tokio::task::spawn_blocking(move || inner.log.sync()).await;
            let flushed = self.flush().await;
            let inner = Arc::clone(&self.0);
            tokio::task::spawn_blocking(move || inner.end()).await.map_err(|_| SinkError::Closed)?;
            match (synced, flushed) {
                // It was closed before.
                (Ok(Err(LogError::Closed)), _) | (Ok(Ok(_)), Ok(())) => Ok(()),
                (Ok(Err(error)), _) => Err(JsonlError::from(error).into()),
                (_, Err(error)) => Err(error.into()),
                (Err(_), _) => Err(SinkError::Closed),
            }
        })
    }

    fn health(&self) -> Health {
        self.0.shared.condition.lock().unwrap_or_else(PoisonError::into_inner).health.clone()
    }

    fn families(&self) -> Vec<Family> {
        let (shared, log) = (&self.0.shared, self.0.log.stats());
        let counts = &*shared.counts;
        let left_out = Table::ALL.iter().zip(&shared.left_out).map(|(table, rows)| (table.name(), rows));
        vec![
            Family::counter("gpuvitals_jsonl_lines_total", "Lines appended to files.", &counts.lines),
            Family::counter("gpuvitals_jsonl_written_bytes_total", "Bytes of these.", &counts.bytes),
            Family::counter(
                "gpuvitals_jsonl_repeats_total",
                "Rows that were in their file already.",
                &counts.repeats,
            ),
            Family::counter("gpuvitals_jsonl_syncs_total", "Syncs of files.", &counts.syncs),
            Family::new(
                "gpuvitals_jsonl_left_out_total",
                Kind::Counter,
                "Rows of tables that JSON lines do not have.",
            )
            .by("table", left_out.filter(|(table, _)| *table != Table::GpuEvents.name())),
            Family::gauge(
                "gpuvitals_jsonl_gpus",
                "GPUs whose file was written since the start.",
                &counts.gpus,
            ),
            Family::gauge("gpuvitals_jsonl_log_bytes", "Bytes of the log.", log.bytes),
        ]
    }
}

impl Inner {
    /// Ends the thread and releases the directory; rows that are not in files stay in the log.
    fn end(&self) {
        self.shared.room.close();
        // A thread that has ended already needs no word.
        let _told = self.events.send(Event::Close);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that writes JSON lines ended with a panic");
        }
        let closed = self.log.close();
        if let Err(error) = &closed {
            tracing::warn!(error = causes(error), "closing the log of the JSON lines");
        }
        if let Some(lock) = self.lock.lock().unwrap_or_else(PoisonError::into_inner).take() {
            if closed.is_ok() {
                lock.note_end(self.log.stats().next_sequence);
            }
            // The disks hold it too.
            lock.release();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn new(pending_bytes: usize) -> Self {
        let room_permits = (pending_bytes / PERMIT_BYTES).clamp(3, Semaphore::MAX_PERMITS);
        Self {
            room: Arc::new(Semaphore::new(room_permits)),
            room_permits,
            backlog: AtomicUsize::new(0),
            stuck: watch::Sender::new(None),
            failed: OnceLock::new(),
            condition: Mutex::new(Condition {
                health: Health::healthy(clock::now_ns()),
                log: String::new(),
                files: String::new(),
                lost: String::new(),
            }),
            counts: Arc::default(),
            left_out: Default::default(),
        }
    }

    /// Room in memory: waits for it, unless files cannot be written, because then it may never come.
    async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, JsonlError> {
        let wanted = (bytes / PERMIT_BYTES + 1).min(self.room_permits / 3);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        if let Some(reason) = &*self.stuck.borrow()
            && self.backlog.load(Ordering::Relaxed) >= self.room_permits.saturating_mul(BACKLOG_ROOMS)
        {
            return Err(JsonlError::Full(Arc::clone(reason)));
        }
        if let Ok(permit) = Arc::clone(&self.room).try_acquire_many_owned(wanted) {
            return Ok(permit);
        }
        let mut stuck = self.stuck.subscribe();
        let reason = tokio::select! {
            biased;
            stuck = stuck.wait_for(Option::is_some) => stuck.map_or(None, |reason| reason.clone()),
            permit = Arc::clone(&self.room).acquire_many_owned(wanted) => {
                return permit.map_err(|_| self.check().err().unwrap_or(JsonlError::Closed));
            }
        };
        Err(reason.map_or(JsonlError::Closed, JsonlError::Full))
    }

    fn leave_out(&self, batch: &Batch) {
        let place = Table::ALL.iter().position(|table| *table == batch.table());
        if let Some(count) = place.and_then(|place| self.left_out.get(place))
            && count.fetch_add(batch.rows() as u64, Ordering::Relaxed) == 0
        {
            tracing::warn!(
                table = batch.table().name(),
                "JSON lines have no rows of this table; they are left out"
            );
        }
    }

    pub(crate) fn failure(&self) -> Option<&Arc<JsonlError>> {
        self.failed.get()
    }

    /// Refuses everything once a sync has failed.
    ///
    /// # Errors
    /// [`JsonlError::Failed`], if so.
    pub(crate) fn check(&self) -> Result<(), JsonlError> {
        self.failure().map_or(Ok(()), |error| Err(JsonlError::Failed(Arc::clone(error))))
    }

    /// Sets or (none) clears why files cannot be written.
    pub(crate) fn set_stuck(&self, reason: Option<Arc<JsonlError>>) {
        let words = reason.as_ref().map(|error| format!("JSON lines are not written: {}", causes(&**error)));
        self.observe(|condition| condition.files = words.unwrap_or_default());
        self.stuck.send_replace(reason);
    }

    /// Notes why the thread could not do its work.
    pub(crate) fn troubled(&self, error: JsonlError) -> Arc<JsonlError> {
        let error = match error {
            JsonlError::Failed(error) => {
                self.failed.get_or_init(|| Arc::clone(&error));
                self.room.close();
                error
            }
            error => Arc::new(error),
        };
        self.set_stuck(Some(Arc::clone(&error)));
        error
    }

    /// Notes that the log did not take rows.
    fn note_log(&self, error: LogError) -> JsonlError {
        let error = JsonlError::Log(error);
        let words = format!("rows are not taken: {}", causes(&error));
        self.observe(|condition| condition.log = words);
        error
    }

    fn observe(&self, change: impl FnOnce(&mut Condition)) {
        let mut condition = self.condition.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut condition);
        let reasons = [condition.log.as_str(), condition.files.as_str(), condition.lost.as_str()];
        let words = reasons.into_iter().filter(|words| !words.is_empty()).collect::<Vec<_>>().join("; ");
        if condition.health.reason == words {
            return;
        }
        if words.is_empty() {
            tracing::info!("the sink of JSON lines takes and writes rows again");
        } else {
            tracing::warn!(reason = words, "the sink of JSON lines is degraded");
        }
        let status = if words.is_empty() { Status::Healthy } else { Status::Degraded };
        condition.health.observe(status, words, clock::now_ns());
    }
}

/// Records that the lock's file knows of and the log does not have.
fn lost(records: u64) -> String {
    format!(
        "the end of the log is gone, with {} that were stored: its newest segment was removed, or the directory is an older copy",
        counted(records, "record")
    )
}

impl From<JsonlError> for SinkError {
    fn from(error: JsonlError) -> Self {
        match error {
            JsonlError::Closed | JsonlError::Log(LogError::Closed) => Self::Closed,
            JsonlError::Failed(_) | JsonlError::Log(LogError::Poisoned { .. }) => Self::Failed(error.into()),
            JsonlError::Encode(_)
            | JsonlError::NameTooLong { .. }
            | JsonlError::Nobody(_)
            | JsonlError::TooMuchText { .. }
            | JsonlError::Log(LogError::TooLarge { .. }) => Self::Refused(error.into()),
            JsonlError::Io { .. }
            | JsonlError::Locked(_)
            | JsonlError::UnknownRecord { .. }
            | JsonlError::Undecodable { .. }
            | JsonlError::Full(_)
            | JsonlError::Unwritten(_)
            | JsonlError::Log(_) => Self::Busy(error.into()),
        }
    }
}
