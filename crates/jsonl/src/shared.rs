//! The handles and the thread share a room and their counts.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gpuvitals_core::{Batch, Health, Status, Table, causes, clock};
use gpuvitals_log::LogError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::error::JsonlError;
use crate::files::FileCounts;

/// Bytes of one permit of [`Shared::room`].
pub(crate) const PERMIT_BYTES: usize = 1024;
/// While the file of one GPU cannot be written, the log keeps the rows of all: at most so many times the room, since opening
/// anew has them in memory.
const BACKLOG_ROOMS: usize = 8;

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
    pub(crate) condition: Mutex<Condition>,
    pub(crate) counts: Arc<FileCounts>,
    /// Rows of other tables, by the table's place.
    pub(crate) left_out: [AtomicU64; Table::ALL.len()],
}

/// The health, and its reasons; each has its own end.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) health: Health,
    /// Why the log takes no rows; empty if it does.
    pub(crate) log: String,
    /// Why files cannot be written; empty if they can.
    files: String,
    /// What was stored and is gone; empty if nothing is.
    pub(crate) lost: String,
}

impl Shared {
    pub(crate) fn new(pending_bytes: usize) -> Self {
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
    pub(crate) async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, JsonlError> {
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

    pub(crate) fn leave_out(&self, batch: &Batch) {
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
    pub(crate) fn note_log(&self, error: LogError) -> JsonlError {
        let error = JsonlError::Log(error);
        let words = format!("rows are not taken: {}", causes(&error));
        self.observe(|condition| condition.log = words);
        error
    }

    pub(crate) fn observe(&self, change: impl FnOnce(&mut Condition)) {
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
