//! Parts of a running recording, and joining them into one file.
//!
//! ```text
//! DIR/gpu_events.000001.parquet           sealed: a whole Parquet file of a few seconds
//! DIR/unfinished/gpu_events.000002.rows   journal of the rows since then
//! ```
//!
//! A sealed part has the columns that have a value in it; the final file has those of all parts. A recording that ends
//! gathers its parts in `unfinished` before its final files are there, so that no row is in two files that anybody reads.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_schema::{ArrowError, Schema, SchemaRef};
use gpuvitals_core::batch::with_text_type;
use gpuvitals_core::{Batch, Origin, Table};
use gpuvitals_log::Fresh;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::file::metadata::KeyValue;

use crate::checksums::{Checksums, SummedWriter};
use crate::error::RecordError;
use crate::gpu_rows::FactsOfGpus;
use crate::journal::Batches;
use crate::layout::Columns;
use crate::table_file::{self, GROUP_ROWS};

/// Rows of a batch that is read from a file.
const BATCH_ROWS: usize = 8_192;

/// Digits of a part's number at least.
const NUMBER_LEN: usize = 6;

/// A part of a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    /// In the order of time.
    pub(crate) number: u32,
    /// Whether it is a Parquet file, or still a journal.
    pub(crate) sealed: bool,
    pub(crate) path: PathBuf,
}

/// Where the journals of a recording are, and what nobody else reads.
pub(crate) fn unfinished(directory: &Path) -> PathBuf {
    directory.join("unfinished")
}

/// Path of the journal of a part.
pub(crate) fn journal(directory: &Path, table: Table, number: u32) -> PathBuf {
    unfinished(directory).join(format!("{}.{number:06}.rows", table.name()))
}

/// Path of a sealed part.
pub(crate) fn sealed(directory: &Path, table: Table, number: u32) -> PathBuf {
    directory.join(format!("{}.{number:06}.parquet", table.name()))
}

/// The number of a part in the name of its file, and what is behind it: `gpu_events.000012.parquet` is 12 and `parquet`. Other
/// names are somebody else's.
fn numbered(name: &str, table: Table) -> Option<(u32, &str)> {
    let rest = name.strip_prefix(table.name())?.strip_prefix('.')?;
    let (number, ending) = rest.split_once('.')?;
    let is_number = number.len() >= NUMBER_LEN && number.bytes().all(|byte| byte.is_ascii_digit());
    Some((number.parse().ok().filter(|_| is_number)?, ending))
}

/// The entries of a folder, with their names.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, String)>, RecordError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(RecordError::io("list", folder))? {
        let entry = entry.map_err(RecordError::io("list", folder))?;
        found.extend(entry.file_name().into_string().ok().map(|name| (entry.path(), name)));
    }
    Ok(found)
}

/// The parts of a table in order. A journal beside its sealed part is a leftover and not listed.
pub(crate) fn list(directory: &Path, table: Table) -> Result<Vec<Part>, RecordError> {
    let mut parts = Vec::new();
    // In this order: a part that is sealed meanwhile leaves the journals after it has come to the others.
    for folder in [unfinished(directory), directory.to_owned()] {
        for (path, name) in entries(&folder)? {
            match numbered(&name, table) {
                Some((number, "parquet")) => parts.push(Part { number, sealed: true, path }),
                Some((number, "rows")) => parts.push(Part { number, sealed: false, path }),
                _ => {}
            }
        }
    }
    // Sealed before journal.
    parts.sort_by_key(|part| (part.number, !part.sealed));
    parts.dedup_by_key(|part| part.number);
    Ok(parts)
}

/// A file in the directory of a recording that has the name of a part.
pub(crate) fn stray(directory: &Path, tables: [Table; 2]) -> Option<PathBuf> {
    let is_part = |name: &str| tables.iter().any(|table| numbered(name, *table).is_some());
    entries(directory).ok()?.into_iter().find(|(_, name)| is_part(name)).map(|(path, _)| path)
}

/// Rows among the journals that this version does not list: an earlier one wrote them.
pub(crate) fn unlisted(directory: &Path, tables: [Table; 2]) -> Result<Option<PathBuf>, RecordError> {
    let is_listed = |name: &str| tables.iter().any(|table| numbered(name, *table).is_some());
    let is_rows = |name: &str| {
        let begins = tables.iter().any(|table| name.starts_with(&format!("{}-", table.name())));
        begins && !is_listed(name)
    };
    let found = entries(&unfinished(directory))?.into_iter().find(|(_, name)| is_rows(name));
    Ok(found.map(|(path, _)| path))
}

/// Moves the sealed parts of both tables to the journals, and removes halves of others.
pub(crate) fn gather(directory: &Path, tables: [Table; 2]) -> Result<(), RecordError> {
    let unfinished = unfinished(directory);
    for (path, name) in entries(directory)? {
        match tables.iter().find_map(|table| numbered(&name, *table)) {
            Some((_, "parquet")) => {
                fs::rename(&path, unfinished.join(name)).map_err(RecordError::io("rename", &path))?;
            }
            Some((_, "parquet.tmp")) => {
                fs::remove_file(&path).map_err(RecordError::io("remove", &path))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Turns a journal into a sealed part and removes it. Returns the bytes of a torn tail that were left out.
pub(crate) fn seal(table: Table, journal: &Path, target: &Path) -> Result<u64, RecordError> {
    let mut columns = Columns::of(table);
    let mut first = Batches::open(journal)?;
    while let Some(batch) = first.next()? {
        columns.extend(&batch.schema());
    }
    let torn = first.left();
    let mut batches = Batches::open(journal)?;
    let (file, _) = table_file::write(&columns.schema(), target, Vec::new(), || batches.next())?;
    file.put().map_err(RecordError::io("write", target))?;
    fs::remove_file(journal).map_err(RecordError::io("remove", journal))?;
    Ok(torn)
}

/// Opens a sealed part or a final file of a table, once its bytes are known to be those that were written.
pub(crate) fn open(path: &Path) -> Result<ParquetRecordBatchReader, RecordError> {
    reader(path, with_text_type)
}

/// The same of a file whose texts are plain: that of the marks.
pub(crate) fn open_plain(path: &Path) -> Result<ParquetRecordBatchReader, RecordError> {
    reader(path, Schema::clone)
}

/// What the footer of a final file says.
pub(crate) fn facts(path: &Path) -> Result<Vec<KeyValue>, RecordError> {
    let (file, _) = open_file(path)?;
    let footer = Arc::clone(builder(file, path, Schema::clone)?.metadata());
    Ok(footer.file_metadata().key_value_metadata().cloned().unwrap_or_default())
}

/// The columns of a sealed part.
fn columns_of(path: &Path) -> Result<SchemaRef, RecordError> {
    let (file, _) = open_file(path)?;
    Ok(Arc::clone(builder(file, path, with_text_type)?.schema()))
}

/// Opens a file whose footer is as it was written, and its checksums.
fn open_file(path: &Path) -> Result<(File, Checksums), RecordError> {
    let file = File::open(path).map_err(RecordError::io("open", path))?;
    let sums = Checksums::read(&file, path)?;
    Ok((file, sums))
}

fn reader(path: &Path, fit: fn(&Schema) -> Schema) -> Result<ParquetRecordBatchReader, RecordError> {
    let (file, sums) = open_file(path)?;
    sums.verify(&file, path)?;
    builder(file, path, fit)?
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|source| RecordError::Parquet { path: path.to_owned(), source })
}

/// Whatever program wrote the file, its texts have the type that `fit` gives them: of a recording that somebody has filtered they may
/// be plain, large or views.
fn builder(
    file: File,
    path: &Path,
    fit: fn(&Schema) -> Schema,
) -> Result<ParquetRecordBatchReaderBuilder<File>, RecordError> {
    let load = || {
        let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        let plain = ArrowReaderMetadata::load(&file, options.clone())?;
        let schema = Arc::new(fit(plain.schema()));
        ArrowReaderMetadata::try_new(Arc::clone(plain.metadata()), options.with_schema(schema))
    };
    let metadata = load().map_err(|source| RecordError::Parquet { path: path.to_owned(), source })?;
    Ok(ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata))
}

/// Joins sealed parts into one file, which has not its place yet, and returns its number of rows. They are encoded anew: a row
/// group a part would be too small.
pub(crate) fn join(
    table: Table,
    parts: &[Part],
    target: &Path,
    facts: Vec<KeyValue>,
) -> Result<(Fresh, u64), RecordError> {
    let mut columns = Columns::of(table);
    for part in parts {
        let schema = columns_of(&part.path)?;
        columns.extend(&schema);
    }
    let schema = columns.schema();
    let fresh = Fresh::create(target).map_err(RecordError::io("create", target))?;
    let mut writer = SummedWriter::begin(&fresh, &schema, facts)?;
    let (mut rows, mut gpus) = (0, FactsOfGpus::default());
    for part in parts {
        // One part is open at a time: a recording of days has thousands.
        for records in open(&part.path)? {
            let unread =
                |error: ArrowError| RecordError::Parquet { path: part.path.clone(), source: error.into() };
            let records =
                records.and_then(|records| table_file::aligned(&records, &schema)).map_err(unread)?;
            rows += records.num_rows() as u64;
            writer.write(&records)?;
            if table == Table::GpuEvents {
                let batch = Batch::new(table, records, Origin::default(), 0);
                gpus.add(&batch.map_err(|source| RecordError::Columns { path: part.path.clone(), source })?);
            }
            if writer.group_rows() >= GROUP_ROWS {
                writer.end_group()?;
            }
        }
    }
    if table == Table::GpuEvents {
        writer.add_fact(gpus.footer());
    }
    writer.close()?;
    Ok((fresh, rows))
}
