//! The log's errors.

use std::io;
use std::sync::Arc;

/// A failed operation of the log. Cheap to clone: one failed sync completes many waiters.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LogError {
    /// A file or the directory could not be read while opening or replaying.
    #[error("{action} {file}")]
    Read {
        /// The operation that failed.
        action: &'static str,
        /// The file's name, or `.` for the directory.
        file: String,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// A group could not be written, or a segment could not be created, renamed or removed. Nothing of it
    /// remains, the log continues, and a later call may succeed (a full disk is the usual cause).
    #[error("{action} {file} (rolled back)")]
    Write {
        /// The operation that failed.
        action: &'static str,
        /// Name of the file in the log's directory.
        file: String,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// A sync or a rollback failed: the contents of the disk are unknown. Nothing is accepted until the log
    /// is reopened.
    #[error("log is poisoned until reopened: {action} {file}")]
    Poisoned {
        /// The operation that failed.
        action: &'static str,
        /// The file's name, or `.` for the directory.
        file: String,
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
    /// The record was in a segment that has been truncated away.
    #[error("read from log: {file} was removed by a truncation")]
    Gone {
        /// Name of the segment's file.
        file: String,
    },
    /// The record's bytes on the disk have changed since it was written.
    #[error("read from log: the record at byte {offset} of {file} is damaged")]
    Damaged {
        /// Name of the segment's file.
        file: String,
        /// Where the record begins, in bytes; 0 if the segment's header is damaged.
        offset: u64,
    },
    /// The submission queue is at its bound, and the caller did not want to wait.
    #[error("log is busy: {records} records of {bytes} bytes already wait")]
    Full {
        /// Records that wait for the writer.
        records: usize,
        /// Bytes that they will take in segments.
        bytes: usize,
    },
    /// The payload is longer than a record may be.
    #[error("append to log: payload of {len} bytes, at most {max} allowed")]
    TooLarge {
        /// Bytes of payload.
        len: usize,
        /// Most bytes of payload, by the settings of this log.
        max: usize,
    },
    /// The log was closed.
    #[error("log is closed")]
    Closed,
    /// A setting is out of its range.
    #[error("configure log: {field} is {value}, must be {least} to {most}")]
    Config {
        /// Name of the field of [`LogConfig`](crate::LogConfig).
        field: &'static str,
        /// The value that was given.
        value: u32,
        /// Least value that is allowed.
        least: u32,
        /// Most that is allowed.
        most: u32,
    },
    /// A segment was written by a later version of this program.
    #[error("open {file}: format version {version} is not known here")]
    UnknownVersion {
        /// Name of the file in the log's directory.
        file: String,
        /// The version in its header.
        version: u32,
    },
    /// A file with a segment's name is longer than any segment.
    #[error("open {file}: {len} bytes is longer than any segment")]
    SegmentTooLong {
        /// Name of the file in the log's directory.
        file: String,
        /// Its length in bytes.
        len: u64,
    },
    /// A segment read differently during replay than when the log was opened.
    #[error("replay {file}: {found} records, {expected} when it was opened")]
    Changed {
        /// Name of the file in the log's directory.
        file: String,
        /// Records found now.
        found: u64,
        /// Records found when the log was opened.
        expected: u64,
    },
    /// The writer thread could not be started.
    #[error("start the log's writer thread")]
    Thread {
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
}

impl LogError {
    pub(crate) fn read(action: &'static str, file: &str, source: io::Error) -> Self {
        Self::Read { action, file: file.to_owned(), source: Arc::new(source) }
    }

    pub(crate) fn write(action: &'static str, file: &str, source: io::Error) -> Self {
        Self::Write { action, file: file.to_owned(), source: Arc::new(source) }
    }

    pub(crate) fn poisoned(action: &'static str, file: &str, source: io::Error) -> Self {
        Self::Poisoned { action, file: file.to_owned(), source: Arc::new(source) }
    }
}
