//! Checksums of the files of a recording. The library that writes Parquet makes none.
//!
//! ```text
//! file      = "PAR1" | row group … | checksums | metadata | metadata_len u32 | "PAR1"    integers little-endian
//! checksums = group … | groups u32 | crc32 u32 | "gpuvsums"
//! group     = crc32 u32 | bytes u64                    one a row group; the first row group begins at byte 4
//! ```
//!
//! `crc32` of a group is that of its bytes; the last one is that of all that is behind the row groups but itself. It is the
//! CRC-32 of zlib, because Python has that. A reader of Parquet begins with the metadata, and never sees the checksums. A program
//! that writes the rows anew leaves them out, so none ever belongs to other bytes. A file without them is read as it is.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use flate2::Crc;
use gpuvitals_log::Fresh;
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;

use crate::error::RecordError;
use crate::layout::properties;

/// First and last bytes of Parquet.
const MAGIC: [u8; 4] = *b"PAR1";
/// Last bytes of the checksums.
const TAG: [u8; 8] = *b"gpuvsums";
/// Bytes of a group.
const GROUP_LEN: usize = 12;
/// Bytes of the number of groups, and of a checksum.
const WORD_LEN: usize = 4;
/// Bytes behind the groups: their number, a checksum and the tag.
const HEAD_LEN: u64 = 16;
/// Bytes behind the metadata: its length, and the last ones of Parquet.
const TAIL_LEN: u64 = 8;
/// Bytes that are compared together.
const BLOCK_LEN: usize = 64 << 10;

/// Checksum and length of a row group.
#[derive(Debug, Clone, Copy)]
struct GroupSum {
    crc32: u32,
    bytes: u64,
}

impl GroupSum {
    fn of_bytes(group: &[u8; GROUP_LEN]) -> Self {
        let [a, b, c, d, bytes @ ..] = *group;
        Self { crc32: u32::from_le_bytes([a, b, c, d]), bytes: u64::from_le_bytes(bytes) }
    }
}

/// Writes a file of a recording with its checksums.
#[derive(Debug)]
pub(crate) struct SummedWriter {
    path: PathBuf,
    writer: ArrowWriter<Summed>,
    groups: Vec<GroupSum>,
}

impl SummedWriter {
    /// Begins a file with these columns, whose footer says `facts`.
    pub(crate) fn begin(
        fresh: &Fresh,
        schema: &SchemaRef,
        facts: Vec<KeyValue>,
    ) -> Result<Self, RecordError> {
        let path = fresh.path().to_owned();
        let file = fresh.file().try_clone().map_err(RecordError::io("create", &path))?;
        let output = Summed { file, crc: Crc::new(), bytes: 0, end: None };
        let writer = ArrowWriter::try_new(output, Arc::clone(schema), Some(properties(schema, facts)))
            .map_err(|source| RecordError::Parquet { path: path.clone(), source })?;
        let mut begun = Self { path, writer, groups: Vec::new() };
        // The first bytes of Parquet are of no row group.
        begun.take_sum()?;
        Ok(begun)
    }

    /// Adds rows to the row group.
    pub(crate) fn write(&mut self, rows: &RecordBatch) -> Result<(), RecordError> {
        self.writer.write(rows).map_err(|source| self.broken(source))
    }

    /// Rows of the row group so far.
    pub(crate) fn group_rows(&self) -> usize {
        self.writer.in_progress_rows()
    }

    /// Writes the row group, if it has rows. The next rows are in another.
    pub(crate) fn end_group(&mut self) -> Result<(), RecordError> {
        if self.group_rows() == 0 {
            return Ok(());
        }
        self.writer.flush().map_err(|source| self.broken(source))?;
        let sum = self.take_sum()?;
        self.groups.push(sum);
        Ok(())
    }

    /// Adds a pair to the footer.
    pub(crate) fn add_fact(&mut self, fact: KeyValue) {
        self.writer.append_key_value_metadata(fact);
    }

    /// Writes the last row group, the checksums and the footer.
    pub(crate) fn close(mut self) -> Result<(), RecordError> {
        self.end_group()?;
        let mut sums: Vec<u8> = Vec::new();
        for GroupSum { crc32, bytes } in &self.groups {
            sums.extend(crc32.to_le_bytes());
            sums.extend(bytes.to_le_bytes());
        }
        let groups = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        sums.extend(groups.to_le_bytes());
        let crc_at = sums.len();
        sums.extend([0; WORD_LEN]);
        sums.extend(TAG);
        // Kept in memory, since its checksum comes before what it is of.
        self.writer.inner_mut().end = Some(Vec::new());
        // Through the writer, which counts where in the file it is.
        self.writer.write_all(&sums).map_err(RecordError::io("write", &self.path))?;
        self.writer.finish().map_err(|source| self.broken(source))?;
        let output = self.writer.inner_mut();
        let mut end = output.end.take().unwrap_or_default();
        let mut crc = Crc::new();
        crc.update(end.get(..crc_at).unwrap_or_default());
        crc.update(end.get(crc_at + WORD_LEN..).unwrap_or_default());
        let place = end.iter_mut().skip(crc_at);
        place.zip(crc.sum().to_le_bytes()).for_each(|(place, byte)| *place = byte);
        output.file.write_all(&end).map_err(RecordError::io("write", &self.path))
    }

    /// Checksum and number of the bytes since the last call.
    fn take_sum(&mut self) -> Result<GroupSum, RecordError> {
        self.writer.sync().map_err(RecordError::io("write", &self.path))?;
        let output = self.writer.inner_mut();
        let sum = GroupSum { crc32: output.crc.sum(), bytes: output.bytes };
        (output.crc, output.bytes) = (Crc::new(), 0);
        Ok(sum)
    }

    fn broken(&self, source: ParquetError) -> RecordError {
        RecordError::Parquet { path: self.path.clone(), source }
    }
}

/// A file that sums what is written to it.
#[derive(Debug)]
struct Summed {
    file: File,
    /// Of the bytes since it was last taken, and their number.
    crc: Crc,
    bytes: u64,
    /// What is behind the row groups, as far as it is there; none: those are being written.
    end: Option<Vec<u8>>,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(end) = &mut self.end {
            end.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        let written = self.file.write(bytes)?;
        self.crc.update(bytes.get(..written).unwrap_or_default());
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The checksums of a file's row groups in their order; none of a file that an earlier version or another program has written.
#[derive(Debug)]
pub(crate) struct Checksums(Vec<GroupSum>);

impl Checksums {
    /// Reads those of a file.
    ///
    /// # Errors
    /// If what is behind the row groups has changed since it was written, or cannot be read.
    pub(crate) fn read(file: &File, path: &Path) -> Result<Self, RecordError> {
        let unread = |source| RecordError::Io { action: "read", path: path.to_owned(), source };
        let damaged = || RecordError::Damaged { path: path.to_owned(), row_group: None };
        let len = file.metadata().map_err(unread)?.len();
        let Some(head) = Head::find(file, len).map_err(unread)? else { return Ok(Self(Vec::new())) };
        let groups_len = u64::from(head.groups) * GROUP_LEN as u64;
        let groups_at = head.at.checked_sub(groups_len).ok_or_else(damaged)?;
        let crc_at = head.at + WORD_LEN as u64;
        let mut crc = Crc::new();
        add(&mut crc, file, groups_at..crc_at).map_err(unread)?;
        add(&mut crc, file, crc_at + WORD_LEN as u64..len).map_err(unread)?;
        if crc.sum() != head.crc32 {
            return Err(damaged());
        }
        let mut groups = vec![0; usize::try_from(groups_len).unwrap_or_default()];
        file.read_exact_at(&mut groups, groups_at).map_err(unread)?;
        let (groups, _) = groups.as_chunks::<GROUP_LEN>();
        Ok(Self(groups.iter().map(GroupSum::of_bytes).collect()))
    }

    /// Compares them with the row groups.
    ///
    /// # Errors
    /// If one has changed since it was written, or cannot be read.
    pub(crate) fn verify(&self, file: &File, path: &Path) -> Result<(), RecordError> {
        let mut at = MAGIC.len() as u64;
        for (number, group) in self.0.iter().enumerate() {
            let end = at.saturating_add(group.bytes);
            let mut crc = Crc::new();
            add(&mut crc, file, at..end).map_err(RecordError::io("read", path))?;
            if crc.sum() != group.crc32 {
                return Err(RecordError::Damaged { path: path.to_owned(), row_group: Some(number) });
            }
            at = end;
        }
        Ok(())
    }
}

/// What is behind the groups of a file's checksums.
struct Head {
    at: u64,
    groups: u32,
    crc32: u32,
}

impl Head {
    /// Of a file of this length; none if it has no checksums.
    fn find(file: &File, len: u64) -> io::Result<Option<Self>> {
        let Some(tail_at) = len.checked_sub(TAIL_LEN) else { return Ok(None) };
        let metadata_len = u32::from_le_bytes(read(file, tail_at)?);
        let is_parquet = read::<4>(file, tail_at + WORD_LEN as u64)? == MAGIC;
        let at = tail_at.checked_sub(u64::from(metadata_len) + HEAD_LEN);
        let Some(at) = at.filter(|_| is_parquet) else { return Ok(None) };
        let groups = u32::from_le_bytes(read(file, at)?);
        let crc32 = u32::from_le_bytes(read(file, at + WORD_LEN as u64)?);
        let has_sums = read::<8>(file, at + 2 * WORD_LEN as u64)? == TAG;
        Ok(has_sums.then_some(Self { at, groups, crc32 }))
    }
}

fn read<const LEN: usize>(file: &File, at: u64) -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// Adds the bytes of a range to a checksum.
fn add(crc: &mut Crc, file: &File, range: Range<u64>) -> io::Result<()> {
    let (mut block, mut at) = (vec![0; BLOCK_LEN], range.start);
    while at < range.end {
        // Only the last one is shorter.
        block.truncate(usize::try_from(range.end - at).unwrap_or(BLOCK_LEN));
        file.read_exact_at(&mut block, at)?;
        crc.update(&block);
        at += block.len() as u64;
    }
    Ok(())
}
