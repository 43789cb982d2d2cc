//! Rows of a view as one Parquet file, with the columns and encodings of the store's own files.

use std::fs::File;
use std::path::PathBuf;

use arrow_schema::SchemaRef;
use gpuvitals_core::{Batch, Table};
use parquet::arrow::ArrowWriter;

use crate::config::StoreConfig;
use crate::file::{FileError, properties};
use crate::grain::Grain;
use crate::manifest::Span;

/// Rows of a row group: as many are in memory, encoded.
const GROUP_ROWS: usize = 1 << 19;

/// A Parquet file of rows of one table, being written.
#[derive(Debug)]
pub struct RowsFile {
    path: PathBuf,
    writer: ArrowWriter<File>,
}

impl RowsFile {
    /// Begins it in an empty file; the path is for messages. All batches have these columns.
    ///
    /// # Errors
    /// If Parquet has no room for them.
    pub fn begin(file: File, path: PathBuf, table: Table, schema: &SchemaRef) -> Result<Self, FileError> {
        let page_rows = StoreConfig::new("").page_rows;
        let properties = properties((table, Grain::Raw, Span::Day(0).level()), schema, page_rows);
        match ArrowWriter::try_new(file, schema.clone(), Some(properties)) {
            Ok(writer) => Ok(Self { path, writer }),
            Err(error) => Err(FileError::parquet("begin", &path, error)),
        }
    }

    /// Adds rows.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn write(&mut self, batch: &Batch) -> Result<(), FileError> {
        let Self { path, writer } = self;
        let mut written = writer.write(batch.records());
        if written.is_ok() && writer.in_progress_rows() >= GROUP_ROWS {
            written = writer.flush();
        }
        written.map_err(|error| FileError::parquet("write", path, error))
    }

    /// Ends it. It is not synced.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn finish(self) -> Result<File, FileError> {
        let Self { path, writer } = self;
        writer.into_inner().map_err(|error| FileError::parquet("end", &path, error))
    }
}
