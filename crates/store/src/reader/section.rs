//! Bytes of a file for Parquet.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};

use super::files::OpenFile;

/// Reads at offsets. (Parquet's own reader of files moves a position that all handles of a file share, and so
/// must not be used by two threads.) Known ranges are read ahead in large pieces.
#[derive(Debug)]
pub(crate) struct Section {
    file: Arc<File>,
    len: u64,
    ahead: Vec<(u64, Bytes)>,
}

impl Section {
    /// Reads the ranges ahead, joined where they touch.
    ///
    /// # Errors
    /// If the file cannot be read there.
    pub(crate) fn new(file: &OpenFile, mut ahead: Vec<Range<u64>>) -> io::Result<Self> {
        let file = file.table.handle()?;
        let len = file.metadata()?.len();
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
            pieces.push((range.start, read_at(&file, range.start, range.end - range.start)?));
        }
        Ok(Self { file, len, ahead: pieces })
    }
}

fn read_at(file: &File, start: u64, len: u64) -> io::Result<Bytes> {
    let len = usize::try_from(len).map_err(io::Error::other)?;
    let mut buffer = vec![0; len];
    file.read_exact_at(&mut buffer, start)?;
    Ok(buffer.into())
}

impl Length for Section {
    fn len(&self) -> u64 {
        self.len
    }
}

/// Reads on from an offset.
#[derive(Debug)]
pub(crate) struct From {
    file: Arc<File>,
    offset: u64,
}

impl io::Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
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
        read_at(&self.file, start, length as u64).map_err(|e| ParquetError::External(Box::new(e)))
    }
}
