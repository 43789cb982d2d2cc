//! Reading a recording back, finished or not, batch by batch.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};

use gpuvitals_core::{Batch, Origin, Table};
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};

use super::directory::{TABLES, state, table_file};
use super::journal::Batches;
use super::{RecordError, part};

/// Rows of a batch read from a Parquet file.
const BATCH_ROWS: usize = 8_192;

/// The rows of a recording: first all GPUs', then all the host's, in the order they were written.
#[derive(Debug)]
pub struct Data {
    waiting: VecDeque<(Table, PathBuf)>,
    current: Option<Current>,
}

#[derive(Debug)]
enum Current {
    Journal(Box<Batches>),
    Parquet(Table, PathBuf, Box<ParquetRecordBatchReader>),
}

impl Data {
    /// Of a recording in a directory, as far as it goes now.
    ///
    /// # Errors
    /// When the directory holds none, or cannot be read.
    pub fn open(directory: &Path) -> Result<Self, RecordError> {
        let (whole, unfinished) = state(directory);
        let mut waiting = VecDeque::new();
        for table in TABLES {
            if unfinished {
                let parts = part::list(&directory.join("unfinished"), table)?;
                waiting.extend(parts.into_iter().map(|part| (table, part.path)));
            } else if whole {
                waiting.push_back((table, table_file(directory, table)));
            }
        }
        if !whole && !unfinished {
            let path = directory.to_owned();
            return Err(RecordError::Directory { path, what: "holds no recording" });
        }
        Ok(Self { waiting, current: None })
    }

    fn read(&mut self) -> Result<Option<Batch>, RecordError> {
        loop {
            let batch = match &mut self.current {
                None => None,
                Some(Current::Journal(batches)) => batches.next()?,
                Some(Current::Parquet(table, path, reader)) => match reader.next() {
                    None => None,
                    Some(records) => {
                        let broken = |source| RecordError::Parquet { path: path.clone(), source };
                        let records = records.map_err(|error| broken(error.into()))?;
                        let batch = Batch::new(*table, records, Origin::default(), 0);
                        Some(batch.map_err(|source| RecordError::Columns { path: path.clone(), source })?)
                    }
                },
            };
            if batch.is_some() {
                return Ok(batch);
            }
            let Some((table, path)) = self.waiting.pop_front() else { return Ok(None) };
            self.current = Some(open(table, path)?);
        }
    }
}

fn open(table: Table, path: PathBuf) -> Result<Current, RecordError> {
    if path.extension().is_some_and(|extension| extension == "rows") {
        match Batches::open(&path) {
            // Sealed since it was listed.
            Err(RecordError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return open(table, path.with_extension("parquet"));
            }
            batches => return Ok(Current::Journal(Box::new(batches?))),
        }
    }
    let file = File::open(&path).map_err(RecordError::io("opening", &path))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(|builder| builder.with_batch_size(BATCH_ROWS).build())
        .map_err(|source| RecordError::Parquet { path: path.clone(), source })?;
    Ok(Current::Parquet(table, path, Box::new(reader)))
}

impl Iterator for Data {
    type Item = Result<Batch, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read().transpose();
        if matches!(next, Some(Err(_))) {
            (self.waiting, self.current) = (VecDeque::new(), None);
        }
        next
    }
}
