//! The row groups of a file being written: rows as they come, or one column after another.
//!
//! A column that is being written has a compressor of some 100 kB, from its first page to the end of the row group. Rows have some
//! ninety columns and up to a quarter of a million rows a group: they are encoded as they come. A rollup has hundreds of columns,
//! and few rows a group: those wait as they are, and then one column after another is encoded and written, by one compressor.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::{Array as _, ArrayRef, RecordBatch, new_null_array};
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::writer::SerializedFileWriter;

/// Writes row groups.
pub(super) enum GroupWriter<W: Write> {
    /// All columns of some rows at once.
    Rows(ArrowWriter<W>),
    /// One column after another, once the rows of a group are there.
    Columns(ColumnWriter<W>),
}

/// Writes the columns of a row group one after another.
pub(super) struct ColumnWriter<W: Write> {
    file: SerializedFileWriter<W>,
    columns: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    /// The rows of the group.
    waiting: Vec<WaitingRows>,
}

/// Rows that are not encoded yet.
struct WaitingRows {
    len: usize,
    /// None: no row has a value. Many columns of a rollup are so, and take no room then.
    columns: Vec<Option<ArrayRef>>,
}

impl<W: Write + Send> GroupWriter<W> {
    /// Goes on with a file that has been begun, one column after another.
    ///
    /// # Errors
    /// Never for a file without rows.
    pub(super) fn by_column(begun: ArrowWriter<W>, schema: SchemaRef) -> Result<Self> {
        let (file, columns) = begun.into_serialized_writer()?;
        Ok(Self::Columns(ColumnWriter { file, columns, schema, waiting: Vec::new() }))
    }

    /// Adds rows to the row group.
    ///
    /// # Errors
    /// If they do not fit the file's columns, or the disk refuses.
    pub(super) fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        match self {
            Self::Rows(writer) => writer.write(rows),
            Self::Columns(writer) => {
                writer.waiting.push(WaitingRows::of(rows));
                Ok(())
            }
        }
    }

    /// Ends the row group, if it has rows.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(super) fn end_group(&mut self) -> Result<()> {
        match self {
            Self::Rows(writer) => writer.flush(),
            Self::Columns(writer) => writer.end_group(),
        }
    }

    /// Hands all bytes of ended row groups to the output.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        match self {
            Self::Rows(writer) => writer.sync(),
            Self::Columns(writer) => writer.file.flush(),
        }
    }

    /// The output.
    pub(super) fn inner(&self) -> &W {
        match self {
            Self::Rows(writer) => writer.inner(),
            Self::Columns(writer) => writer.file.inner(),
        }
    }

    /// The output.
    pub(super) fn inner_mut(&mut self) -> &mut W {
        match self {
            Self::Rows(writer) => writer.inner_mut(),
            Self::Columns(writer) => writer.file.inner_mut(),
        }
    }

    /// Adds to what the footer says.
    pub(super) fn append_key_value_metadata(&mut self, pair: KeyValue) {
        match self {
            Self::Rows(writer) => writer.append_key_value_metadata(pair),
            Self::Columns(writer) => writer.file.append_key_value_metadata(pair),
        }
    }

    /// Ends the row group and writes the footer.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(super) fn finish(&mut self) -> Result<()> {
        self.end_group()?;
        let finished = match self {
            Self::Rows(writer) => writer.finish(),
            Self::Columns(writer) => writer.file.finish(),
        };
        finished.map(drop)
    }
}

impl<W: Write + Send> ColumnWriter<W> {
    fn end_group(&mut self) -> Result<()> {
        let mut waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        let columns = self.columns.create_column_writers(self.file.flushed_row_groups().len())?;
        let mut group = self.file.next_row_group()?;
        for (place, (field, mut column)) in self.schema.fields().iter().zip(columns).enumerate() {
            for rows in &mut waiting {
                let values = rows.columns.get_mut(place).and_then(Option::take);
                let values = values.unwrap_or_else(|| new_null_array(field.data_type(), rows.len));
                for leaf in compute_leaves(field, &values)? {
                    column.write(&leaf)?;
                }
            }
            column.close()?.append_to_row_group(&mut group)?;
        }
        group.close()?;
        Ok(())
    }
}

impl WaitingRows {
    fn of(rows: &RecordBatch) -> Self {
        let columns = rows.columns().iter();
        let columns = columns.map(|column| (column.null_count() < column.len()).then(|| Arc::clone(column)));
        Self { len: rows.num_rows(), columns: columns.collect() }
    }
}
