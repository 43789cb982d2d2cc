//! The thread between sampler and disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gpuvitals_core::clock::Moment;
use gpuvitals_core::{Batch, Table};
use gpuvitals_sources::sampler::Sampler;

use crate::error::RecordError;
use crate::journal::Journal;
use crate::part;

/// Time from the first row of a part to its last.
const PART_SPAN: Duration = Duration::from_secs(10);
/// Bytes of a part, should its rows be large.
const PART_LEN: u64 = 64 << 20;
/// How long to wait for a batch before checking whether to end.
const PATIENCE: Duration = Duration::from_millis(200);

/// The writer's counts so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) gpu_rows: AtomicU64,
    pub(crate) system_rows: AtomicU64,
    /// Whether nothing will be written any more.
    pub(crate) ended: AtomicBool,
}

/// Writes batches until the sampler is over and empty, or the disk refuses.
pub(crate) struct Writer<W> {
    pub(crate) sampler: Arc<Sampler>,
    /// Nothing will be sampled any more, though a worker may still be waiting.
    pub(crate) last: Arc<AtomicBool>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) tables: [Rolling; 2],
    pub(crate) watch: W,
}

impl<W: FnMut(&Batch)> Writer<W> {
    pub(crate) fn run(mut self) -> Result<(), RecordError> {
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
                None => {
                    let now_ns = Moment::now().mono_ns;
                    self.tables.iter_mut().try_for_each(|table| table.age(now_ns))?;
                }
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
pub(crate) struct Rolling {
    directory: PathBuf,
    table: Table,
    number: u32,
    span_ns: i64,
    journal: Option<Journal>,
    /// The monotonic clock of the journal's first row and of its last.
    rows_ns: (i64, i64),
    sealing: Option<JoinHandle<Result<u64, RecordError>>>,
}

impl Rolling {
    /// No part yet. A part holds the rows of at most `span`, ten seconds unless given.
    pub(crate) fn new(directory: &Path, table: Table, span: Option<Duration>) -> Self {
        let span_ns = i64::try_from(span.unwrap_or(PART_SPAN).as_nanos()).unwrap_or(i64::MAX);
        let directory = directory.to_owned();
        Self { directory, table, number: 1, span_ns, journal: None, rows_ns: (0, 0), sealing: None }
    }

    /// Appends a batch to the journal; when this returns the kernel has it.
    fn write(&mut self, batch: &Batch) -> Result<(), RecordError> {
        let clock = batch.monotonic().unwrap_or_else(|| batch.timestamps());
        let first = clock.iter().min().copied().unwrap_or_default();
        let last = clock.iter().max().copied().unwrap_or_default();
        let (from, to) = self.rows_ns;
        if self.journal.is_some() && last.max(to) - first.min(from) > self.span_ns {
            self.roll()?;
        }
        let journal = if let Some(journal) = &mut self.journal {
            self.rows_ns = (first.min(from), last.max(to));
            journal
        } else {
            self.rows_ns = (first, last);
            self.journal.insert(Journal::create(part::journal(&self.directory, self.table, self.number))?)
        };
        journal.append_batch(batch)?;
        if journal.bytes() >= PART_LEN { self.roll() } else { Ok(()) }
    }

    /// Seals the rows that have lain for a part's time, though no others have come.
    fn age(&mut self, now_ns: i64) -> Result<(), RecordError> {
        if now_ns.saturating_sub(self.rows_ns.0) > self.span_ns { self.roll() } else { Ok(()) }
    }

    /// Starts a thread that seals the journal, so that new rows do not wait for it.
    fn roll(&mut self) -> Result<(), RecordError> {
        let Some(journal) = self.journal.take() else { return Ok(()) };
        self.wait()?;
        let (table, path) = (self.table, journal.path().to_owned());
        let target = part::sealed(&self.directory, table, self.number);
        self.number += 1;
        let seal = move || part::seal(table, &path, &target);
        let thread = std::thread::Builder::new().name("seal".to_owned()).spawn(seal);
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
