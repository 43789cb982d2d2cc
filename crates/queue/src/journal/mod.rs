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
mod reclaim;
mod recover;
#[cfg(test)]
mod tests;
mod waiters;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_log::{DirectoryLock, FsDisk, LockError, LogError};

pub(crate) use self::answers::{Answer, Done, Journal, Reply, Unreadable};
pub(crate) use self::definers::Handed;
pub(crate) use self::frame_record::encode_head;
pub(crate) use self::keeper::Keeper;
pub(crate) use self::recover::{Recovered, recover};

/// A record that is a frame.
pub(crate) const FRAME: u8 = 1;
/// A record that is a frame again.
const MOVED: u8 = 2;
/// A record of facts.
const FACTS: u8 = 3;
/// A part of a checkpoint.
const CHECKPOINT: u8 = 4;

/// What was found when a queue was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Frames that wait to be settled, without dead letters.
    pub frames: u64,
    /// Messages in them.
    pub messages: u64,
    /// Dead letters that are held.
    pub dead_letters: u64,
    /// Records read.
    pub records: u64,
    /// Bytes of the log.
    pub bytes: u64,
    /// What stands behind the last record of the log, in words: what a crash left unfinished, or damage.
    pub torn: Option<String>,
    /// What was acknowledged and is gone, in words: a person is needed. The rest is served.
    pub damage: Vec<String>,
}

/// A queue could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The directory cannot be made or used.
    #[error("use {} for the queue", path.display())]
    Directory {
        /// The directory, or a file in it.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the directory.
    #[error("queue in {} is in use by another process", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The log cannot be opened or read.
    #[error("open the queue's log")]
    Log(#[from] LogError),
    /// A later version of this program wrote the log.
    #[error("record {sequence} of the queue's log is of version {version}, which is not known here")]
    Version {
        /// The record's number in the log.
        sequence: u64,
        /// Its version.
        version: u8,
    },
}

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

/// An error with its causes, in one line.
pub(crate) fn in_words(error: &dyn Error) -> Arc<str> {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words.into()
}
