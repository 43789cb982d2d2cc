//! The handle that callers hold.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use gpuvitals_core::batch::is_unknown;
use gpuvitals_core::{Batch, Health, Table, causes, wire};
use gpuvitals_log::{Appended, Disk, Durability, FsDisk, Log, LogConfig, LogError};
use tokio::sync::{broadcast, oneshot};

use crate::ask::{BucketQuery, Buckets, EndRows, QueryError, RangeQuery, Rows};
use crate::board::{Part, first_and_more};
use crate::config::StoreConfig;
use crate::directory::Directory;
use crate::error::{AppendError, StoreError};
use crate::fleet::Fleet;
use crate::frames;
use crate::keeper::{JOBS, Job, Keeper};
use crate::manifest::FileEntry;
use crate::query;
use crate::recent::Held;
use crate::recover::{self, KIND_GPU_EVENTS, Recovered};
use crate::shared::{Shared, count};
use crate::snapshot::Snapshot;
use crate::stats::StoreStats;
use crate::step::FileSteps;
use crate::tail::weight;
use crate::writer::{Arrival, EVENTS, Event, Writer};

/// An open store. Clones are handles of the same one; when the last is dropped without [`Store::close`], rows that are
/// not in files stay in the log.
#[derive(Debug, Clone)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    log: Arc<Log>,
    events: SyncSender<Event>,
    jobs: SyncSender<Job>,
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
        let wal = config.dir.join("wal");
        let disk = FsDisk::open(&wal).map_err(|e| StoreError::io("opening", &wal, e))?;
        Self::open_on(config, disk, FileSteps::default())
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
        let directory = Arc::new(Directory::open(&config.dir)?);
        let mut found = Recovered::default();
        let (mut manifest, is_whole) = recover::files(&directory, &steps, &mut found)?;
        let mut fleet = recover::fleet(&directory, &manifest, &mut found);
        let log_config = LogConfig { segment_len: config.segment_bytes, spares: 0, ..LogConfig::default() };
        let (log, recovery) = Log::open(disk, log_config)?;
        recover::align(&recovery, &directory, &steps, &mut manifest, is_whole, &mut found)?;
        let mut tail = recover::log(recovery, &directory, &manifest, &mut fleet, &mut found)?;
        found.gpus = fleet.len();
        let shared = Arc::new(Shared::new(config, fleet));
        for chunk in tail.chunks() {
            for field in chunk
                .records
                .schema_ref()
                .fields()
                .iter()
                .filter(|field| is_unknown(Table::GpuEvents, field.name()))
            {
                // It was taken once.
                let _known = shared.takes_column(field.name());
            }
        }
        // Takes as many permits as there are; no more than that is given back.
        tail.permits = shared.room.forget_permits(tail.permits);
        count(&shared.counters.quarantined, found.unlisted.len() as u64);
        shared.board.set(Part::Damage, first_and_more(&found.damage));

        let (events, event_queue) = sync_channel(EVENTS);
        let (jobs, job_queue) = sync_channel(JOBS);
        let log = Arc::new(log);
        let files: Arc<[Arc<FileEntry>]> = Arc::from(manifest.files.as_slice());
        let writer = Writer::new(Arc::clone(&shared), jobs.clone(), files, tail);
        let keeper = Keeper::new(
            Arc::clone(&shared),
            Arc::clone(&directory),
            steps,
            manifest,
            Arc::clone(&log),
            events.clone(),
            jobs.clone(),
        );
        let threads = vec![
            spawn("store-writer", move || writer.run(&event_queue))?,
            spawn("store-keeper", move || keeper.run(&job_queue))?,
        ];
        let threads = Mutex::new(threads);
        let inner = Inner { shared, log, events, jobs, threads, directory };
        Ok((Self(Arc::new(inner)), found))
    }

    /// Takes rows; returns when they are synced in the log and visible, with the version that shows them. Appends that
    /// come at the same time share a sync. Waits while memory is full of rows that are not in files yet; is refused while
    /// files cannot be written and memory is full. Rows that were appended before change nothing.
    ///
    /// # Errors
    /// When the rows are not durable. After [`AppendError::Failed`] nothing is taken until the store is opened anew, best
    /// by another process.
    pub async fn append(&self, batches: Vec<Batch>) -> Result<u64, AppendError> {
        let shared = &self.0.shared;
        let (mut payload, mut arrivals, mut bytes) = (Vec::new(), Vec::with_capacity(batches.len()), 0);
        for mut batch in batches {
            shared.check(&batch)?;
            bytes += weight(batch.records());
            frames::push(&mut payload, &wire::encode(&batch)?);
            batch.forget_wire();
            arrivals.push(Arrival::new(batch)?);
        }
        if arrivals.is_empty() {
            return Ok(self.version());
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
        self.0.log.append_exceeding_with(KIND_GPU_EVENTS, payload.into(), durability, Box::new(done));
        let visible = outcome.await.map_err(|_| AppendError::Closed)?.map_err(AppendError::from);
        let refused = visible.as_ref().err().map(|error| format!("rows are not taken: {}", causes(error)));
        shared.board.set(Part::Log, refused);
        visible
    }

    /// Latest state of all GPUs.
    pub fn fleet(&self) -> Arc<Fleet> {
        self.0.shared.fleet()
    }

    /// Grows with every visible change.
    pub fn version(&self) -> u64 {
        self.0.shared.version.load(Ordering::Acquire)
    }

    /// Rows of a range of time. Blocks on the disk.
    ///
    /// # Errors
    /// When the question has no answer; files that cannot be read are named in [`Rows::partial`].
    pub fn range(&self, q: &RangeQuery) -> Result<Rows, QueryError> {
        let rows = query::range(&self.0.shared.reader, &self.0.snapshot(), q)?;
        self.0.inspect(&rows.partial);
        Ok(rows)
    }

    /// Rows at one end of the history of the GPU of that key: the newest, newest first, or the oldest, oldest
    /// first. From memory if it has all of them ([`StoreConfig::recent_rows`]), otherwise blocks on the disk.
    ///
    /// # Errors
    /// As [`Store::range`].
    pub fn end_rows(&self, gpu: &Arc<str>, limit: usize, newest_first: bool) -> Result<EndRows, QueryError> {
        let (shared, snapshot) = (&self.0.shared, self.0.snapshot());
        count(&shared.counters.asked, 1);
        let query = RangeQuery::end_of(gpu, limit, newest_first);
        if let Some((held, from_memory)) = self.recent(gpu, &snapshot)? {
            let tail = held.chunk.into_iter().chain(snapshot.tail.iter().cloned()).collect();
            let memory = Snapshot { tail, ..Snapshot::default() };
            let above = RangeQuery { start_ns: Some(held.floor_ns), ..query.clone() };
            let rows = query::range(&shared.reader, &memory, &above)?;
            if held.floor_ns == i64::MIN || newest_first && rows.total >= limit {
                count(&shared.counters.from_memory, u64::from(from_memory));
                return Ok(EndRows { batch: rows.batch, partial: rows.partial, from_memory });
            }
        }
        let Rows { batch, partial, .. } = self.range(&query)?;
        Ok(EndRows { batch, partial, from_memory: false })
    }

    /// The newest rows in files of a GPU, and whether memory had them. None if memory is to have none, or a file cannot be
    /// read.
    fn recent(&self, gpu: &Arc<str>, snapshot: &Snapshot) -> Result<Option<(Held, bool)>, QueryError> {
        let Some(recent) = &self.0.shared.recent else { return Ok(None) };
        if let Some(held) = recent.held(gpu, snapshot.flushes) {
            return Ok(Some((held, true)));
        }
        let files = Snapshot { files: Arc::clone(&snapshot.files), ..Snapshot::default() };
        let query = RangeQuery::end_of(gpu, recent.rows_max, true);
        let rows = query::range(&self.0.shared.reader, &files, &query)?;
        if !rows.partial.is_empty() {
            return Ok(None);
        }
        Ok(Some((recent.keep(gpu, &rows, snapshot.flushes)?, false)))
    }

    /// Values by step of time. Blocks on the disk.
    ///
    /// # Errors
    /// When the question has no answer; files that cannot be read are named in [`Buckets::partial`].
    pub fn buckets(&self, q: &BucketQuery) -> Result<Buckets, QueryError> {
        let buckets = query::buckets(&self.0.shared.reader, &self.0.snapshot(), q)?;
        self.0.inspect(&buckets.partial);
        Ok(buckets)
    }

    /// Batches as they become visible. A receiver that falls behind by more than
    /// [`StoreConfig::subscriber_lag`] appends loses the oldest and gets their number.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<[Batch]>> {
        self.0.shared.subscribers.subscribe()
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
        .map_err(|e| StoreError::io("starting a thread for", PathBuf::from(name), e))
}

impl Inner {
    fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    /// Has condemned files set aside.
    fn inspect(&self, partial: &[String]) {
        // One at a time: the keeper's queue has room for everything else.
        if !partial.is_empty()
            && !self.shared.inspecting.swap(true, Ordering::AcqRel)
            && self.jobs.try_send(Job::Inspect).is_err()
        {
            self.shared.inspecting.store(false, Ordering::Release);
        }
    }

    /// Ends the threads; rows in memory stay in the log.
    fn end(&self) {
        self.shared.ending.store(true, Ordering::Relaxed);
        self.shared.room.close();
        if let Err(error) = self.log.close() {
            tracing::warn!(error = causes(&error), "closing the log");
        }
        // A writer that has ended already needs no word.
        let _told = self.events.send(Event::Close);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the store ended with a panic");
            }
        }
        self.directory.release();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads a count.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
