//! Reading a recording back, finished or not, batch by batch.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};

use gpuvitals_core::batch::type_of;
use gpuvitals_core::{Batch, Origin, Table};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

use crate::checksums::Checksums;
use crate::directory::{TABLES, finals, state, table_file};
use crate::error::RecordError;
use crate::journal::Batches;
use crate::part::{self, Part};
use crate::table_file::with_numbers;

/// The rows of a recording: first all GPUs', then all the host's, in the order they were written.
#[derive(Debug)]
pub struct Data {
    directory: PathBuf,
    waiting: VecDeque<(Table, Part)>,
    current: Option<CurrentReader>,
}

#[derive(Debug)]
enum CurrentReader {
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
                waiting.extend(part::list(directory, table)?.into_iter().map(|part| (table, part)));
            } else if whole {
                let path = table_file(directory, table);
                waiting.push_back((table, Part { number: 0, sealed: true, path }));
            }
        }
        if !whole && !unfinished {
            return Err(RecordError::no_recording(directory));
        }
        Ok(Self { directory: directory.to_owned(), waiting, current: None })
    }

    fn read(&mut self) -> Result<Option<Batch>, RecordError> {
        loop {
            let batch = match &mut self.current {
                None => None,
                Some(CurrentReader::Journal(batches)) => batches.next()?,
                Some(CurrentReader::Parquet(table, path, reader)) => match reader.next() {
                    None => None,
                    Some(records) => {
                        let broken = |source| RecordError::Parquet { path: path.clone(), source };
                        let records = records.and_then(|it| with_numbers(it, |name| type_of(*table, name)));
                        let records = records.map_err(|error| broken(error.into()))?;
                        let batch = Batch::new(*table, records, Origin::default(), 0);
                        Some(batch.map_err(|source| RecordError::Columns { path: path.clone(), source })?)
                    }
                },
            };
            if batch.is_some() {
                return Ok(batch);
            }
            let Some((table, part)) = self.waiting.pop_front() else { return Ok(None) };
            self.current = Some(open(&self.directory, table, part)?);
        }
    }
}

fn open(directory: &Path, table: Table, part: Part) -> Result<CurrentReader, RecordError> {
    if !part.sealed {
        match Batches::open(&part.path) {
            // Sealed since it was listed.
            Err(RecordError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
            batches => return Ok(CurrentReader::Journal(Box::new(batches?))),
        }
    }
    let path = if part.sealed { part.path } else { part::sealed(directory, table, part.number) };
    let reader = part::open(&path)?;
    Ok(CurrentReader::Parquet(table, path, Box::new(reader)))
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

/// Compares a file, or the files of a finished recording, with their checksums, for those who read them without [`Data`]. What has no
/// checksums passes, and what cannot be opened: to read it says why.
///
/// # Errors
/// If the bytes of a file have changed since it was written, or cannot be read.
pub fn verify_recording(path: &Path) -> Result<(), RecordError> {
    let files = if path.is_dir() { finals(path).collect() } else { vec![path.to_owned()] };
    // What is read from a pipe is gone.
    for path in files.iter().filter(|path| path.is_file()) {
        let Ok(file) = File::open(path) else { continue };
        Checksums::read(&file, path)?.verify(&file, path)?;
    }
    Ok(())
}
