//! Bytes of a file for Parquet, checked.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use super::files::OpenFile;
use crate::file::FileError;

/// Reads at offsets. (Parquet's own reader of files moves a position that all handles of a file share, and so
/// must not be used by two threads.) Known ranges are read ahead in large pieces.
#[derive(Debug)]
pub(crate) struct Section {
    file: Arc<OpenFile>,
    ahead: Vec<(u64, Bytes)>,
}

impl Section {
    /// Reads the ranges ahead, joined where they touch.
    ///
    /// # Errors
    /// If the file cannot be read there, or is damaged there.
    pub(crate) fn new(
        file: &Arc<OpenFile>,
        mut ahead: Vec<Range<u64>>,
    ) -> std::result::Result<Self, FileError> {
        ahead.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in ahead {
            match joined.last_mut() {
                Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
                _ => joined.push(range),
            }
        }
        let mut pieces = Vec::with_capacity(joined.len());
        for range in joined {
            pieces.push((range.start, file.read(range)?));
        }
        Ok(Self { file: Arc::clone(file), ahead: pieces })
    }
}

/// Bytes for Parquet, whose errors are only words: damage is noted beside them.
fn read(file: &OpenFile, bytes: Range<u64>) -> io::Result<Bytes> {
    file.read(bytes).map_err(|error| match error {
        FileError::Io { source, .. } if source.kind() != io::ErrorKind::UnexpectedEof => source,
        error => {
            let words = io::Error::other(error.to_string());
            file.note(error);
            words
        }
    })
}

impl Length for Section {
    fn len(&self) -> u64 {
        self.file.table.data_len()
    }
}

/// Reads on from an offset.
#[derive(Debug)]
pub(crate) struct From {
    file: Arc<OpenFile>,
    offset: u64,
}

impl io::Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.file.table.data_len().min(self.offset.saturating_add(buffer.len() as u64));
        let bytes = if self.offset < end { read(&self.file, self.offset..end)? } else { Bytes::new() };
        if let Some(place) = buffer.get_mut(..bytes.len()) {
            place.copy_from_slice(&bytes);
        }
        self.offset += bytes.len() as u64;
        Ok(bytes.len())
    }
}

impl ChunkReader for Section {
    type T = io::BufReader<From>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(io::BufReader::new(From { file: Arc::clone(&self.file), offset: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        for (offset, bytes) in &self.ahead {
            let from = start.checked_sub(*offset).and_then(|from| usize::try_from(from).ok());
            if let Some(from) = from
                && from.checked_add(length).is_some_and(|to| to <= bytes.len())
            {
                return Ok(bytes.slice(from..from + length));
            }
        }
        let bytes = start..start.saturating_add(length as u64);
        read(&self.file, bytes).map_err(|e| ParquetError::External(Box::new(e)))
    }
}
