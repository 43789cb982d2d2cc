//! The handle that callers hold.

use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use gpuvitals_core::figures::{Family, Kind};
use gpuvitals_core::ports::{Answer, Sink, SinkError};
use gpuvitals_core::quantity::counted;
use gpuvitals_core::{Batch, Health, Table, causes, wire};
use gpuvitals_log::{Appended, DirectoryLock, Disk, Durability, FsDisk, LockError, Log, LogConfig, LogError};
use tokio::sync::oneshot;

use crate::error::JsonlError;
use crate::files::Files;
use crate::pending;
use crate::recovery::{self, JsonlRecovered, KIND_ROWS};
use crate::shared::Shared;
use crate::writer::{EVENTS, Event, Writer};

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
pub struct Jsonl(Arc<JsonlInner>);

#[derive(Debug)]
struct JsonlInner {
    shared: Arc<Shared>,
    log: Arc<Log>,
    events: SyncSender<Event>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Locked as long as it is open.
    lock: Mutex<Option<Arc<DirectoryLock>>>,
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
            LockError::Io { path, source } => JsonlError::io("lock", &path.display().to_string(), source),
        })?;
        let lock = Arc::new(lock);
        let disk = |dir: &PathBuf| {
            FsDisk::under(&lock, dir).map_err(|e| JsonlError::io("open", &dir.display().to_string(), e))
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
        let replayed = recovery::rows(recovery, &mut found)?;
        let shared = Arc::new(Shared::new(config.pending_bytes));
        let files = Files::open(files, config.file_bytes.max(1), Arc::clone(&shared.counts))?;
        let log = Arc::new(log);
        let writer = Writer::new(Arc::clone(&shared), Arc::clone(&log), files, &replayed);
        let (events, event_queue) = sync_channel(EVENTS);
        let thread = std::thread::Builder::new()
            .name("jsonl-writer".to_owned())
            .spawn(move || writer.run(&event_queue))
            .map_err(|e| JsonlError::io("start", "jsonl-writer", e))?;
        let inner =
            JsonlInner { shared, log, events, thread: Mutex::new(Some(thread)), lock: Mutex::new(None) };
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
        self.0.log.check_with(Box::new(move |checked| drop(answer.send(checked))));
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

impl JsonlInner {
    /// Ends the thread and releases the directory; rows that are not in files stay in the log.
    fn end(&self) {
        self.shared.room.close();
        // A thread that has ended already needs no word.
        let _told = self.events.send(Event::Close);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that writes JSON lines ended with a panic");
        }
        if let Err(error) = self.log.close() {
            tracing::warn!(error = causes(&error), "closing the log of the JSON lines");
        }
        if let Some(lock) = self.lock.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // The disks hold it too.
            lock.release();
        }
    }
}

impl Drop for JsonlInner {
    fn drop(&mut self) {
        self.end();
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
