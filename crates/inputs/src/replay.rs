//! Replay of recorded rows: CSV files ([`crate::csv`]), and table files in Parquet such as recordings and the files of a
//! store.
//!
//! The content decides which of them a file is: Parquet begins with `PAR1`, a directory holds table files under the names of
//! their tables, everything else is CSV. Both kinds have the same settings and the same counts.
//!
//! A table file has rows of one table with our columns: `timestamp_ns`, the identity, metrics by column name. The first
//! word of `gpuvitals.schema` in its footer names the table, else the name of the file does, else it is `gpu_events`. Columns
//! that neither table nor catalogue knows are kept as numbers or text; `monotonic_ns` is left out, since it means nothing
//! on another host. Numbers of any type become those of the column, integers rounded; a file
//! with a column that holds no numbers where there must be some is refused.
//!
//! Rows come out in the order of time, whatever order the file has. A first pass over the times alone divides them into
//! windows of at most [`WINDOW_ROWS`] rows; then the row groups and pages that meet a window are read, and its rows
//! sorted. So memory is one window, and a file in the order of time is read once.

mod columns;
mod error;
mod file;
mod several;
mod tables;
mod windows;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpuvitals_core::Table;
use gpuvitals_core::ports::{Poll, Source};

use crate::csv::{CsvInput, CsvSource};

pub use crate::config::ReplayConfig;
pub use crate::report::{Cause, Counts, REPORTS_MAX, Report};
pub use crate::timeline::{Replay, ReplayPace};
pub use error::ReplayError;
pub use several::{SeveralSource, clash, together};
pub use tables::TableSource;
pub use windows::WINDOW_ROWS;

/// First bytes of a Parquet file.
const MAGIC: [u8; 4] = *b"PAR1";

/// Recorded rows as a source of batches.
#[derive(Debug)]
pub enum ReplaySource {
    /// A CSV file.
    Csv(Box<CsvSource>),
    /// CSV files of one machine.
    Several(Box<SeveralSource>),
    /// Parquet files of tables, such as a recording.
    Tables(Box<TableSource>),
}

impl ReplaySource {
    /// Opens a CSV file (`-` is standard input), a table file, or a directory of table files such as a recording. `now_ns`
    /// (nanoseconds UTC since 1970) is when the replay starts.
    ///
    /// # Errors
    /// If it cannot be opened or read, its columns do not fit, it has no rows of GPUs, or a setting makes no sense.
    pub fn open(path: &Path, config: ReplayConfig, now_ns: i64) -> Result<Self, ReplayError> {
        let paths = if path.is_dir() {
            tables_in(path)?
        } else if path.as_os_str() != "-" && is_parquet(path) {
            vec![path.to_owned()]
        } else {
            return Ok(Self::Csv(Box::new(CsvSource::open(CsvInput::from(path), config, now_ns)?)));
        };
        Ok(Self::Tables(Box::new(TableSource::open(paths, config, now_ns)?)))
    }

    /// Opens CSV files of one machine as one replay, and a single path as [`ReplaySource::open`] does.
    ///
    /// # Errors
    /// As [`ReplaySource::open`], and if there are several and one is a table file.
    pub fn open_all(paths: &[PathBuf], config: ReplayConfig, now_ns: i64) -> Result<Self, ReplayError> {
        if let [path] = paths {
            return Self::open(path, config, now_ns);
        }
        if let Some(path) = paths.iter().find(|path| path.is_dir() || is_parquet(path)) {
            return Err(ReplayError::NotCsv { file: path.display().to_string().into() });
        }
        Ok(Self::Several(Box::new(SeveralSource::open(paths.to_vec(), config, now_ns)?)))
    }

    /// The CSV files that it reads.
    pub fn csv_files(&self) -> Vec<&CsvSource> {
        match self {
            Self::Csv(csv) => vec![csv],
            Self::Several(several) => several.files().collect(),
            Self::Tables(_) => Vec::new(),
        }
    }

    /// Counts of the rows so far.
    pub fn counts(&self) -> Counts {
        match self {
            Self::Several(several) => several.counts(),
            Self::Csv(csv) => csv.counts(),
            Self::Tables(tables) => tables.counts(),
        }
    }

    /// The reports since the last call: the first [`REPORTS_MAX`] of each cause, in order. The rest is only
    /// counted.
    pub fn drain_reports(&mut self) -> Vec<Report> {
        match self {
            Self::Several(several) => several.drain_reports(),
            Self::Csv(csv) => csv.drain_reports(),
            Self::Tables(tables) => tables.drain_reports(),
        }
    }

    /// The rows of the batch that was handed over last as messages with the file's own names, if it has any
    /// ([`CsvSource::messages`]).
    pub fn messages(&mut self) -> Option<Vec<serde_json::Value>> {
        match self {
            Self::Several(several) => several.messages(),
            Self::Csv(csv) => csv.messages(),
            Self::Tables(_) => None,
        }
    }
}

impl Source for ReplaySource {
    type Error = ReplayError;

    fn poll(&mut self, now_ns: i64) -> Result<Poll, ReplayError> {
        match self {
            Self::Csv(csv) => Ok(csv.poll(now_ns)?),
            Self::Several(several) => Ok(several.poll(now_ns)?),
            Self::Tables(tables) => tables.poll(now_ns),
        }
    }
}

/// Whether a file begins as Parquet does. One that cannot be read is none; opening it says why.
fn is_parquet(path: &Path) -> bool {
    let mut head = [0; MAGIC.len()];
    // Only a regular file: what is read from a pipe is gone.
    path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok()
        && head == MAGIC
}

/// The table files of a directory, under the names of their tables.
fn tables_in(directory: &Path) -> Result<Vec<PathBuf>, ReplayError> {
    let file = || Arc::from(directory.display().to_string());
    if directory.join("unfinished").exists() {
        return Err(ReplayError::Unfinished { file: file() });
    }
    let named = Table::ALL.into_iter().map(|table| directory.join(format!("{table}.parquet")));
    let paths: Vec<PathBuf> = named.filter(|path| path.exists()).collect();
    if paths.is_empty() { Err(ReplayError::NoTables { file: file() }) } else { Ok(paths) }
}
