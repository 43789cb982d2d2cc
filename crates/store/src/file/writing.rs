//! Writing a table file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use gpuvitals_core::Table;
use gpuvitals_core::merge::{Merge, MergeError};
use gpuvitals_log::{Fresh, make_directory};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;

use super::columns::properties;
use super::describe::{Footer, NO_ROWS, record};
use super::error::FileError;
use super::facts::{BLOCK_BYTES, BLOCKS_KEY, ROW_GROUPS_KEY, RowGroupFacts};
use super::group_writer::GroupWriter;
use crate::config::StoreConfig;
use crate::directory;
use crate::error::StoreError;
use crate::grain::{Grain, has_figures};
use crate::inventory::TableFileName;
use crate::manifest::{FileRecord, Span};
use crate::step::{FileStep, FileSteps};
use crate::tail;

/// Counts and checksums the bytes written to a file.
struct Summed<'a> {
    file: File,
    path: PathBuf,
    steps: &'a FileSteps,
    offset: u64,
    /// Of the bytes since the last block that is whole.
    crc32c: u32,
    /// Of each block.
    blocks: Vec<u32>,
    /// What follows is the footer, which is under one checksum.
    in_footer: bool,
}

impl Summed<'_> {
    /// Ends the last block, however long, and begins the footer.
    fn begin_footer(&mut self) {
        if !self.offset.is_multiple_of(BLOCK_BYTES) {
            self.blocks.push(std::mem::take(&mut self.crc32c));
        }
        self.in_footer = true;
    }
}

impl Write for Summed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // No further than to the end of a block; the caller writes the rest next.
        let room = usize::try_from(BLOCK_BYTES - self.offset % BLOCK_BYTES).unwrap_or(usize::MAX);
        self.steps.take(FileStep::Write, &self.path)?;
        let written = self.file.write(bytes.get(..room).unwrap_or(bytes))?;
        self.crc32c = crc32c::crc32c_append(self.crc32c, bytes.get(..written).unwrap_or_default());
        self.offset += written as u64;
        if self.offset.is_multiple_of(BLOCK_BYTES) && written > 0 && !self.in_footer {
            self.blocks.push(std::mem::take(&mut self.crc32c));
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The destination of a file of the store.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) root: PathBuf,
    /// Table of the rows.
    pub(crate) table: Table,
    /// How fine they are.
    pub(crate) grain: Grain,
    /// 0, or that of the span.
    pub(crate) level: u8,
    /// Its number, never given twice: so no file is ever written over.
    pub(crate) number: u64,
    /// The time that all rows have.
    pub(crate) span: Span,
    /// First log record that its rows may come from; 0: not known.
    pub(crate) first_sequence: u64,
}

impl Place {
    /// `raw/gpu_events/2026-11-20/10h-L0-42.parquet` or `1m/gpu_events/2026-11-20/day-L2-43.parquet`
    pub(crate) fn name(&self) -> String {
        let time = gpuvitals_core::time::format(self.span.day().start_ns());
        let date = time.split_once('T').map_or(time.as_str(), |(date, _)| date);
        let span = match self.span {
            Span::Day(_) => "day".to_owned(),
            Span::Hour(hour) => format!("{:02}h", hour.rem_euclid(24)),
        };
        let Self { table, grain, level, number, .. } = self;
        format!("{}/{table}/{date}/{span}-L{level}-{number}.parquet", grain.name())
    }
}

/// Rows that are gathered before they are encoded: a megabyte or two.
const PIECE_ROWS: usize = 1 << 14;

/// Most rows of a row group of a rollup, and bytes of them after which it ends earlier: they wait until all are there, and a merge
/// writes several rollups at once. The piece that brings them there may be as large again.
const ROLLUP_GROUP_ROWS: usize = 1 << 14;
const WAITING_BYTES_MAX: usize = 24 << 20;

/// Rows in the order of files: by GPU, then time.
pub(crate) struct Sorted<'a> {
    /// Number of the rows.
    pub(crate) len: usize,
    /// The GPUs or hosts by key, and the first row of each.
    pub(crate) gpus: &'a [(Arc<str>, usize)],
    /// All columns of some of them.
    pub(crate) batch: &'a dyn Fn(Range<usize>) -> Result<RecordBatch, MergeError>,
}

impl Sorted<'_> {
    /// The result of a merge, to be used.
    pub(crate) fn merged<T>(plan: &Merge, used: impl FnOnce(&Sorted<'_>) -> T) -> T {
        used(&Sorted { len: plan.rows(), gpus: &plan.gpus(), batch: &|rows| plan.batch(rows) })
    }
}

/// A table file being written. Dropped before [`TableWriter::finish`], it leaves nothing behind.
pub(crate) struct TableWriter<'a> {
    place: Place,
    name: String,
    steps: &'a FileSteps,
    fresh: Fresh,
    writer: GroupWriter<Summed<'a>>,
    config: &'a StoreConfig,
    /// Those that are whole.
    groups: Vec<RowGroupFacts>,
    /// The one that is being written, if it has rows, and how many GPUs are in it.
    open: Option<RowGroupFacts>,
    gpus: usize,
}

impl<'a> TableWriter<'a> {
    /// Begins a file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn create(
        place: Place,
        schema: SchemaRef,
        config: &'a StoreConfig,
        steps: &'a FileSteps,
    ) -> Result<Self, FileError> {
        let properties = properties((place.table, place.grain, place.level), &schema, config.page_rows);
        let name = place.name();
        let target = place.root.join(&name);
        let path = target.with_extension("tmp");
        let io = |source| FileError::Io { action: "create", path: path.clone(), source };
        steps.take(FileStep::Create, &path).map_err(io)?;
        if let Some(day) = path.parent() {
            make_directory(day).map_err(io)?;
        }
        let fresh = Fresh::create_private(&target, path.clone()).map_err(io)?;
        let file = fresh.file().try_clone().map_err(io)?;
        // Of the hundreds of columns of a rollup the types of Parquet say enough, and take less room.
        let options = ArrowWriterOptions::new()
            .with_properties(properties)
            .with_skip_arrow_metadata(place.grain != Grain::Raw && has_figures(place.table));
        let summed = Summed {
            file,
            path: path.clone(),
            steps,
            offset: 0,
            crc32c: 0,
            blocks: Vec::new(),
            in_footer: false,
        };
        let begun = ArrowWriter::try_new_with_options(summed, Arc::clone(&schema), options);
        let writer = begun.and_then(|writer| match place.grain {
            Grain::Raw => Ok(GroupWriter::Rows(writer)),
            _ => GroupWriter::by_column(writer, schema),
        });
        let writer = writer.map_err(|error| FileError::parquet("begin", &path, error))?;
        Ok(Self { place, name, steps, fresh, writer, config, groups: Vec::new(), open: None, gpus: 0 })
    }

    fn parquet(&self, action: &'static str) -> impl FnOnce(ParquetError) -> FileError + use<> {
        let path = self.fresh.path().to_owned();
        move |error| FileError::parquet(action, &path, error)
    }

    fn io(&self, action: &'static str) -> impl FnOnce(io::Error) -> FileError + use<> {
        let path = self.fresh.path().to_owned();
        move |source| FileError::Io { action, path, source }
    }

    /// Adds merged rows of GPUs that come after all earlier ones. A row group has whole GPUs, unless one alone has too
    /// many rows, and at least a page: what a file says of each column of a group takes as much room as some hundred values.
    ///
    /// # Errors
    /// If the disk or Parquet refuses, or columns do not fit together.
    pub(crate) fn write(&mut self, rows: &Sorted<'_>) -> Result<(), StoreError> {
        let most =
            if self.place.grain == Grain::Raw { self.config.row_group_gpus.max(1) } else { usize::MAX };
        let mut from = 0;
        for (_, start) in rows.gpus {
            let open = self.open.as_ref().map_or(0, |open| usize::try_from(open.rows).unwrap_or(usize::MAX));
            if self.gpus >= most && open.saturating_add(start - from) >= self.config.page_rows {
                self.add(rows, from..*start)?;
                self.end_group()?;
                from = *start;
            }
            self.gpus += 1;
        }
        self.add(rows, from..rows.len)
    }

    fn add(&mut self, sorted: &Sorted<'_>, rows: Range<usize>) -> Result<(), StoreError> {
        let gpus = sorted.gpus;
        let key = |row: usize| {
            let gpu = gpus.partition_point(|(_, start)| *start <= row).saturating_sub(1);
            gpus.get(gpu).map_or("", |(key, _)| key)
        };
        let group_rows = match self.place.grain {
            Grain::Raw => self.config.row_group_rows.max(1),
            _ => ROLLUP_GROUP_ROWS,
        };
        let mut start = rows.start;
        while start < rows.end {
            let offset = self.end_of_groups();
            let open = self.open.get_or_insert_with(|| RowGroupFacts {
                offset,
                len: 0,
                rows: 0,
                min_key: key(start).to_owned(),
                max_key: String::new(),
                min_timestamp_ns: i64::MAX,
                max_timestamp_ns: i64::MIN,
            });
            let room = group_rows.saturating_sub(usize::try_from(open.rows).unwrap_or(usize::MAX)).max(1);
            let end = rows.end.min(start.saturating_add(room.min(PIECE_ROWS)));
            let piece = (sorted.batch)(start..end)?;
            let (min, max) = tail::span(&piece);
            key(end - 1).clone_into(&mut open.max_key);
            open.rows += piece.num_rows() as u64;
            open.min_timestamp_ns = open.min_timestamp_ns.min(min);
            open.max_timestamp_ns = open.max_timestamp_ns.max(max);
            let is_full = open.rows >= group_rows as u64;
            self.writer.write(&piece).map_err(self.parquet("write"))?;
            if is_full || self.writer.waiting_bytes() >= WAITING_BYTES_MAX {
                self.end_group()?;
            }
            start = end;
        }
        Ok(())
    }

    /// First byte after the row groups that are whole. The magic number at the front is part of the first one's range.
    fn end_of_groups(&self) -> u64 {
        self.groups.last().map_or(0, |last| last.offset + last.len)
    }

    /// Bytes of the row groups that are whole.
    pub(crate) fn bytes(&self) -> u64 {
        self.end_of_groups()
    }

    fn end_group(&mut self) -> Result<(), FileError> {
        self.gpus = 0;
        let Some(mut open) = self.open.take() else { return Ok(()) };
        self.writer.end_group().map_err(self.parquet("write"))?;
        self.writer.sync().map_err(self.io("write"))?;
        open.len = self.writer.inner().offset - open.offset;
        self.groups.push(open);
        Ok(())
    }

    /// Ends the file, makes it durable and gives it its name.
    ///
    /// # Errors
    /// If the disk or Parquet refuses; then the file does not exist.
    pub(crate) fn finish(mut self) -> Result<FileRecord, FileError> {
        self.end_group()?;
        let footer_offset = self.end_of_groups();
        self.writer.inner_mut().begin_footer();
        let blocks = &self.writer.inner().blocks;
        let facts = serde_json::to_string(&self.groups)
            .and_then(|groups| Ok((groups, serde_json::to_string(blocks)?)));
        let (groups, blocks) = facts.map_err(io::Error::other).map_err(self.io("describe"))?;
        for (key, value) in [(ROW_GROUPS_KEY, groups), (BLOCKS_KEY, blocks)] {
            self.writer.append_key_value_metadata(KeyValue::new(key.to_owned(), value));
        }
        let finished = self.writer.finish();
        finished.map_err(self.parquet("end"))?;
        self.writer.sync().map_err(self.io("write"))?;
        let summed = self.writer.inner();
        let footer = Footer { offset: footer_offset, bytes: summed.offset, crc32c: summed.crc32c };
        let Place { table, grain, level, number, first_sequence, .. } = self.place;
        let said = TableFileName { table, grain, level, number };
        let record = record(self.name.clone(), said, &self.groups, footer)
            .map(|record| FileRecord { first_sequence, ..record })
            .ok_or_else(|| FileError::Damaged { path: self.fresh.path().to_owned(), what: NO_ROWS })?;
        let path = self.place.root.join(&self.name);
        let failed = self.io("put in place");
        directory::put(self.fresh, &path, self.steps, FileStep::Rename).map_err(failed)?;
        Ok(record)
    }
}

/// Removes files that were finished but will not be listed after all.
pub(crate) fn discard_all<'a>(root: &Path, records: impl IntoIterator<Item = &'a FileRecord>) {
    for record in records {
        // The next start moves a file that stays to quarantine, since no manifest names it.
        let _removed = fs::remove_file(root.join(&record.name));
    }
}
