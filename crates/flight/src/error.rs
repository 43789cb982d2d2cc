//! What can go wrong with a ring and its incidents.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use gpuvitals_core::wire::WireError;
use gpuvitals_log::{LockError, LogError};

/// Why a ring or an incident cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FlightError {
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// An infinitive: `create`, `read` …
        action: &'static str,
        /// The file or directory of the operation.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The directory belongs to another agent, or cannot be made.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The ring cannot be opened, written or read.
    #[error("cannot use the ring")]
    Ring(#[from] LogError),
    /// A batch cannot be written, or a record of the ring holds none.
    #[error("a record of the ring is no batch")]
    Batch(#[from] WireError),
    /// A file with rows of an incident cannot be written or read.
    #[error(transparent)]
    File(Box<dyn Error + Send + Sync>),
    /// A text as JSON.
    #[error("{} is not what this version writes", path.display())]
    Json {
        /// The file that cannot be taken.
        path: PathBuf,
        /// Why it cannot be read.
        #[source]
        source: serde_json::Error,
    },
    /// A later version wrote the incident.
    #[error("{}: schema {schema} is of a later version, which alone reads it", path.display())]
    Later {
        /// The file `incident.json`.
        path: PathBuf,
        /// The schema that it names.
        schema: u64,
    },
    /// There is no incident of that name.
    #[error("{id:?} names no incident; `gpuvitals flight list` shows those that are there")]
    Unknown {
        /// The name that was given.
        id: String,
    },
    /// The incident is not whole.
    #[error("{id} is torn: it is being written, or its writer was killed; look again when its time is over")]
    Torn {
        /// The name that was given.
        id: String,
    },
    /// The incident has begun, and no file is there yet.
    #[error(
        "{id} is not written yet: look again when its time is over; if its agent has ended, the next one writes it, and \
         `gpuvitals flight dump` what the ring has"
    )]
    Begun {
        /// The name that was given.
        id: String,
    },
    /// The directory holds no ring.
    #[error("{}: no agent has a ring there; name the directory of its flight.dir", path.display())]
    NoRing {
        /// The directory that was named.
        path: PathBuf,
    },
    /// Rows came meanwhile that have other columns than those before.
    #[error("the rows of the ring have other columns than those before, again and again")]
    NewColumns,
    /// The agent ended before the time of the incident was over.
    #[error("the incident is given up until the next start, as its agent ends")]
    GivenUp,
    /// A file cannot have that name in an archive.
    #[error(
        "{name:?} is no name for a file of the archive: it takes printable ASCII without blanks, 100 bytes at most, each once"
    )]
    BundleName {
        /// The name that was given.
        name: String,
    },
    /// A file is too long for an archive.
    #[error("{}: it is too long for the archive, which takes less than 8 GiB of a file; send it by itself", path.display())]
    BundleLength {
        /// The file that cannot be taken.
        path: PathBuf,
    },
    /// The system gives no thread.
    #[error("cannot start the thread of the flight recorder")]
    Thread(#[source] io::Error),
}

impl FlightError {
    /// A failed file operation, for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }

    /// Whether the ring moved on while it was read: another try reads what is there now.
    pub(crate) fn is_moved_on(&self) -> bool {
        match self {
            Self::NewColumns | Self::Ring(LogError::Changed { .. } | LogError::Gone { .. }) => true,
            Self::Ring(LogError::Read { source, .. }) => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }
}

/// Why a part of an incident of a job is not taken or given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// There is no incident of that name, or its node is not asked for that.
    #[error("{id:?} is no incident of a job that {what}; GET /api/v1/flight/incidents lists them")]
    Unknown {
        /// The id that was given.
        id: String,
        /// What it would have: `is kept here` …
        what: &'static str,
    },
    /// What a node told of, or has sent, is not as it must be.
    #[error("{0}")]
    Unfit(String),
    /// A node has sent too much.
    #[error("{what} is more than {max} bytes")]
    TooLong {
        /// What was too long, as the subject of a sentence.
        what: &'static str,
        /// The most bytes that it may have.
        max: u64,
    },
    /// The disk cannot be used.
    #[error("incidents of jobs cannot be kept or read now: their disk fails; the log says more")]
    Disk(#[from] FlightError),
}
