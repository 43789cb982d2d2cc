//! The journal of a part: rows since the last sealed part, record after record, nothing rewritten.
//!
//! ```text
//! journal = record …
//! record  = payload_len u32 | crc32(payload) u32 | payload                      integers little-endian
//! payload = a packed batch (`gpuvitals_core::wire::pack`), or the bytes of a mark
//! ```
//!
//! A record is written by one call, so a killed process leaves whole records and at most one torn one at the
//! end. Bytes after the first incomplete record are lost; their number is reported.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use flate2::Crc;
use gpuvitals_core::Batch;
use gpuvitals_core::wire::{BODY_LEN_MAX, ROWS_MAX, clock_and_frame, unpack};

use crate::error::RecordError;

/// Longest payload: a frame and the monotonic clock of its rows.
const PAYLOAD_LEN_MAX: usize = BODY_LEN_MAX + 8 * ROWS_MAX + 64;
/// Length and checksum before a payload.
const HEAD_LEN: usize = 8;

/// Appends records to one file.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    record: Vec<u8>,
    bytes: u64,
}

impl Journal {
    /// Begins an empty journal. None of that name may exist.
    pub(crate) fn create(path: PathBuf) -> Result<Self, RecordError> {
        let file = File::create_new(&path).map_err(RecordError::io("create", &path))?;
        Ok(Self { path, file, record: Vec::new(), bytes: 0 })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends one record; when this returns the kernel has it. On an error the journal is as it was.
    pub(crate) fn append(&mut self, payload: &[&[u8]]) -> Result<(), RecordError> {
        self.record.clear();
        self.record.extend_from_slice(&[0; HEAD_LEN]);
        for piece in payload {
            self.record.extend_from_slice(piece);
        }
        let mut crc = Crc::new();
        let body = self.record.get(HEAD_LEN..).unwrap_or_default();
        crc.update(body);
        let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        let head = len.to_le_bytes().into_iter().chain(crc.sum().to_le_bytes());
        self.record.iter_mut().zip(head).for_each(|(slot, byte)| *slot = byte);
        if let Err(source) = self.file.write_all(&self.record) {
            // A half-written record would hide later ones, if the disk accepts writes again.
            let _taken_back =
                self.file.set_len(self.bytes).and_then(|()| self.file.seek(SeekFrom::Start(self.bytes)));
            return Err(RecordError::Io { action: "write", path: self.path.clone(), source });
        }
        self.bytes += self.record.len() as u64;
        Ok(())
    }

    /// Appends a batch as one record; it is durable with the next sync.
    pub(crate) fn append_batch(&mut self, batch: &Batch) -> Result<(), RecordError> {
        let (clock, frame) = clock_and_frame(batch).map_err(RecordError::Batch)?;
        self.append(&[&clock, &frame])
    }
}

/// Reads the whole records of a journal one after the other.
#[derive(Debug)]
pub(crate) struct Records {
    path: PathBuf,
    input: BufReader<File>,
    payload: Vec<u8>,
    left: u64,
}

impl Records {
    /// Opens a journal as it is now.
    pub(crate) fn open(path: &Path) -> Result<Self, RecordError> {
        let file = File::open(path).map_err(RecordError::io("open", path))?;
        let left = file.metadata().map_err(RecordError::io("open", path))?.len();
        Ok(Self { path: path.to_owned(), input: BufReader::new(file), payload: Vec::new(), left })
    }

    /// The next payload; none at the end, or if no whole record follows.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, RecordError> {
        let mut head = [0; HEAD_LEN];
        if self.left < head.len() as u64 {
            return Ok(None);
        }
        self.input.read_exact(&mut head).map_err(RecordError::io("read", &self.path))?;
        let [a, b, c, d, crc @ ..] = head;
        let (len, crc) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(crc));
        let after = self.left - head.len() as u64;
        if len == 0 || len as usize > PAYLOAD_LEN_MAX || u64::from(len) > after {
            return Ok(None);
        }
        self.payload.resize(len as usize, 0);
        self.input.read_exact(&mut self.payload).map_err(RecordError::io("read", &self.path))?;
        let mut sum = Crc::new();
        sum.update(&self.payload);
        if sum.sum() != crc {
            return Ok(None);
        }
        self.left = after - u64::from(len);
        Ok(Some(&self.payload))
    }

    /// Bytes after the last whole record that was read.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }
}

/// The batches of a journal, in the order they were written.
#[derive(Debug)]
pub(crate) struct Batches(Records);

impl Batches {
    /// Opens a journal as it is now.
    pub(crate) fn open(path: &Path) -> Result<Self, RecordError> {
        Records::open(path).map(Self)
    }

    /// The next batch; none at the end, or if no whole record follows.
    pub(crate) fn next(&mut self) -> Result<Option<Batch>, RecordError> {
        let path = self.0.path.clone();
        match self.0.next()? {
            None => Ok(None),
            // Its checksum is right, so it was written like this: a bug or another version, not a torn tail.
            Some(payload) => {
                unpack(payload).map(Some).map_err(|source| RecordError::Journal { path, source })
            }
        }
    }

    /// Bytes after the last whole record that was read.
    pub(crate) fn left(&self) -> u64 {
        self.0.left()
    }
}

#[cfg(test)]
mod tests {
    use gpuvitals_core::batch::Value;
    use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table};

    use super::*;

    fn sample(first: i64, rows: i64) -> Batch {
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let id = builder.intern(&Identity::default().with(IdentityColumn::Uuid, "GPU-1").unwrap());
        for n in first..first + rows {
            let row = builder.row_at(n * 1_000_000, n * 1_000_000 + 17, id);
            builder.set(row, MetricId::of("power_w"), Value::Int(300 + n % 7)).unwrap();
        }
        builder.finish(Origin { node: "n1".into(), started_ns: 5 }, 1).unwrap()
    }

    fn written(dir: &Path, counts: &[i64]) -> (PathBuf, Vec<u64>) {
        let mut journal = Journal::create(dir.join("x.rows")).unwrap();
        let (mut first, mut ends) = (0, vec![0]);
        for &rows in counts {
            journal.append_batch(&sample(first, rows)).unwrap();
            first += rows;
            ends.push(journal.bytes());
        }
        (journal.path, ends)
    }

    fn read(path: &Path) -> (Vec<(i64, i64)>, u64) {
        let mut batches = Batches::open(path).unwrap();
        let mut rows = Vec::new();
        while let Some(batch) = batches.next().unwrap() {
            rows.extend(batch.timestamps().iter().copied().zip(batch.monotonic().unwrap().iter().copied()));
        }
        (rows, batches.left())
    }

    #[test]
    fn cut_at_any_byte_it_gives_back_the_records_before_the_cut() {
        let dir = tempfile::tempdir().unwrap();
        let counts = [3, 1, 12, 5];
        let (path, ends) = written(dir.path(), &counts);
        let whole = std::fs::read(&path).unwrap();
        let cut = dir.path().join("cut.rows");
        for len in 0..=whole.len() {
            std::fs::write(&cut, &whole[..len]).unwrap();
            let records = ends.iter().filter(|&&end| end <= len as u64).count() - 1;
            let rows: i64 = counts[..records].iter().sum();
            let wanted: Vec<_> = (0..rows).map(|n| (n * 1_000_000, n * 1_000_000 + 17)).collect();
            assert_eq!(read(&cut), (wanted, len as u64 - ends[records]), "cut at {len}");
        }
    }

    #[test]
    fn a_flipped_byte_costs_its_record_and_what_follows() {
        let dir = tempfile::tempdir().unwrap();
        let (path, ends) = written(dir.path(), &[4, 4, 4]);
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(7) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            std::fs::write(&path, &bytes).unwrap();
            let hit = ends.iter().filter(|&&end| end <= at as u64).count() - 1;
            assert_eq!(read(&path).0.len(), hit * 4, "byte {at}");
        }
    }

    #[test]
    fn zeros_at_the_end_as_a_power_cut_leaves_them_are_no_records() {
        let dir = tempfile::tempdir().unwrap();
        let (path, _) = written(dir.path(), &[2]);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.resize(bytes.len() + 4096, 0);
        std::fs::write(&path, &bytes).unwrap();
        let (rows, left) = read(&path);
        assert_eq!((rows.len(), left), (2, 4096));
    }
}
