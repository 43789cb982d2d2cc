//! Errors of this sink.

use std::path::PathBuf;
use std::sync::Arc;

use gpuvitals_core::wire;
use gpuvitals_log::LogError;

/// Why lines cannot be written, or their directory not be opened.
#[derive(Debug, thiserror::Error)]
pub enum JsonlError {
    /// A system call on a file or the directory failed.
    #[error("cannot {action} {file}")]
    Io {
        /// An infinitive: `write`, `sync` …
        action: &'static str,
        /// The file's name, or the directory.
        file: String,
        /// What the system or the wire format says.
        #[source]
        source: std::io::Error,
    },
    /// Another process writes JSON lines in this directory.
    #[error("{0} is in use by another process")]
    Locked(PathBuf),
    /// The log cannot be opened, read or written.
    #[error("cannot use the log of the JSON lines")]
    Log(#[from] LogError),
    /// A record of the log that no version up to this one writes.
    #[error(
        "record {sequence} in the log of the JSON lines is of kind {kind}, which this version does not know; \
         it is not opened, so that nothing is lost"
    )]
    UnknownRecord {
        /// Number of the record in the log.
        sequence: u64,
        /// Kind that the record says it has.
        kind: u8,
    },
    /// A record of the log whose rows this version cannot read.
    #[error(
        "record {sequence} in the log of the JSON lines holds no rows that this version reads; it is not opened, \
         so that nothing is lost"
    )]
    Undecodable {
        /// Number of the record in the log.
        sequence: u64,
        /// What the system or the wire format says.
        #[source]
        source: wire::FramesError,
    },
    /// Rows that have no wire form, which is what the log keeps.
    #[error("cannot encode the rows")]
    Encode(#[from] wire::WireError),
    /// The name of a GPU makes no file name.
    #[error("the file name of GPU {gpu} would have {len} bytes, more than {max}")]
    NameTooLong {
        /// Key of the GPU, as it came.
        gpu: String,
        /// Bytes it would have.
        len: usize,
        /// Most it can have.
        max: usize,
    },
    /// A row without a GPU.
    #[error("row {0} names no GPU")]
    Nobody(usize),
    /// The lines of a batch would take far more than the batch.
    #[error("the rows of a batch would have {len} bytes of text, more than {max}")]
    TooMuchText {
        /// Bytes of text that all rows have together.
        len: usize,
        /// Most that they can have.
        max: usize,
    },
    /// Rows that wait for their files take all the memory they may, and the files cannot be written.
    #[error("memory is full and JSON lines cannot be written")]
    Full(#[source] Arc<JsonlError>),
    /// Rows could not be written to their files. They are safe in the log, and it is tried again.
    #[error("rows stay in the log")]
    Unwritten(#[source] Arc<JsonlError>),
    /// A file could not be synced: its contents on the disk are unknown until it is opened anew.
    #[error("JSON lines take no rows until they are reopened")]
    Failed(#[source] Arc<JsonlError>),
    /// The sink has been closed, or its thread ended.
    #[error("the sink of JSON lines is closed")]
    Closed,
}

impl JsonlError {
    pub(crate) fn io(action: &'static str, file: &str, source: std::io::Error) -> Self {
        Self::Io { action, file: file.to_owned(), source }
    }
}
