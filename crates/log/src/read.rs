//! Reading single records back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::board::Board;
use crate::disk::{Disk, DiskFile, read_full};
use crate::error::LogError;
use crate::format::{HEADER_LEN, Header, Opening, RECORD_HEADER_LEN, decode_record, segment_name};
use crate::place::Place;
use crate::recovery::Record;

/// Files kept open. Readers advance, a few at a time: each is in one segment.
const OPEN_FILES_MAX: usize = 16;

/// A segment's file, and the start value of its records' checksums.
struct OpenSegment {
    file: Box<dyn DiskFile>,
    seed: u32,
}

/// Reads records by their place, on any thread, beside the writer.
pub(crate) struct Reader {
    disk: Arc<dyn Disk>,
    board: Arc<Board>,
    /// The most recently read last.
    open: Mutex<VecDeque<(u64, Arc<OpenSegment>)>>,
}

impl Reader {
    pub(crate) fn new(disk: Arc<dyn Disk>, board: Arc<Board>) -> Self {
        Self { disk, board, open: Mutex::default() }
    }

    pub(crate) fn read(&self, place: Place) -> Result<Record, LogError> {
        // Reading a file that is removed or recycled meanwhile fails in some way: the error to return is that
        // it is gone.
        let gone = || (!self.board.holds(place.segment())).then(|| gone(place));
        match gone() {
            Some(gone) => Err(gone),
            None => self.read_live(place).map_err(|error| gone().unwrap_or(error)),
        }
    }

    /// Closes a file that is no longer a segment. The board has been updated already.
    pub(crate) fn forget(&self, segment: u64) {
        self.lock().retain(|(base, _)| *base != segment);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(u64, Arc<OpenSegment>)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_live(&self, place: Place) -> Result<Record, LogError> {
        let damaged = || LogError::Damaged { file: segment_name(place.segment()), offset: place.offset() };
        let segment = self.open(place)?;
        let mut bytes = vec![0; RECORD_HEADER_LEN + place.payload_len()];
        let failed = |source| LogError::read("read a record of", &segment_name(place.segment()), source);
        read_full(&*segment.file, place.offset(), &mut bytes).map_err(failed)?;
        let found = decode_record(&bytes, 0, segment.seed).ok_or_else(damaged)?;
        if found.len != place.payload_len() {
            return Err(damaged());
        }
        let payload = Bytes::from(bytes).slice(found.payload());
        Ok(Record { sequence: found.sequence, kind: found.kind, place, payload })
    }

    fn open(&self, place: Place) -> Result<Arc<OpenSegment>, LogError> {
        let base = place.segment();
        let mut open = self.lock();
        if let Some(at) = open.iter().position(|(found, _)| *found == base)
            && let Some(entry) = open.remove(at)
        {
            let segment = Arc::clone(&entry.1);
            open.push_back(entry);
            return Ok(segment);
        }
        drop(open);
        let name = segment_name(base);
        let file = self.disk.open(&name).map_err(|source| LogError::read("open", &name, source))?;
        let mut header = [0; HEADER_LEN];
        let failed = |source| LogError::read("read header of", &name, source);
        read_full(&*file, 0, &mut header).map_err(failed)?;
        let seed = match Header::decode(&header) {
            Opening::Good(header) if header.base == base => header.seed(),
            _ => return Err(LogError::Damaged { file: name, offset: 0 }),
        };
        let segment = Arc::new(OpenSegment { file, seed });
        let mut open = self.lock();
        // Under the lock, so that the file of a removed segment is not kept open: `forget` comes after the
        // board.
        if !self.board.holds(base) {
            return Err(gone(place));
        }
        if open.iter().all(|(found, _)| *found != base) {
            if open.len() == OPEN_FILES_MAX {
                open.pop_front();
            }
            open.push_back((base, Arc::clone(&segment)));
        }
        Ok(segment)
    }
}

fn gone(place: Place) -> LogError {
    LogError::Gone { file: segment_name(place.segment()) }
}
