//! A file of a table in Parquet, from batches that come one after the other.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::{ArrowError, DataType, Field, SchemaRef};
use arrow_select::concat::concat_batches;
use gpuvitals_core::batch::as_numbers;
use gpuvitals_core::{Batch, Table};
use gpuvitals_log::Fresh;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;

use crate::checksums::SummedWriter;
use crate::error::RecordError;
use crate::layout::Columns;

/// Rows that go into the encoder together.
const SLICE_ROWS: usize = 1_024;
/// Rows of a row group of a final file: large enough that its share of the footer is small.
pub(crate) const GROUP_ROWS: usize = 131_072;
/// Rows from which on it is worth a row group of their own that they are written before the end.
const SETTLED_ROWS: usize = 16_384;

/// Why rows do not become a file.
#[derive(Debug, thiserror::Error)]
pub enum TableFileError<E> {
    /// The rows cannot be read.
    #[error(transparent)]
    Rows(E),
    /// The file cannot be written.
    #[error(transparent)]
    File(#[from] RecordError),
}

/// A file of a recording that is written from rows kept elsewhere, as those of a ring.
#[derive(Debug)]
pub struct TableFile<'a> {
    /// Of its rows: GPUs or the host.
    pub table: Table,
    /// The place of the file, in a directory that is there.
    pub target: &'a Path,
    /// What its footer says, as pairs without `gpuvitals.`; its schema is among them anyway.
    pub facts: Vec<(&'static str, String)>,
}

/// The columns of a table's file: those that every recording has, and those of the rows that it is for.
#[derive(Debug)]
pub struct SeenColumns(Columns);

impl SeenColumns {
    /// Those that every recording has.
    pub fn of(table: Table) -> Self {
        Self(Columns::of(table))
    }

    /// Adds those of some rows.
    pub fn add(&mut self, batch: &Batch) {
        self.0.extend(&batch.schema());
    }
}

impl TableFile<'_> {
    /// Writes the rows with the columns that every recording has and those that they have themselves; the file is there whole and
    /// synced, or not at all. `batches` is called twice, once for the columns and once for the rows. Answers the number of rows.
    ///
    /// # Errors
    /// If the rows cannot be read, or the file cannot be written.
    pub fn write<E, I: Iterator<Item = Result<Batch, E>>>(
        self,
        batches: impl Fn() -> Result<I, E>,
    ) -> Result<u64, TableFileError<E>> {
        let mut columns = SeenColumns::of(self.table);
        for batch in batches().map_err(TableFileError::Rows)? {
            columns.add(&batch.map_err(TableFileError::Rows)?);
        }
        let mut file = self.begin(&columns)?;
        for batch in batches().map_err(TableFileError::Rows)? {
            file.add(&batch.map_err(TableFileError::Rows)?)?;
        }
        Ok(file.put()?)
    }

    /// Begins it with these columns.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn begin(self, columns: &SeenColumns) -> Result<OpenTableFile, RecordError> {
        let Self { table, target, facts } = self;
        let own = [("schema", format!("{} 1", table.name()))];
        let facts = own.into_iter().chain(facts).map(|(key, value)| fact(key, value)).collect();
        OpenTableFile::create(columns.0.schema(), target, facts)
    }
}

/// A file of a table that takes rows. Dropped before it is put to its place, it leaves nothing.
#[derive(Debug)]
pub struct OpenTableFile {
    fresh: Fresh,
    target: PathBuf,
    schema: SchemaRef,
    writer: SummedWriter,
    /// Rows that go into the encoder next.
    slice: Vec<RecordBatch>,
    waiting: usize,
    written: u64,
}

impl OpenTableFile {
    fn create(schema: SchemaRef, target: &Path, facts: Vec<KeyValue>) -> Result<Self, RecordError> {
        let fresh = Fresh::create(target).map_err(RecordError::io("create", target))?;
        let writer = SummedWriter::begin(&fresh, &schema, facts)?;
        let (target, slice) = (target.to_owned(), Vec::new());
        Ok(Self { fresh, target, schema, writer, slice, waiting: 0, written: 0 })
    }

    /// Whether it has all columns of some rows.
    pub fn takes(&self, batch: &Batch) -> bool {
        let has = |name: &str| self.schema.column_with_name(name).is_some();
        batch.schema().fields().iter().all(|field| has(field.name()))
    }

    /// Adds rows. Columns that it has not are left out.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn add(&mut self, batch: &Batch) -> Result<(), RecordError> {
        let rows = aligned(batch.records(), &self.schema).map_err(|error| self.broken(error.into()))?;
        self.slice.push(rows);
        self.waiting += batch.rows();
        if self.waiting >= SLICE_ROWS { self.encode() } else { Ok(()) }
    }

    /// Hands to the disk what it has so far, so that little is left to do at its end.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn settle(&mut self) -> Result<(), RecordError> {
        self.encode()?;
        if self.writer.group_rows() >= SETTLED_ROWS {
            self.writer.end_group()?;
        }
        self.fresh.file().sync_data().map_err(RecordError::io("sync", &self.target))
    }

    /// Puts it to its place, whole and synced. Answers the number of rows.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(self) -> Result<u64, RecordError> {
        let target = self.target.clone();
        let (fresh, written) = self.close()?;
        fresh.put().map_err(RecordError::io("write", &target))?;
        Ok(written)
    }

    /// Ends it; the file does not have its place yet.
    fn close(mut self) -> Result<(Fresh, u64), RecordError> {
        self.encode()?;
        let Self { fresh, writer, written, .. } = self;
        writer.close()?;
        Ok((fresh, written))
    }

    /// Puts the rows that wait into the encoder.
    fn encode(&mut self) -> Result<(), RecordError> {
        let rows = concat_batches(&self.schema, &self.slice).map_err(|error| self.broken(error.into()))?;
        self.writer.write(&rows)?;
        self.written += self.waiting as u64;
        self.slice.clear();
        self.waiting = 0;
        if self.writer.group_rows() >= GROUP_ROWS {
            self.writer.end_group()?;
        }
        Ok(())
    }

    fn broken(&self, source: ParquetError) -> RecordError {
        RecordError::Parquet { path: self.fresh.path().to_owned(), source }
    }
}

/// A pair of a footer.
pub(crate) fn fact(key: &str, value: String) -> KeyValue {
    KeyValue::new(format!("gpuvitals.{key}"), value)
}

/// Writes rows with these columns until there is none. Answers the file, which does not have its place yet, and their number.
pub(crate) fn write<E: From<RecordError>>(
    schema: &SchemaRef,
    target: &Path,
    facts: Vec<KeyValue>,
    mut next: impl FnMut() -> Result<Option<Batch>, E>,
) -> Result<(Fresh, u64), E> {
    let mut file = OpenTableFile::create(Arc::clone(schema), target, facts)?;
    while let Some(batch) = next()? {
        file.add(&batch)?;
    }
    Ok(file.close()?)
}

/// Numbers in the type that is wanted of a column, by its name. Another program may have written them anew: pandas makes floats of whole
/// numbers where one is missing.
pub(crate) fn with_numbers(
    records: RecordBatch,
    wanted: impl Fn(&str) -> Option<DataType>,
) -> Result<RecordBatch, ArrowError> {
    let schema = records.schema();
    let other = |field: &Field| wanted(field.name()).filter(|wanted| wanted != field.data_type());
    if schema.fields().iter().all(|field| other(field).is_none()) {
        return Ok(records);
    }
    let columns = schema.fields().iter().zip(records.columns()).map(|(field, column)| {
        let fitted = other(field).and_then(|wanted| as_numbers(column, &wanted));
        (field.name(), fitted.unwrap_or_else(|| Arc::clone(column)))
    });
    RecordBatch::try_from_iter(columns)
}

/// The rows with these columns; what they lack is null.
pub(crate) fn aligned(records: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = schema.fields().iter().map(|field| {
        let column = records.column_by_name(field.name());
        column.map_or_else(|| new_null_array(field.data_type(), records.num_rows()), Arc::clone)
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect())
}
