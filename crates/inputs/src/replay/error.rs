//! Errors of opening and reading a replay.

use std::io;
use std::sync::Arc;

use arrow_schema::DataType;
use gpuvitals_core::batch::BatchError;
use parquet::errors::ParquetError;

use crate::csv::CsvError;

/// A replay that cannot be opened, or read on. Each message names the file.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A CSV file, or a setting.
    #[error(transparent)]
    Csv(#[from] CsvError),
    /// It cannot be opened.
    #[error("{file}: cannot be opened")]
    Open {
        /// The file, as it was named.
        file: Arc<str>,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// The directory has an unfinished recording.
    #[error("{file}: the recording has not ended; after a kill `gpuvitals repair {file}` completes it")]
    Unfinished {
        /// The directory, as it was named.
        file: Arc<str>,
    },
    /// Of several paths one is no CSV file.
    #[error("{file}: several files must be CSV; give a recording or a Parquet file alone")]
    NotCsv {
        /// The path that is none.
        file: Arc<str>,
    },
    /// The directory has no table file.
    #[error("{file}: the directory has no gpu_events.parquet, nor the file of another table")]
    NoTables {
        /// The directory, as it was named.
        file: Arc<str>,
    },
    /// It is not, or no longer, Parquet that can be read.
    #[error("{file}: cannot be read as Parquet")]
    Parquet {
        /// The file, as it was named.
        file: Arc<str>,
        /// What is wrong with it.
        #[source]
        source: ParquetError,
    },
    /// The footer names something that is no table.
    #[error("{file}: it holds {name:?}, which is no table that can be replayed")]
    Table {
        /// The file, as it was named.
        file: Arc<str>,
        /// The name in the footer.
        name: String,
    },
    /// A column without which a row means nothing.
    #[error("{file}: column {column} is missing, which every row of {table} needs")]
    Missing {
        /// The file, as it was named.
        file: Arc<str>,
        /// Table of its rows.
        table: &'static str,
        /// Name of the column.
        column: &'static str,
    },
    /// A column of a type that does not become the table's.
    #[error("{file}: column {column:?} has type {found}, which does not become {wanted}")]
    Column {
        /// The file, as it was named.
        file: Arc<str>,
        /// Name of the column.
        column: String,
        /// The type that it has in the file.
        found: DataType,
        /// The type that it needs.
        wanted: &'static str,
    },
    /// A column whose name no table can have, or of too many.
    #[error("{file}: column {column:?} is one too many, or cannot be the name of a column")]
    Unknown {
        /// The file, as it was named.
        file: Arc<str>,
        /// Name of the column.
        column: String,
    },
    /// Rows that do not form a batch.
    #[error("{file}: rows do not form a batch")]
    Batch {
        /// The file, as it was named.
        file: Arc<str>,
        /// What is wrong with it.
        #[source]
        source: BatchError,
    },
}

impl ReplayError {
    /// The failed system call, if it was one; otherwise the data is at fault.
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            Self::Open { source, .. }
            | Self::Csv(CsvError::Open { source, .. } | CsvError::Read { source, .. }) => Some(source),
            Self::Parquet { source: ParquetError::External(inner), .. } => inner.downcast_ref(),
            _ => None,
        }
    }
}
