//! A file of a table in Parquet, from batches that come one after the other.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use gpuvitals_core::{Batch, Table};
use gpuvitals_log::Fresh;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;

use crate::error::RecordError;
use crate::layout::{Columns, properties};

/// Rows that go into the encoder together.
const SLICE_ROWS: usize = 1_024;
/// Rows of a row group of a final file: large enough that its share of the footer is small.
pub(crate) const GROUP_ROWS: usize = 131_072;

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

impl TableFile<'_> {
    /// Writes the rows with the columns that every recording has and those that they have themselves; the file is there whole and
    /// synced, or not at all. `batches` is called twice, once for the columns and once for the rows, which `seen` is shown. Answers
    /// the number of rows.
    ///
    /// # Errors
    /// If the rows cannot be read, or the file cannot be written.
    pub fn write<E: From<RecordError>, I: Iterator<Item = Result<Batch, E>>>(
        self,
        batches: impl Fn() -> Result<I, E>,
        mut seen: impl FnMut(&Batch),
    ) -> Result<u64, E> {
        let Self { table, target, facts } = self;
        let mut columns = Columns::of(table);
        for batch in batches()? {
            columns.extend(&batch?.schema());
        }
        let own = [("schema", format!("{} 1", table.name()))];
        let facts = own.into_iter().chain(facts).map(|(key, value)| fact(key, value)).collect();
        let mut rows = batches()?;
        let (file, count) = write(&columns.schema(), target, facts, || {
            let batch = rows.next().transpose()?;
            batch.iter().for_each(&mut seen);
            Ok::<_, E>(batch)
        })?;
        file.put().map_err(RecordError::io("write", target))?;
        Ok(count)
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
    let fresh = Fresh::create(target).map_err(RecordError::io("create", target))?;
    let broken = |source| RecordError::Parquet { path: fresh.path().to_owned(), source };
    let unfit = |error: ArrowError| broken(error.into());
    let properties = properties(schema, facts);
    let mut writer =
        ArrowWriter::try_new(fresh.file(), Arc::clone(schema), Some(properties)).map_err(broken)?;
    let (mut slice, mut waiting, mut written) = (Vec::new(), 0, 0);
    loop {
        let batch = next()?;
        if let Some(batch) = &batch {
            waiting += batch.rows();
            slice.push(aligned(batch.records(), schema).map_err(unfit)?);
        }
        if waiting >= SLICE_ROWS || batch.is_none() {
            writer.write(&concat_batches(schema, &slice).map_err(unfit)?).map_err(broken)?;
            written += waiting as u64;
            slice.clear();
            waiting = 0;
            if writer.in_progress_rows() >= GROUP_ROWS {
                writer.flush().map_err(broken)?;
            }
        }
        if batch.is_none() {
            break;
        }
    }
    writer.close().map_err(broken)?;
    Ok((fresh, written))
}

/// The rows with these columns; what they lack is null.
pub(crate) fn aligned(records: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = schema.fields().iter().map(|field| {
        let column = records.column_by_name(field.name());
        column.map_or_else(|| new_null_array(field.data_type(), records.num_rows()), Arc::clone)
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect())
}
