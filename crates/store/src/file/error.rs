//! A file cannot be read, or is damaged.

use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;

/// An error of a table file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// A system call failed.
    #[error("cannot {action} {path}")]
    Io {
        /// An infinitive: `open`, `sync` …
        action: &'static str,
        /// The table file, under the name that it has then.
        path: PathBuf,
        /// What the system or Parquet says.
        #[source]
        source: std::io::Error,
    },
    /// Its bytes have changed since it was written.
    #[error("{path} is damaged: {what}")]
    Damaged {
        /// The table file, under the name that it has then.
        path: PathBuf,
        /// What is wrong, as a sentence about the file.
        what: &'static str,
    },
    /// Parquet does not parse or does not encode.
    #[error("cannot {action} {path}")]
    Parquet {
        /// An infinitive: `open`, `sync` …
        action: &'static str,
        /// The table file, under the name that it has then.
        path: PathBuf,
        /// What the system or Parquet says.
        #[source]
        source: ParquetError,
    },
}

impl FileError {
    /// What Parquet says. A failed system call (a full disk, no file handles) comes out of it wrapped.
    pub(crate) fn parquet(action: &'static str, path: &Path, error: ParquetError) -> Self {
        let path = path.to_owned();
        match error {
            ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
                Ok(source) => Self::Io { action, path, source: *source },
                Err(inner) => Self::Parquet { action, path, source: ParquetError::External(inner) },
            },
            source => Self::Parquet { action, path, source },
        }
    }

    /// Whether the file itself is at fault, and not a temporary condition (no memory, no file handles, an
    /// unplugged disk). Parquet reads only bytes that a checksum has verified: an error there is temporary,
    /// described in its own words, or a bug of this program; the rows are intact and the file stays.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Parquet { .. } => false,
            Self::Io { source, .. } => {
                use std::io::ErrorKind;
                matches!(
                    source.kind(),
                    ErrorKind::NotFound | ErrorKind::UnexpectedEof | ErrorKind::InvalidData
                )
            }
        }
    }
}
