//! Parts of a running recording, and joining them into one file.
//!
//! ```text
//! DIR/unfinished/gpu_events-000000.parquet     sealed: a whole Parquet file
//! DIR/unfinished/gpu_events-000001.rows        journal of the rows since then
//! ```
//!
//! A sealed part has the columns that have a value in it; the final file has those of all parts. Pages are
//! copied, not decoded: ending a recording of hours takes as long as copying it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::{Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use gpuvitals_core::Table;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter, add_encoded_arrow_schema_to_metadata};
use parquet::column::writer::{ColumnCloseResult, ColumnWriter};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, RowGroupMetaData};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};

use super::RecordError;
use super::journal::Batches;
use super::layout::{Columns, properties};

/// Rows that go into the encoder together.
const SLICE_ROWS: usize = 1_024;

/// A part of a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    /// In the order of time.
    pub(super) number: u32,
    /// A Parquet file, or still a journal.
    pub(super) sealed: bool,
    /// Its file.
    pub(super) path: PathBuf,
}

/// Path of a part.
pub(super) fn path(unfinished: &Path, table: Table, number: u32, sealed: bool) -> PathBuf {
    let extension = if sealed { "parquet" } else { "rows" };
    unfinished.join(format!("{}-{number:06}.{extension}", table.name()))
}

/// The parts of a table in order. A journal beside its sealed part is a leftover and not listed.
pub(super) fn list(unfinished: &Path, table: Table) -> Result<Vec<Part>, RecordError> {
    let mut parts = Vec::new();
    for entry in fs::read_dir(unfinished).map_err(RecordError::io("listing", unfinished))? {
        let entry = entry.map_err(RecordError::io("listing", unfinished))?;
        let path = entry.path();
        let sealed = match path.extension().and_then(|e| e.to_str()) {
            Some("parquet") => true,
            Some("rows") => false,
            _ => continue,
        };
        let number = path
            .file_stem()
            .and_then(|name| name.to_str()?.strip_prefix(table.name())?.strip_prefix('-')?.parse().ok());
        if let Some(number) = number {
            parts.push(Part { number, sealed, path });
        }
    }
    // Sealed before journal.
    parts.sort_by_key(|part| (part.number, !part.sealed));
    parts.dedup_by_key(|part| part.number);
    Ok(parts)
}

/// Turns a journal into a sealed part and removes it. Returns the bytes of a torn tail that were left out.
pub(super) fn seal(table: Table, journal: &Path) -> Result<u64, RecordError> {
    let mut columns = Columns::of(table);
    let mut first = Batches::open(journal)?;
    while let Some(batch) = first.next()? {
        columns.extend(&batch.schema());
    }
    let torn = first.left();
    let schema = columns.schema();
    let target = journal.with_extension("parquet");
    let fresh = journal.with_extension("tmp");
    let file = File::create(&fresh).map_err(RecordError::io("creating", &fresh))?;
    let broken = |source| RecordError::Parquet { path: fresh.clone(), source };
    let mut writer = ArrowWriter::try_new(file, Arc::clone(&schema), Some(properties(&schema, Vec::new())))
        .map_err(broken)?;
    let (mut slice, mut rows) = (Vec::new(), 0);
    let mut batches = Batches::open(journal)?;
    loop {
        let batch = batches.next()?;
        if let Some(batch) = &batch {
            rows += batch.rows();
            slice.push(aligned(batch.records(), &schema).map_err(|e| broken(e.into()))?);
        }
        if rows >= SLICE_ROWS || batch.is_none() {
            let records = concat_batches(&schema, &slice).map_err(|e| broken(e.into()))?;
            writer.write(&records).map_err(broken)?;
            slice.clear();
            rows = 0;
        }
        if batch.is_none() {
            break;
        }
    }
    let file = writer.into_inner().map_err(broken)?;
    // Once every few minutes, so that a power cut loses only the part of the journal that the kernel had not
    // written.
    file.sync_data().map_err(RecordError::io("syncing", &fresh))?;
    fs::rename(&fresh, &target).map_err(RecordError::io("renaming", &fresh))?;
    fs::remove_file(journal).map_err(RecordError::io("removing", journal))?;
    Ok(torn)
}

fn aligned(records: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, arrow_schema::ArrowError> {
    let columns = schema.fields().iter().map(|field| {
        let column = records.column_by_name(field.name());
        column.map_or_else(|| new_null_array(field.data_type(), records.num_rows()), Arc::clone)
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect())
}

/// A sealed part, open for reading.
struct Source {
    path: PathBuf,
    file: File,
    meta: ArrowReaderMetadata,
}

impl Source {
    fn open(path: &Path) -> Result<Self, RecordError> {
        let file = File::open(path).map_err(RecordError::io("opening", path))?;
        let meta = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())
            .map_err(|source| RecordError::Parquet { path: path.to_owned(), source })?;
        Ok(Self { path: path.to_owned(), file, meta })
    }
}

/// Joins sealed parts into one file, durable when this returns, and returns its number of rows.
pub(super) fn join(
    table: Table,
    parts: &[Part],
    target: &Path,
    facts: Vec<KeyValue>,
) -> Result<u64, RecordError> {
    let mut columns = Columns::of(table);
    for part in parts {
        columns.extend(Source::open(&part.path)?.meta.schema());
    }
    let schema = columns.schema();
    let fresh = target.with_extension("parquet.tmp");
    let broken = |source| RecordError::Parquet { path: fresh.clone(), source };
    let file = File::create(&fresh).map_err(RecordError::io("creating", &fresh))?;
    let mut writer = begin(file, &schema, facts).map_err(broken)?;
    let mut rows = 0;
    for part in parts {
        // One part is open at a time: a recording of days has hundreds.
        let open = Source::open(&part.path)?;
        for group in open.meta.metadata().row_groups() {
            let mut into = writer.next_row_group().map_err(broken)?;
            copy(&open, group, &schema, &mut into)
                .and_then(|()| into.close().map(|_| ()))
                .map_err(|source| RecordError::Parquet { path: open.path.clone(), source })?;
            rows += group.num_rows().unsigned_abs();
        }
    }
    let file = writer.into_inner().map_err(broken)?;
    file.sync_all().map_err(RecordError::io("syncing", &fresh))?;
    fs::rename(&fresh, target).map_err(RecordError::io("renaming", &fresh))?;
    Ok(rows)
}

fn begin(
    file: File,
    schema: &Schema,
    facts: Vec<KeyValue>,
) -> Result<SerializedFileWriter<File>, ParquetError> {
    let mut properties = properties(schema, facts);
    add_encoded_arrow_schema_to_metadata(schema, &mut properties);
    let root = ArrowSchemaConverter::new().convert(schema)?.root_schema_ptr();
    SerializedFileWriter::new(file, root, Arc::new(properties))
}

/// Copies a row group's pages; a column it lacks becomes nulls.
fn copy(
    open: &Source,
    group: &RowGroupMetaData,
    schema: &Schema,
    into: &mut SerializedRowGroupWriter<'_, File>,
) -> Result<(), ParquetError> {
    let rows = usize::try_from(group.num_rows())
        .map_err(|_| ParquetError::General(format!("a row group of {} rows", group.num_rows())))?;
    for field in schema.fields() {
        let Some(column) = group.columns().iter().find(|c| c.column_descr().name() == field.name()) else {
            nulls(into, rows)?;
            continue;
        };
        let close = ColumnCloseResult {
            bytes_written: column.compressed_size().unsigned_abs(),
            rows_written: rows as u64,
            metadata: column.clone(),
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        into.append_column(&open.file, close)?;
    }
    Ok(())
}

fn nulls(into: &mut SerializedRowGroupWriter<'_, File>, rows: usize) -> Result<(), ParquetError> {
    let Some(mut column) = into.next_column()? else { return Ok(()) };
    let levels = vec![0; rows.min(SLICE_ROWS)];
    let mut left = rows;
    while left > 0 {
        let levels = Some(levels.get(..left.min(SLICE_ROWS)).unwrap_or_default());
        left -= match column.untyped() {
            ColumnWriter::Int32ColumnWriter(writer) => writer.write_batch(&[], levels, None).map(|_| ()),
            ColumnWriter::Int64ColumnWriter(writer) => writer.write_batch(&[], levels, None).map(|_| ()),
            ColumnWriter::FloatColumnWriter(writer) => writer.write_batch(&[], levels, None).map(|_| ()),
            ColumnWriter::DoubleColumnWriter(writer) => writer.write_batch(&[], levels, None).map(|_| ()),
            ColumnWriter::ByteArrayColumnWriter(writer) => writer.write_batch(&[], levels, None).map(|_| ()),
            _ => Err(ParquetError::NYI("a column of a type that no table has".to_owned())),
        }
        .map(|()| levels.map_or(0, <[i16]>::len))?;
    }
    column.close()
}
