//! The queue's log: what of a queue stands in it, how it is read back, and when it may lose its beginning.
//!
//! | kind | record |
//! |---|---|
//! | 1 | a frame, as it was published |
//! | 2 | a frame again, moved here so that its old segment could go |
//! | 3 | facts: what was settled, dropped, made, ended |
//! | 4 | a part of a checkpoint: the state but for the frames |
//!
//! A frame is answered and seen when its record is as durable as its topic promises. Facts are written behind it and
//! synced with the next group, or by a timer: what a crash takes of them is delivered again. A checkpoint stands in
//! every segment, so that the segments before it can go once nothing that is held lies there.
//!
//! Records are handed to the log under the broker's lock, so that they stand in it in the order in which they happened.

mod answers;
mod bytes;
mod checkpoint;
mod checkpoints;
mod definers;
mod fact_record;
mod frame_record;
mod keeper;
mod kinds;
mod reclaim;
mod recover;
#[cfg(test)]
mod tests;
mod waiters;

use std::path::Path;
use std::sync::Arc;

use gpuvitals_log::{DirectoryLock, FsDisk, LockError};

pub use kinds::{OpenError, Opened};

pub(crate) use self::answers::{Answer, Journal, JournalReply, LogAnswer, Unreadable};
pub(crate) use self::definers::Handed;
pub(crate) use self::frame_record::encode_head;
pub(crate) use self::keeper::Keeper;
pub(crate) use self::recover::{Recovered, recover};
pub(crate) use kinds::{FRAME, in_words};

/// Takes a directory: only one process has it at a time.
///
/// # Errors
///
/// If it cannot be made, or another process has it.
pub(crate) fn take_directory(path: &Path) -> Result<(FsDisk, Arc<DirectoryLock>), OpenError> {
    let lock = DirectoryLock::take(path).map_err(|error| match error {
        LockError::InUse(path) => OpenError::Locked { path },
        LockError::Io { path, source } => OpenError::Directory { path, source },
    })?;
    let lock = Arc::new(lock);
    let disk = FsDisk::under(&lock, path);
    let disk = disk.map_err(|source| OpenError::Directory { path: path.to_owned(), source })?;
    Ok((disk, lock))
}
