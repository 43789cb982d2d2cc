//! State shared by the store's threads and handles.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use gpuvitals_core::history::{ChangeFeed, Fleet, LiveFleet, Part};
use gpuvitals_core::merge::Overwritten;
use gpuvitals_core::{Batch, clock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::board::{self, Board};
use crate::config::StoreConfig;
use crate::error::AppendError;
use crate::foreign::{ForeignColumns, ForeignTypes};
use crate::reader::Reader;
use crate::recent::Recent;
use crate::snapshot::Snapshot;
use crate::step::FileSteps;

/// Bytes of one permit of [`Shared::room`].
pub(crate) const PERMIT_BYTES: usize = 1024;

/// Queries that are worked on at a time, each on a thread and its wide steps on several; more wait.
pub(crate) const READERS_MAX: usize = 8;

/// How often, how much; all since the store was opened, but for the GPUs.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) gpus: AtomicU64,
    pub(crate) gpus_forgotten: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) merges: AtomicU64,
    pub(crate) quarantined: AtomicU64,
    pub(crate) rows_too_old: AtomicU64,
    pub(crate) rows_too_many: AtomicU64,
    pub(crate) tail_rows: AtomicU64,
    pub(crate) tail_bytes: AtomicU64,
    pub(crate) left_out: AtomicU64,
    pub(crate) rows_overwritten: AtomicU64,
    pub(crate) asked: AtomicU64,
    pub(crate) from_memory: AtomicU64,
}

/// The count as of now; its writers order nothing by it.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Adds to a count.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// The published state and the counts. Locks in here are held for memory work only.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: StoreConfig,
    pub(crate) snapshot: ArcSwap<Snapshot>,
    pub(crate) version: AtomicU64,
    pub(crate) fleet: Mutex<LiveFleet>,
    shown: ArcSwap<Fleet>,
    /// What the fleet lacks, from one opening to the next.
    pub(crate) fleet_missing: Vec<String>,
    pub(crate) subscribers: ChangeFeed,
    /// Room in memory for rows that are not in files.
    pub(crate) room: Arc<Semaphore>,
    pub(crate) room_permits: usize,
    /// Why files cannot be written now, if so.
    pub(crate) stuck: watch::Sender<Option<Arc<str>>>,
    pub(crate) board: Board,
    pub(crate) counters: Counters,
    /// Rows in files that are in memory as well, if any are to be.
    pub(crate) recent: Option<Recent>,
    /// Reads files for queries.
    pub(crate) reader: Reader,
    /// One permit for each query that is worked on.
    pub(crate) readers: Arc<Semaphore>,
    /// Names of columns that the catalogue does not know.
    pub(crate) foreign: Mutex<ForeignColumns>,
    /// An inspection waits in the keeper's queue.
    pub(crate) inspecting: AtomicBool,
    /// The store is closing: merging stops immediately.
    pub(crate) ending: AtomicBool,
}

impl Shared {
    pub(crate) fn new(config: StoreConfig, fleet: Part<LiveFleet>, steps: FileSteps) -> Self {
        let room_permits =
            (config.flush_bytes.saturating_mul(3) / PERMIT_BYTES).clamp(3, Semaphore::MAX_PERMITS);
        Self {
            snapshot: ArcSwap::default(),
            version: AtomicU64::new(0),
            fleet: Mutex::new(fleet.answer),
            shown: ArcSwap::default(),
            fleet_missing: fleet.missing,
            subscribers: ChangeFeed::new(config.subscriber_lag),
            room: Arc::new(Semaphore::new(room_permits)),
            room_permits,
            stuck: watch::Sender::new(None),
            board: Board::new(),
            counters: Counters::default(),
            recent: (config.recent_rows > 0).then(|| Recent::new(config.recent_rows, config.recent_bytes)),
            reader: Reader::of_store(steps),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            foreign: Mutex::default(),
            inspecting: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            config,
        }
    }

    /// The batch without foreign columns for which there is no room. The values are counted, and the health says whose
    /// they were.
    pub(crate) fn admit(&self, batch: Batch) -> Batch {
        let now_ns = clock::now_ns();
        let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        let (batch, left_out) = foreign.admit(batch, now_ns);
        count(&self.counters.left_out, left_out);
        self.board.set(board::Part::Columns, foreign.words(now_ns));
        batch
    }

    /// Types of the columns that the catalogue does not know.
    pub(crate) fn foreign_types(&self) -> ForeignTypes {
        self.foreign.lock().unwrap_or_else(PoisonError::into_inner).types().clone()
    }

    /// Counts rows that were put together although they differ. The log has the first.
    pub(crate) fn overwritten(&self, Overwritten { rows, first }: Overwritten) {
        if rows > 0 && self.counters.rows_overwritten.fetch_add(rows, Ordering::Relaxed) == 0 {
            let first = first.as_deref().unwrap_or_default();
            tracing::warn!(first, "{}", Overwritten::SENTENCE);
        }
    }

    /// The health says no more whose columns were left out when none has been for a while.
    pub(crate) fn tell_foreign(&self) {
        let words = self.foreign.lock().unwrap_or_else(PoisonError::into_inner).words(clock::now_ns());
        self.board.set(board::Part::Columns, words);
    }

    /// Room in memory for `bytes` of columns: waits for it, unless files cannot be written, because then it may never come.
    pub(crate) async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, AppendError> {
        let wanted = (bytes / PERMIT_BYTES + 1).min(self.room_permits / 3);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let room = &self.room;
        if let Ok(permit) = Arc::clone(room).try_acquire_many_owned(wanted) {
            return Ok(permit);
        }
        let mut stuck = self.stuck.subscribe();
        let reason = tokio::select! {
            biased;
            stuck = stuck.wait_for(Option::is_some) => stuck.map_or(None, |reason| reason.clone()),
            permit = Arc::clone(room).acquire_many_owned(wanted) => return permit.map_err(|_| AppendError::Closed),
        };
        Err(reason.map_or(AppendError::Closed, AppendError::MemoryFull))
    }

    /// The fleet as it was last shown, if it has not changed since. Waits for nobody.
    pub(crate) fn shown(&self) -> Option<Arc<Fleet>> {
        let version = self.version.load(Ordering::Acquire);
        let shown = self.shown.load();
        (shown.version == version).then(|| Arc::clone(&shown))
    }

    /// The present fleet; rebuilt only if it changed since the last call. Waits for the writer.
    pub(crate) fn fleet(&self) -> Arc<Fleet> {
        if let Some(shown) = self.shown() {
            return shown;
        }
        let mut live = self.fleet.lock().unwrap_or_else(PoisonError::into_inner);
        // Another who waited may have rebuilt it.
        if let Some(shown) = self.shown() {
            return shown;
        }
        let fresh = Arc::new(live.snapshot());
        self.shown.store(Arc::clone(&fresh));
        fresh
    }
}
