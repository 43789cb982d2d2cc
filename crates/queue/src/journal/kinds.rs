//! A record is of a kind, and opening a journal tells what was found or why it failed.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use gpuvitals_log::LogError;

/// A record that is a frame.
pub(crate) const FRAME: u8 = 1;
/// A record that is a frame again.
pub(super) const MOVED: u8 = 2;
/// A record of facts.
pub(super) const FACTS: u8 = 3;
/// A part of a checkpoint.
pub(super) const CHECKPOINT: u8 = 4;

/// What was found when a queue was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Frames that wait to be settled, without dead letters.
    pub frames: u64,
    /// Messages in them.
    pub messages: u64,
    /// Dead letters that are held.
    pub dead_letters: u64,
    /// Records of the log that were read.
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
        /// Directory of the queue's log.
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
        /// Version that the record says it has.
        version: u8,
    },
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
