//! The handle that callers hold.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use gpuvitals_core::history::Fleet;
use gpuvitals_core::{Batch, Health, causes, clock, wire};
use gpuvitals_log::{Appended, Disk, Durability, FsDisk, Log, LogConfig, LogError};
use tokio::sync::oneshot;

use crate::board::{Part, first_and_more};
use crate::config::StoreConfig;
use crate::directory::Directory;
use crate::error::{AppendError, StoreError};
use crate::foreign::ForeignColumns;
use crate::jobs::{Arrival, EVENTS, Event, JOBS, Job};
use crate::keeper::{Keeper, KeeperHandles};
use crate::recover::{self, KIND_ROWS, Recovered};
use crate::shared::{Shared, count};
use crate::stats::StoreStats;
use crate::step::{FileStep, FileSteps};
use crate::tail::weight;
use crate::writer::Writer;

/// An open store. Clones are handles of the same one; when the last is dropped without [`Store::close`], rows that are
/// not in files stay in the log.
#[derive(Debug, Clone)]
pub struct Store(pub(crate) Arc<StoreInner>);

#[derive(Debug)]
pub(crate) struct StoreInner {
    pub(crate) shared: Arc<Shared>,
    log: Arc<Log>,
    events: SyncSender<Event>,
    pub(crate) jobs: SyncSender<Job>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    directory: Arc<Directory>,
}

impl Store {
    /// Opens (or makes) a store, takes its lock and brings back everything that was acknowledged. Blocks.
    ///
    /// # Errors
    /// When the directory is in use, cannot be read or written, or has a format this program does not know. Damaged
    /// files and log records are no error: [`Recovered::damage`] names them.
    pub fn open(config: StoreConfig) -> Result<(Self, Recovered), StoreError> {
        let directory = Directory::open(&config.dir)?;
        let (lock, wal) = (Arc::clone(directory.lock()), directory.wal());
        let disk = FsDisk::under(&lock, &wal).map_err(|e| StoreError::io("open", &wal, e))?;
        // A file in a directory that is not in its place would not be found again, and nor would what made room for it.
        let steps =
            FileSteps::asking(move |step, _| if step == FileStep::Read { Ok(()) } else { lock.check() });
        Self::open_in(directory.with_steps(steps), config, disk)
    }

    /// [`Store::open`] with the log on a disk of the caller's choice, and a caller that is asked before each step on a
    /// file.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(
        config: StoreConfig,
        disk: impl Disk,
        steps: FileSteps,
    ) -> Result<(Self, Recovered), StoreError> {
        let directory = Directory::open(&config.dir)?;
        Self::open_in(directory.with_steps(steps), config, disk)
    }

    fn open_in(
        directory: Directory,
        config: StoreConfig,
        disk: impl Disk,
    ) -> Result<(Self, Recovered), StoreError> {
        let directory = Arc::new(directory);
        let mut found = Recovered::default();
        let mut checked = recover::files(&directory, &mut found)?;
        let log_config = LogConfig { segment_len: config.segment_bytes, spares: 0, ..LogConfig::default() };
        let (log, recovery) = Log::open(disk, log_config)?;
        recover::align(&recovery, &directory, &mut checked, &mut found)?;
        let manifest = checked.manifest;
        let mut fleet = recover::fleet(directory.root(), &manifest, config.fleet, &mut found);
        let mut tail = recover::log(recovery, &directory, &manifest, &mut fleet.answer, &mut found)?;
        found.gpus = fleet.answer.gpus();
        let shared = Arc::new(Shared::new(config, fleet, directory.steps().clone()));
        *shared.foreign.lock().unwrap_or_else(PoisonError::into_inner) =
            ForeignColumns::with_types(manifest.foreign.clone());
        for chunk in tail.chunks() {
            let mut foreign = shared.foreign.lock().unwrap_or_else(PoisonError::into_inner);
            foreign.recall(chunk.table, &chunk.records, clock::now_ns());
        }
        // Takes as many permits as there are; no more than that is given back.
        tail.permits = shared.room.forget_permits(tail.permits);
        count(&shared.counters.quarantined, found.unlisted.len() as u64);
        shared.board.set(Part::Damage, first_and_more(&found.damage));

        let (events, event_queue) = sync_channel(EVENTS);
        let (jobs, job_queue) = sync_channel(JOBS);
        let log = Arc::new(log);
        let writer = Writer::new(Arc::clone(&shared), jobs.clone(), &manifest, tail);
        let handles = KeeperHandles {
            shared: Arc::clone(&shared),
            directory: Arc::clone(&directory),
            log: Arc::clone(&log),
            events: events.clone(),
            jobs: jobs.clone(),
        };
        let keeper = Keeper::new(handles, manifest);
        let threads = vec![
            spawn("store-writer", move || writer.run(&event_queue))?,
            spawn("store-keeper", move || keeper.run(&job_queue))?,
        ];
        let threads = Mutex::new(threads);
        let inner = StoreInner { shared, log, events, jobs, threads, directory };
        Ok((Self(Arc::new(inner)), found))
    }

    /// Takes rows; returns when they are synced in the log and visible, with the version that shows them. Appends that
    /// come at the same time share a sync. Waits while memory is full of rows that are not in files yet; is refused while
    /// files cannot be written and memory is full. Rows that were appended before change nothing. Foreign columns under ever
    /// new names are left out, and the health says whose. Without rows it looks whether the directory is in its place.
    ///
    /// # Errors
    /// When the rows are not durable. After [`AppendError::Failed`] nothing is taken until the store is opened anew, best
    /// by another process.
    pub async fn append(&self, batches: Vec<Batch>) -> Result<u64, AppendError> {
        let shared = &self.0.shared;
        let (mut payload, mut arrivals, mut bytes) = (Vec::new(), Vec::with_capacity(batches.len()), 0);
        for batch in batches {
            let mut batch = shared.admit(batch);
            bytes += weight(batch.records());
            wire::push_frame(&mut payload, &wire::encode(&batch)?);
            batch.forget_wire();
            arrivals.push(Arrival::new(batch)?);
        }
        if arrivals.is_empty() {
            return self.checked().await;
        }
        let room = shared.room(bytes).await?;
        let (answer, outcome) = oneshot::channel();
        let events = self.0.events.clone();
        // Called in the order of records. A writer that has ended drops `answer`, which is then `Closed`.
        let done = move |written: Result<Appended, LogError>| match written {
            Ok(written) => {
                let sequence = written.sequence;
                drop(events.send(Event::Durable { sequence, arrivals, room, answer }));
            }
            Err(error) => drop(answer.send(Err(error))),
        };
        // The room bounds what waits for the log.
        let durability = Durability::Synced;
        self.0.log.append_exceeding_with(KIND_ROWS, payload.into(), durability, Box::new(done));
        let visible = outcome.await.map_err(|_| AppendError::Closed)?.map_err(AppendError::from);
        let refused = visible.as_ref().err().map(|error| format!("rows are not taken: {}", causes(error)));
        shared.board.set(Part::Log, refused);
        visible
    }

    /// Whether rows would be taken.
    async fn checked(&self) -> Result<u64, AppendError> {
        let (answer, outcome) = oneshot::channel();
        self.0.log.check_with(Box::new(move |checked| drop(answer.send(checked))));
        outcome.await.map_err(|_| AppendError::Closed)?.map_err(AppendError::from)?;
        Ok(self.version())
    }

    /// Latest state of all GPUs.
    pub fn fleet(&self) -> Arc<Fleet> {
        self.0.shared.fleet()
    }

    /// Grows with every visible change.
    pub fn version(&self) -> u64 {
        self.0.shared.version.load(Ordering::Acquire)
    }

    /// Counts and sizes.
    pub fn stats(&self) -> StoreStats {
        StoreStats::of(&self.0.shared, &self.0.log)
    }

    /// How it does.
    pub fn health(&self) -> Health {
        self.0.shared.board.health()
    }

    /// Writes all rows that are in memory to files.
    ///
    /// # Errors
    /// When the disk refuses; the rows are safe in the log and the store tries again.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (reply, outcome) = oneshot::channel();
        let inner = Arc::clone(&self.0);
        // The writer's queue may be full for a moment.
        let sent = tokio::task::spawn_blocking(move || inner.events.send(Event::Flush(reply))).await;
        if !matches!(sent, Ok(Ok(()))) {
            return Err(StoreError::Closed);
        }
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Merges all files that can be merged, whether they are due or not.
    ///
    /// # Errors
    /// When the disk refuses; all rows are safe.
    pub async fn compact(&self) -> Result<(), StoreError> {
        self.flush().await?;
        let (reply, outcome) = oneshot::channel();
        let inner = Arc::clone(&self.0);
        // The keeper's queue may be full for a moment.
        let sent = tokio::task::spawn_blocking(move || inner.jobs.send(Job::Compact(reply)).is_ok()).await;
        if !matches!(sent, Ok(true)) {
            return Err(StoreError::Closed);
        }
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Takes nothing more, writes everything to files, ends and releases the directory. Appends get `Closed`
    /// from then on; the visible state stays so for holders of a handle.
    ///
    /// # Errors
    /// If the last flush failed or the log is poisoned; acknowledged rows are in the log.
    pub async fn close(&self) -> Result<(), StoreError> {
        // Once while the log is open, so that it can truncate records that are in files; below once more for
        // later ones. If this one fails so does that one.
        drop(self.flush().await);
        let inner = Arc::clone(&self.0);
        let closed =
            tokio::task::spawn_blocking(move || inner.log.close()).await.map_err(|_| StoreError::Closed)?;
        let flushed = self.flush().await;
        let inner = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || inner.end()).await.map_err(|_| StoreError::Closed)?;
        flushed?;
        Ok(closed?)
    }
}

fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map_err(|e| StoreError::io("start a thread for", PathBuf::from(name), e))
}

impl StoreInner {
    /// Ends the threads; rows in memory stay in the log.
    fn end(&self) {
        self.shared.ending.store(true, Ordering::Relaxed);
        self.shared.room.close();
        if let Err(error) = self.log.close() {
            tracing::warn!(error = causes(&error), "cannot close the log");
        }
        // A writer that has ended already needs no word.
        let _told = self.events.send(Event::Close);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the store ended with a panic");
            }
        }
        self.directory.lock().release();
    }
}

impl Drop for StoreInner {
    fn drop(&mut self) {
        self.end();
    }
}
