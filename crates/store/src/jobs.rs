//! The writer and the keeper send each other events and jobs.

use std::sync::Arc;

use gpuvitals_core::Batch;
use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::merge::{MergeError, Overwritten};
use gpuvitals_log::LogError;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::compact::Merged;
use crate::error::StoreError;
use crate::manifest::{FileEntry, LostFile};
use crate::tail::{Chunk, Tail};

/// Events that wait for the writer at most; then the log's thread waits.
pub(crate) const EVENTS: usize = 1024;
/// Waiting jobs: one flush, one finished merge, one inspection, one compaction, one close. So sending a job never waits: the
/// keeper itself waits for the writer, and at the end for a merge.
pub(crate) const JOBS: usize = 8;

/// Rows on their way in.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) batch: Batch,
    pub(crate) keys: RowKeys,
    pub(crate) chunk: Chunk,
    /// What was overwritten within the batch.
    pub(crate) overwritten: Overwritten,
}

impl Arrival {
    /// Looks up the GPUs of the rows, and merges the rows.
    ///
    /// # Errors
    /// When a row names no GPU.
    pub(crate) fn new(batch: Batch) -> Result<Self, MergeError> {
        let keys = RowKeys::of(batch.records(), batch.table())
            .map_err(|row| MergeError::Nobody { part: 0, row: row.0 })?;
        let (chunk, overwritten) =
            Chunk::merged(batch.table(), std::slice::from_ref(batch.records()), std::slice::from_ref(&keys))?;
        Ok(Self { batch, keys, chunk, overwritten })
    }
}

/// Where the outcome of a flush goes.
pub(crate) type FlushReply = oneshot::Sender<Result<(), StoreError>>;
/// Where the outcome of an append goes: the version that shows its rows, or why they are not in the log.
pub(crate) type AppendAnswer = oneshot::Sender<Result<u64, LogError>>;

/// What the thread that keeps the visible state is told.
#[derive(Debug)]
pub(crate) enum Event {
    /// The log has made these durable.
    Durable {
        sequence: u64,
        arrivals: Vec<Arrival>,
        room: OwnedSemaphorePermit,
        answer: AppendAnswer,
    },
    /// The lists of files are now these; the frozen tail is in one if it was flushed.
    Files {
        files: Arc<[Arc<FileEntry>]>,
        rollups: Arc<[Arc<FileEntry>]>,
        lost: Arc<[LostFile]>,
        flushed: bool,
    },
    /// The frozen tail could not be written; the keeper tries again.
    Stuck(Arc<StoreError>),
    /// All that could be merged has been, and is in the lists before this; or why not.
    Compacted {
        answer: Compacted,
        outcome: Result<(), StoreError>,
    },
    /// Write everything to files.
    Flush(FlushReply),
    Close,
}

/// What the thread that keeps the files is told.
#[derive(Debug)]
pub(crate) enum Job {
    /// Write these rows to files.
    Flush(Arc<Tail>),
    /// A merge ended; the inputs and the outcome.
    Merged {
        inputs: Vec<Arc<FileEntry>>,
        outcome: Merged,
    },
    /// Some query has condemned a file.
    Inspect,
    /// Merge all that can be merged, then answer.
    Compact(Compacted),
    Close,
}

/// Who waits until all is merged.
pub(crate) type Compacted = oneshot::Sender<Result<(), StoreError>>;
