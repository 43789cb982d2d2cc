//! The facts about a table file that a manifest has: known when the file is written, or read from it again.

use std::os::unix::fs::FileExt;
use std::path::Path;

use gpuvitals_log::open_file;
use parquet::file::metadata::PageIndexPolicy;

use super::error::FileError;
use super::facts::RowGroupFacts;
use super::reading::parse;
use crate::inventory::TableFileName;
use crate::manifest::FileRecord;

/// The fault of a file without row groups.
pub(super) const NO_ROWS: &str = "it has no rows";

/// A footer's place and checksum.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footer {
    /// First byte in the file.
    pub(crate) offset: u64,
    /// Bytes of the whole file: the end of the footer.
    pub(crate) bytes: u64,
    /// CRC32C of the footer.
    pub(crate) crc32c: u32,
}

/// The manifest's entry for a file with these row groups, of which its name says the rest; none without any, for it would
/// cover no time.
pub(crate) fn record(
    name: String,
    said: TableFileName,
    groups: &[RowGroupFacts],
    footer: Footer,
) -> Option<FileRecord> {
    let TableFileName { table, grain, level, number: order } = said;
    let groups = || groups.iter();
    Some(FileRecord {
        name,
        table,
        grain,
        level,
        order,
        first_sequence: 0,
        rows: groups().map(|group| group.rows).sum(),
        bytes: footer.bytes,
        min_timestamp_ns: groups().map(|group| group.min_timestamp_ns).min()?,
        max_timestamp_ns: groups().map(|group| group.max_timestamp_ns).max()?,
        min_key: groups().map(|group| group.min_key.clone()).min()?,
        max_key: groups().map(|group| group.max_key.clone()).max()?,
        footer_offset: footer.offset,
        footer_crc32c: footer.crc32c,
    })
}

/// Reads the entry of a file that no manifest describes from its footer, and checks every row group.
///
/// # Errors
/// [`FileError::is_damage`] when the file is not whole; otherwise it could not be read now.
pub(crate) fn describe(path: &Path, name: &str, said: TableFileName) -> Result<FileRecord, FileError> {
    let io = |action, source| FileError::Io { action, path: path.to_owned(), source };
    let damaged = |what| FileError::Damaged { path: path.to_owned(), what };
    let file = open_file(path).map_err(|e| io("open", e))?;
    let bytes = file.metadata().map_err(|e| io("inspect", e))?.len();
    let table = parse(file, path, PageIndexPolicy::Optional).map_err(|error| match error {
        FileError::Parquet { .. } => damaged("its footer does not parse"),
        error => error,
    })?;
    let mut offset = 0;
    for (group, facts) in table.row_groups.iter().enumerate() {
        let rows = table.metadata.metadata().row_group(group).num_rows();
        if facts.offset != offset || u64::try_from(rows) != Ok(facts.rows) {
            return Err(damaged("its row groups are not those described"));
        }
        table.verify(group)?;
        offset += facts.len;
    }
    let len = bytes.checked_sub(offset).and_then(|len| usize::try_from(len).ok());
    let mut footer = vec![0; len.ok_or_else(|| damaged("its footer is outside"))?];
    let handle = table.handle().map_err(|e| io("open", e))?;
    handle.read_exact_at(&mut footer, offset).map_err(|e| io("read", e))?;
    let footer = Footer { offset, bytes, crc32c: crc32c::crc32c(&footer) };
    record(name.to_owned(), said, &table.row_groups, footer).ok_or_else(|| damaged(NO_ROWS))
}
