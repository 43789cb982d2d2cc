//! The thread between sampler and disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gpuvitals_core::{Batch, Table};

use super::journal::Journal;
use super::{RecordError, part};
use crate::sampler::Sampler;

/// Rows of a part: large enough that its share of the footer is small, small enough to be sealed in a second.
const PART_ROWS: u64 = 131_072;
/// Bytes of a part, should its rows be large.
const PART_LEN: u64 = 64 << 20;
/// How long to wait for a batch before checking whether to end.
const PATIENCE: Duration = Duration::from_millis(200);

/// The writer's counts so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) gpu_rows: AtomicU64,
    pub(super) system_rows: AtomicU64,
    /// Whether nothing will be written any more.
    pub(super) ended: AtomicBool,
}

/// Writes batches until the sampler is over and empty, or the disk refuses.
pub(super) struct Writer<W> {
    pub(super) sampler: Arc<Sampler>,
    /// Nothing will be sampled any more, though a worker may still be waiting.
    pub(super) last: Arc<AtomicBool>,
    pub(super) tally: Arc<Tally>,
    pub(super) tables: [Rolling; 2],
    pub(super) watch: W,
}

impl<W: FnMut(&Batch)> Writer<W> {
    pub(super) fn run(mut self) -> Result<(), RecordError> {
        let result = self.write_all();
        self.tally.ended.store(true, Ordering::Release);
        let [gpu, system] = self.tables;
        // Unsealed parts are still journals: the end tries again and reports.
        let _sealed = (gpu.settle(), system.settle());
        result
    }

    fn write_all(&mut self) -> Result<(), RecordError> {
        loop {
            // Read before the batch is: everything handed over until then is taken before this ends.
            let is_last = self.last.load(Ordering::Acquire) || self.sampler.is_over();
            let patience = if is_last { Duration::ZERO } else { PATIENCE };
            match self.sampler.next(patience) {
                Some(batch) => self.write(&batch)?,
                None if is_last => return Ok(()),
                None => {}
            }
        }
    }

    fn write(&mut self, batch: &Batch) -> Result<(), RecordError> {
        let [gpu, system] = &mut self.tables;
        let (table, rows) = match batch.table() {
            Table::GpuEvents => (gpu, &self.tally.gpu_rows),
            Table::SystemEvents => (system, &self.tally.system_rows),
            // A recording has these two tables.
            _ => return Ok(()),
        };
        table.write(batch)?;
        rows.fetch_add(batch.rows() as u64, Ordering::Relaxed);
        (self.watch)(batch);
        Ok(())
    }
}

/// The parts of one table: a journal that grows, and at most one that is being sealed beside it.
#[derive(Debug)]
pub(super) struct Rolling {
    unfinished: PathBuf,
    table: Table,
    number: u32,
    part_rows: u64,
    journal: Option<Journal>,
    rows: u64,
    sealing: Option<JoinHandle<Result<u64, RecordError>>>,
}

impl Rolling {
    /// No part yet. A part holds at most `part_rows` rows.
    pub(super) fn new(unfinished: PathBuf, table: Table, part_rows: Option<u64>) -> Self {
        let part_rows = part_rows.unwrap_or(PART_ROWS);
        Self { unfinished, table, number: 0, part_rows, journal: None, rows: 0, sealing: None }
    }

    /// Appends a batch to the journal; when this returns the kernel has it.
    fn write(&mut self, batch: &Batch) -> Result<(), RecordError> {
        let journal = if let Some(journal) = &mut self.journal {
            journal
        } else {
            let path = part::path(&self.unfinished, self.table, self.number, false);
            self.journal.insert(Journal::create(path)?)
        };
        journal.append_batch(batch)?;
        self.rows += batch.rows() as u64;
        if self.rows >= self.part_rows || journal.bytes() >= PART_LEN {
            self.roll()?;
        }
        Ok(())
    }

    /// Starts a thread that seals the full journal, so that new rows do not wait for it.
    fn roll(&mut self) -> Result<(), RecordError> {
        let Some(journal) = self.journal.take() else { return Ok(()) };
        self.wait()?;
        (self.number, self.rows) = (self.number + 1, 0);
        let (table, path) = (self.table, journal.path().to_owned());
        let thread =
            std::thread::Builder::new().name("seal".to_owned()).spawn(move || part::seal(table, &path));
        self.sealing = Some(thread.map_err(RecordError::Thread)?);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), RecordError> {
        // A panic there is a bug; the journal is still whole, and the end seals it or reports why not.
        self.sealing.take().and_then(|thread| thread.join().ok()).map_or(Ok(()), |sealed| sealed.map(|_| ()))
    }

    fn settle(mut self) -> Result<(), RecordError> {
        self.wait()
    }
}
