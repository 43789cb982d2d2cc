//! A row group, read. Pages are unpacked here, by one context a thread: Parquet makes a compressor and a decompressor for
//! every column that it reads, which takes longer than unpacking the few pages of a small question.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReader, RowGroups, RowSelection};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels};
use parquet::basic::Compression;
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::{ChunkReader, SerializedPageReader};
use zstd::bulk::Decompressor;

/// Most bytes of a page. A writer of ours begins another one long before.
const PAGE_LEN_MAX: u64 = 1 << 30;

/// What is read of a row group.
pub(crate) struct GroupPart {
    pub(crate) row_group: usize,
    pub(crate) columns: ProjectionMask,
    /// Some of its rows; none: all of them.
    pub(crate) rows: Option<RowSelection>,
}

/// The rows of a part of a row group, in batches.
///
/// # Errors
/// If the metadata does not fit together, or a page cannot be read.
pub(crate) fn read_group<R: ChunkReader + 'static>(
    input: R,
    metadata: &ArrowReaderMetadata,
    part: GroupPart,
    batch_rows: usize,
) -> Result<ParquetRecordBatchReader> {
    let GroupPart { row_group: number, columns, rows } = part;
    let fields = Some(metadata.schema().fields());
    let levels = parquet_to_arrow_field_levels(metadata.parquet_schema(), columns, fields)?;
    let one = Group { input: Arc::new(input), metadata: Arc::clone(metadata.metadata()), number };
    let batch_rows = batch_rows.clamp(1, one.num_rows().max(1));
    ParquetRecordBatchReader::try_new_with_row_groups(&levels, &one, batch_rows, rows)
}

/// One row group of a file.
struct Group<R> {
    input: Arc<R>,
    metadata: Arc<ParquetMetaData>,
    number: usize,
}

impl<R: ChunkReader + 'static> RowGroups for Group<R> {
    fn num_rows(&self) -> usize {
        usize::try_from(self.metadata.row_group(self.number).num_rows()).unwrap_or_default()
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        let chunk = self.metadata.row_group(self.number).column(column);
        let locations = self.metadata.page_index_for_row_group(self.number).page_locations(column).cloned();
        let is_packed = matches!(chunk.compression(), Compression::ZSTD(_));
        let input = Arc::clone(&self.input);
        let pages = if is_packed {
            // So it hands pages over as they are stored.
            let bare = chunk.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
            SerializedPageReader::new(input, &bare, self.num_rows(), locations)?
        } else {
            SerializedPageReader::new(input, chunk, self.num_rows(), locations)?
        };
        Ok(Box::new(Chunk(Some(Pages { pages, is_packed }))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(std::iter::once(self.metadata.row_group(self.number)))
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The pages of the one row group's column.
struct Chunk<R: ChunkReader>(Option<Pages<R>>);

impl<R: ChunkReader + 'static> Iterator for Chunk<R> {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(|pages| Ok(Box::new(pages) as Box<dyn PageReader>))
    }
}

impl<R: ChunkReader + 'static> PageIterator for Chunk<R> {}

/// Pages as they are stored, and unpacked.
struct Pages<R: ChunkReader> {
    pages: SerializedPageReader<R>,
    is_packed: bool,
}

impl<R: ChunkReader> Pages<R> {
    fn whole(&self, page: Option<Page>) -> Result<Option<Page>> {
        page.map(|page| if self.is_packed { unpacked(page) } else { Ok(page) }).transpose()
    }
}

impl<R: ChunkReader> Iterator for Pages<R> {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl<R: ChunkReader> PageReader for Pages<R> {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        self.whole(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.pages.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>> {
        let page = self.pages.take_deferred_dictionary()?;
        self.whole(page)
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

/// A page with its values unpacked. Levels of the second version are never packed.
fn unpacked(mut page: Page) -> Result<Page> {
    match &mut page {
        Page::DataPage { buf, .. } | Page::DictionaryPage { buf, .. } => *buf = unpack(buf, 0)?,
        Page::DataPageV2 { buf, is_compressed: true, def_levels_byte_len, rep_levels_byte_len, .. } => {
            let levels = def_levels_byte_len.saturating_add(*rep_levels_byte_len);
            *buf = unpack(buf, levels as usize)?;
        }
        Page::DataPageV2 { .. } => {}
    }
    Ok(page)
}

/// Bytes whose first `levels` are not packed.
fn unpack(bytes: &Bytes, levels: usize) -> Result<Bytes> {
    thread_local! {
        static UNPACKER: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    let damaged = || ParquetError::General("a page does not say how long it is".to_owned());
    let (levels, packed) = bytes.split_at_checked(levels).ok_or_else(damaged)?;
    // A page without values has none to unpack.
    if packed.is_empty() {
        return Ok(bytes.clone());
    }
    let len = zstd::zstd_safe::get_frame_content_size(packed).ok().flatten();
    let len = len.filter(|len| *len <= PAGE_LEN_MAX).ok_or_else(damaged)?;
    let len = usize::try_from(len).map_err(|_| damaged())?;
    let mut whole = Vec::with_capacity(levels.len() + len);
    whole.extend_from_slice(levels);
    UNPACKER.with_borrow_mut(|unpacker| -> io::Result<()> {
        let unpacker = match unpacker {
            Some(unpacker) => unpacker,
            none => none.insert(Decompressor::new()?),
        };
        let mut rest = io::Cursor::new(&mut whole);
        rest.set_position(levels.len() as u64);
        unpacker.decompress_to_buffer(packed, &mut rest)?;
        Ok(())
    })?;
    if whole.len() != levels.len() + len {
        return Err(damaged());
    }
    Ok(whole.into())
}
