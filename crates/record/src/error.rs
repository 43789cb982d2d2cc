//! Errors of making and reading recordings.

use std::io;
use std::path::{Path, PathBuf};

use gpuvitals_core::batch::BatchError;
use gpuvitals_core::wire::WireError;
use gpuvitals_sources::registry::Finding;
use gpuvitals_sources::sampler::{SamplerError, TargetState};
use parquet::errors::ParquetError;

/// A recording that cannot begin, continue, end or be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// No device was found; the findings say why.
    #[error("there is nothing to record on this machine: no GPU was found, and no host")]
    Nothing(Vec<Finding>),
    /// Every device failed before its first row; their states say why. Nothing of the recording is left.
    #[error("nothing was recorded")]
    Empty(Vec<TargetState>),
    /// The directory holds a recording already.
    #[error(
        "{} holds {} recording already",
        path.display(),
        if *unfinished { "an unfinished" } else { "a" }
    )]
    Exists {
        /// Directory of the recording.
        path: PathBuf,
        /// Whether that one was killed (or still runs).
        unfinished: bool,
    },
    /// Another process records there, or repairs.
    #[error("{} belongs to a recording that is still running", path.display())]
    Busy {
        /// Directory of the recording.
        path: PathBuf,
    },
    /// The directory is none that a recording can be in.
    #[error("{} {what}", path.display())]
    Directory {
        /// Directory or file.
        path: PathBuf,
        /// What is wrong, as the rest of a sentence about it.
        what: &'static str,
    },
    /// A recording is given twice, perhaps as a copy.
    #[error("{} and {} are one recording, which would count twice: name it once", earlier.display(), path.display())]
    Twice {
        /// Directory of the recording.
        path: PathBuf,
        /// The directory that was named before it.
        earlier: PathBuf,
    },
    /// The sampler does not start.
    #[error(transparent)]
    Sampler(SamplerError),
    /// The thread could not be started.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// The writing thread panicked: a bug.
    #[error("a bug: the writing thread panicked")]
    Writer,
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// An infinitive: `create`, `sync` …
        action: &'static str,
        /// The file or directory of the operation.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A batch cannot be written.
    #[error("a batch has no binary form")]
    Batch(#[source] WireError),
    /// A record of a journal is whole but holds no batch.
    #[error("{} holds a record that is no batch", path.display())]
    Journal {
        /// The journal of a recording that was not ended.
        path: PathBuf,
        /// Why the record is no batch.
        #[source]
        source: WireError,
    },
    /// A file is not Parquet, or cannot become it.
    #[error("cannot read or write {} as Parquet", path.display())]
    Parquet {
        /// The file of the recording.
        path: PathBuf,
        /// What Parquet says.
        #[source]
        source: ParquetError,
    },
    /// A file is not as it was written.
    #[error(
        "{}, {}: its bytes have changed since it was written; restore the file from a copy",
        path.display(),
        changed(*row_group)
    )]
    Damaged {
        /// The file of the recording.
        path: PathBuf,
        /// The row group that has changed, counted from 0; none: it is the footer.
        row_group: Option<usize>,
    },
    /// A Parquet file has other columns than a recording.
    #[error("{} is no recording", path.display())]
    Columns {
        /// The file of the recording.
        path: PathBuf,
        /// Which column is another, and how.
        #[source]
        source: BatchError,
    },
}

/// What of a file has changed.
fn changed(row_group: Option<usize>) -> String {
    row_group.map_or_else(|| "footer".to_owned(), |number| format!("row group {number}"))
}

impl RecordError {
    /// A directory without a recording.
    pub(crate) fn no_recording(directory: &Path) -> Self {
        let what = "holds no recording; name a directory that `gpuvitals record` has written, which is telemetry without its --output";
        Self::Directory { path: directory.to_owned(), what }
    }

    /// A failed file operation, for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}
