//! Rows of a store, read beside its writer: what its files and its log have at one moment.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use gpuvitals_core::history::{QueryError, RowsQuery};
use gpuvitals_core::{Batch, Origin, Table};
use gpuvitals_log::{LogError, read_beside};
use tokio_util::sync::CancellationToken;

use crate::error::StoreError;
use crate::inspect::{TRIES, newest};
use crate::manifest::{HOUR_NS, Manifest};
use crate::merge::{Merge, Order};
use crate::query;
use crate::reader::{Reader, Reading, Scope};
use crate::recover;
use crate::snapshot::Snapshot;
use crate::tail::{Tail, timestamps};

/// Most rows of a batch: those of one wire frame.
const PAGE_ROWS: usize = 1 << 16;

/// A store as it was when this was opened. Nothing in it is changed, and its writer goes on.
#[derive(Debug)]
pub struct StoreView {
    reader: Reader,
    snapshot: Snapshot,
    /// Parts of the log that cannot be read, in words.
    faults: Vec<String>,
}

impl StoreView {
    /// Reads the list of files in force and the records of the log that are not in them.
    ///
    /// # Errors
    /// If there is no store, no list of it verifies, or the disk refuses.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (manifest, _, _) = newest(dir)?;
            match tail(&dir.join("wal"), &manifest) {
                // The writer may have flushed records and removed them since the list was read.
                Ok((_, _, true)) | Err(StoreError::Log(LogError::Read { .. })) if tries < TRIES => {}
                Err(error) => return Err(error),
                Ok((tail, faults, _)) => {
                    let snapshot = Snapshot {
                        files: manifest.files.into(),
                        rollups: manifest.rollups.into(),
                        lost: manifest.lost.into(),
                        flushes: 0,
                        tail: tail.chunks().cloned().collect(),
                    };
                    let reader = Reader::default();
                    reader.keep_open(&snapshot);
                    return Ok(Self { reader, snapshot, faults });
                }
            }
        }
    }

    /// The tables that have rows.
    pub fn tables(&self) -> BTreeSet<Table> {
        let files = self.snapshot.files.iter().map(|file| file.table);
        files.chain(self.snapshot.tail.iter().map(|chunk| chunk.table)).collect()
    }

    /// Rows of a table in the order of time, merged by key: of some GPUs (hosts in `system_events`) or, if none is
    /// named, of all; first and last time are inclusive, nanoseconds UTC since 1970.
    ///
    /// # Errors
    /// If columns of the files do not fit together.
    pub fn rows(
        &self,
        table: Table,
        gpus: &[Arc<str>],
        (start_ns, end_ns): (i64, i64),
    ) -> Result<ViewRows<'_>, QueryError> {
        let scope = Scope::new(table, gpus, start_ns, end_ns);
        let never = CancellationToken::new();
        let mut missing = self.faults.clone();
        let reading = Reading { reader: &self.reader, snapshot: &self.snapshot, abandoned: &never };
        let parts = reading.parts(&scope, &mut missing)?;
        let schemas: Vec<RecordBatch> =
            parts.iter().map(|part| RecordBatch::new_empty(part.schema())).collect();
        let files = self.snapshot.files.iter().filter(|file| scope.meets_file(file));
        let chunks = || self.snapshot.tail.iter().filter(|chunk| chunk.table == table);
        let hour = |time_ns: i64| time_ns.div_euclid(HOUR_NS);
        let of_files = files.flat_map(|file| {
            hour(file.min_timestamp_ns.max(start_ns))..=hour(file.max_timestamp_ns.min(end_ns))
        });
        let of_chunks = chunks().flat_map(|chunk| timestamps(&chunk.records)).copied();
        let of_chunks = of_chunks.filter(|time_ns| (start_ns..=end_ns).contains(time_ns)).map(hour);
        let hours: BTreeSet<i64> = of_files.chain(of_chunks).collect();
        Ok(ViewRows {
            view: self,
            schema: Arc::clone(Merge::plan(table, &schemas, Order::TimeGpu)?.schema()),
            hours: hours.into_iter().collect::<Vec<_>>().into_iter(),
            span: (start_ns, end_ns),
            query: RowsQuery { gpus: gpus.to_vec(), ..RowsQuery::of(table, PAGE_ROWS) },
            is_open: false,
            missing: missing.into_iter().collect(),
        })
    }
}

/// Rows of a [`StoreView`], batch by batch. Every batch has all columns of the schema.
#[derive(Debug)]
pub struct ViewRows<'a> {
    view: &'a StoreView,
    schema: SchemaRef,
    /// The hours that may have rows and were not begun, since 1970.
    hours: std::vec::IntoIter<i64>,
    span: (i64, i64),
    /// What is left of the hour that was begun.
    query: RowsQuery,
    is_open: bool,
    missing: BTreeSet<String>,
}

impl ViewRows<'_> {
    /// The columns of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The files and parts of the log whose rows are missing so far, in words.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        self.missing.iter().map(String::as_str)
    }

    /// The next rows; none after the last.
    ///
    /// # Errors
    /// If the rows cannot be merged. A file that cannot be read is no error: see [`ViewRows::missing`].
    pub fn next_batch(&mut self) -> Result<Option<Batch>, QueryError> {
        loop {
            if !self.is_open {
                let Some(hour) = self.hours.next() else { return Ok(None) };
                let from = hour.saturating_mul(HOUR_NS);
                self.query.start_ns = Some(from.max(self.span.0));
                self.query.end_ns = Some(from.saturating_add(HOUR_NS - 1).min(self.span.1));
                self.query.offset = 0;
                self.is_open = true;
            }
            let never = CancellationToken::new();
            let StoreView { reader, snapshot, .. } = self.view;
            let page = query::range(Reading { reader, snapshot, abandoned: &never }, &self.query)?;
            self.missing.extend(page.missing);
            let rows = page.answer.batch.as_ref().map_or(0, Batch::rows);
            self.is_open = rows == self.query.limit;
            let Some(batch) = page.answer.batch.filter(|_| rows > 0) else { continue };
            self.pass_over(batch.timestamps());
            let empty = RecordBatch::new_empty(Arc::clone(&self.schema));
            let plan = Merge::plan(self.query.table, &[batch.records().clone(), empty], Order::TimeGpu)?;
            let records = plan.batch(0..plan.rows())?;
            let whole = Batch::new(self.query.table, records, Origin::default(), 0);
            return whole.map(Some).map_err(QueryError::failed);
        }
    }

    /// The next page begins at the last time of this one, behind the rows of that time that were read.
    fn pass_over(&mut self, times: &[i64]) {
        let Some(last) = times.last() else { return };
        let same = times.iter().rev().take_while(|time| *time == last).count();
        let before = if self.query.start_ns == Some(*last) { self.query.offset } else { 0 };
        self.query.start_ns = Some(*last);
        self.query.offset = before + same;
    }
}

/// The records of the log that are in no listed file. Also: its faults, and whether the writer has removed some of these
/// records.
fn tail(wal: &Path, manifest: &Manifest) -> Result<(Tail, Vec<String>, bool), StoreError> {
    let (mut tail, mut faults) = (Tail::default(), Vec::new());
    if !wal.exists() {
        return Ok((tail, faults, false));
    }
    let recovery = read_beside(wal)?;
    let flushed = manifest.flushed_through.unwrap_or(0);
    let has_gap = manifest.flushed_through.is_some() && recovery.follows > flushed.saturating_add(1);
    let damage = recovery.damage.iter().filter(|damage| damage.sequences.end > flushed.saturating_add(1));
    faults.extend(damage.map(|damage| format!("log {damage}")));
    for record in recovery {
        let record = record?;
        if record.sequence <= flushed {
            continue;
        }
        match recover::rows(&record) {
            Err(reason) => faults.push(format!("log record {} holds no rows ({reason})", record.sequence)),
            Ok(arrivals) => {
                for arrival in arrivals {
                    // Rows that do not fold stay apart.
                    let _folded = tail.push(arrival.chunk, record.sequence);
                }
            }
        }
    }
    Ok((tail, faults, has_gap))
}
