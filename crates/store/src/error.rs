//! Errors of the store as a whole.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_core::wire;
use gpuvitals_log::LogError;

use crate::file::FileError;
use gpuvitals_core::merge::MergeError;

/// Why the store cannot be opened, flushed or closed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A system call on a file of the store failed.
    #[error("cannot {action} {path}")]
    Io {
        /// The operation: `create`, `sync` …
        action: &'static str,
        /// File or directory of the call, or that was to be written.
        path: PathBuf,
        /// What the system or the wire format says.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the store open.
    #[error("{0} is in use by another process")]
    Locked(PathBuf),
    /// The manifest is of a version that this program does not know.
    #[error(
        "{path} has format {found}; this release reads format {known} and converts no other: name a new directory, or go on with the release that wrote this one"
    )]
    Format {
        /// The newest manifest by number.
        path: PathBuf,
        /// The format that the manifest names.
        found: u32,
        /// The format of this program.
        known: u32,
    },
    /// Files without a manifest that verifies. Nothing was opened or changed; [`crate::repair`] rebuilds it.
    #[error("it holds table files ({tables}) but no manifest that verifies{}", named(.damaged))]
    NoManifest {
        /// Table files in their places.
        tables: usize,
        /// The manifests that do not verify, each with its fault. Empty: the directory has none.
        damaged: Vec<String>,
    },
    /// Nothing to repair.
    #[error("{0} holds no store")]
    NoStore(PathBuf),
    /// A table file that cannot be written, opened or read.
    #[error("cannot use a table file")]
    File(#[from] FileError),
    /// The latest values of the GPUs, which have no wire form.
    #[error("cannot spell the fleet for {path}")]
    Fleet {
        /// File or directory of the call, or that was to be written.
        path: PathBuf,
        /// What the system or the wire format says.
        #[source]
        source: wire::WireError,
    },
    /// The log of rows that are not in files yet.
    #[error("cannot use the log")]
    Log(#[from] LogError),
    /// Rows whose columns have incompatible types.
    #[error("cannot join rows")]
    Merge(#[from] MergeError),
    /// Rows could not be written to files. They are safe in the log, and the store tries again.
    #[error("rows stay in the log")]
    Unflushed(#[source] Arc<StoreError>),
    /// The store has been closed, or its thread ended.
    #[error("the store is closed")]
    Closed,
}

fn named(damaged: &[String]) -> String {
    if damaged.is_empty() { String::new() } else { format!(" ({})", damaged.join("; ")) }
}

impl StoreError {
    pub(crate) fn io(action: &'static str, path: impl AsRef<Path>, source: std::io::Error) -> Self {
        Self::Io { action, path: path.as_ref().to_owned(), source }
    }
}

/// Rows that were not taken. None of them is acknowledged. After a crash they may still appear; the same rows
/// sent again change nothing.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The log does not take them now: the disk is full.
    #[error("cannot write to the log")]
    Log(#[source] LogError),
    /// A sync of the log failed, and the contents of the disk are unknown. Nothing is taken until the store is reopened:
    /// then every acknowledged row is there.
    #[error("the log failed")]
    Failed(#[source] LogError),
    /// Memory is full of rows that cannot be written to files, for this reason.
    #[error("memory is full and files cannot be written: {0}")]
    MemoryFull(Arc<str>),
    /// The encoded rows are longer than a log record.
    #[error("rows of {len} encoded bytes are longer than a log record of {max}")]
    TooLarge {
        /// Bytes that the rows take in the log.
        len: usize,
        /// Most a record can have.
        max: usize,
    },
    /// Rows that have no wire form: more of something than the format takes.
    #[error("cannot encode the rows")]
    Encode(#[from] wire::WireError),
    /// A row that names no GPU, or columns that do not fit together.
    #[error("the rows cannot be merged")]
    Rows(#[from] MergeError),
    /// The store has been closed, or its thread ended.
    #[error("the store is closed")]
    Closed,
}

impl From<LogError> for AppendError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::TooLarge { len, max } => Self::TooLarge { len, max },
            LogError::Closed => Self::Closed,
            LogError::Poisoned { .. } => Self::Failed(error),
            error => Self::Log(error),
        }
    }
}
