//! A store read beside its writer, in any number of processes: what its files and its log have at one moment.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use gpuvitals_core::history::{Fleet, FleetBounds, Part, QueryError, RowsQuery};
use gpuvitals_core::{Batch, Health, Origin, Status, Table, causes, clock};
use gpuvitals_log::{LogError, read_beside};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::board::first_and_more;
use crate::error::StoreError;
use crate::inspect::{TRIES, newest};
use crate::manifest::{HOUR_NS, Manifest};
use crate::query;
use crate::reader::{Columns, Reader, Reading, Scope};
use crate::recover::{self, Recovered};
use crate::shared::READERS_MAX;
use crate::snapshot::Snapshot;
use crate::tail::Tail;
use gpuvitals_core::batch::timestamps;
use gpuvitals_core::merge::{Merge, Order};

/// Most rows of a batch: those of one wire frame.
const BATCH_ROWS: usize = 1 << 16;
/// Rows that are read at once.
const PAGE_ROWS: usize = 1 << 18;

/// A store as it was when this was opened: its rows batch by batch, and a [`gpuvitals_core::history::History`] of which
/// nothing changes. Nothing in the store is changed either, and its writer goes on; who wants to see newer rows opens it
/// again. Clones are handles of the same view.
#[derive(Debug, Clone)]
pub struct StoreView(pub(crate) Arc<SeenStore>);

/// What a view holds.
#[derive(Debug)]
pub(crate) struct SeenStore {
    pub(crate) reader: Reader,
    pub(crate) snapshot: Snapshot,
    /// Parts of the log that cannot be read, in words.
    pub(crate) faults: Vec<String>,
    pub(crate) fleet: Part<Arc<Fleet>>,
    pub(crate) health: Health,
    /// One permit for each query that is worked on.
    pub(crate) readers: Arc<Semaphore>,
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
            let (manifest, ..) = newest(dir)?;
            let log = match Log::read(&dir.join("wal"), &manifest) {
                // The writer may have flushed records and removed them since the list was read.
                Ok(Log { has_gap: true, .. })
                | Err(StoreError::Log(LogError::Read { .. } | LogError::Changed { .. }))
                    if tries < TRIES =>
                {
                    continue;
                }
                log => log?,
            };
            let (list, fleet) = (manifest.name(), manifest.fleet.as_ref().map(|it| dir.join(&it.name)));
            let seen = SeenStore::of(dir, manifest, log);
            // It may also have written a new list, and removed the files that only the old one names.
            let is_whole = seen.reader.keep_open(&seen.snapshot) && fleet.is_none_or(|it| it.exists());
            if is_whole || tries >= TRIES || newest(dir)?.0.name() == list {
                return Ok(Self(Arc::new(seen)));
            }
        }
    }

    /// Latest state of all GPUs.
    pub fn fleet(&self) -> &Fleet {
        &self.0.fleet.answer
    }

    /// The tables that have rows.
    pub fn tables(&self) -> BTreeSet<Table> {
        let Snapshot { files, tail, .. } = &self.0.snapshot;
        files.iter().map(|file| file.table).chain(tail.iter().map(|chunk| chunk.table)).collect()
    }

    /// All rows that are asked for, merged by key, oldest first. Of the question only its table, GPUs, times
    /// and metrics count.
    ///
    /// # Errors
    /// If columns of the files do not fit together.
    pub fn all(&self, query: RowsQuery) -> Result<ViewRows<'_>, QueryError> {
        let SeenStore { reader, snapshot, faults, .. } = self.0.as_ref();
        let (start_ns, end_ns) = (query.start_ns.unwrap_or(i64::MIN), query.end_ns.unwrap_or(i64::MAX));
        let scope = Scope::new(query.table, &query.gpus, start_ns, end_ns);
        let never = CancellationToken::new();
        let mut missing = faults.clone();
        let parts = Reading { reader, snapshot, abandoned: &never }.parts(&scope, &mut missing)?;
        let columns = Columns::of(&query);
        let frames: Vec<RecordBatch> = parts.iter().map(|part| columns.frame(&part.schema())).collect();
        let files = snapshot.files.iter().filter(|file| scope.meets_file(file));
        let chunks = snapshot.tail.iter().filter(|chunk| chunk.table == query.table);
        let hour = |time_ns: i64| time_ns.div_euclid(HOUR_NS);
        let of_files = files.flat_map(|file| {
            hour(file.min_timestamp_ns.max(start_ns))..=hour(file.max_timestamp_ns.min(end_ns))
        });
        let of_chunks = chunks.flat_map(|chunk| timestamps(&chunk.records)).copied();
        let of_chunks = of_chunks.filter(|time_ns| (start_ns..=end_ns).contains(time_ns)).map(hour);
        let hours: BTreeSet<i64> = of_files.chain(of_chunks).collect();
        let hours_total = hours.len();
        Ok(ViewRows {
            view: self,
            schema: Arc::clone(Merge::plan(query.table, &frames, Order::TimeGpu)?.schema()),
            hours: hours.into_iter().collect::<Vec<_>>().into_iter(),
            hours_total,
            span: (start_ns, end_ns),
            query: RowsQuery { limit: PAGE_ROWS, newest_first: false, with_total: false, ..query },
            is_open: false,
            page: None,
            missing: missing.into_iter().collect(),
        })
    }
}

impl SeenStore {
    fn of(dir: &Path, manifest: Manifest, log: Log) -> Self {
        let Log { tail, faults, .. } = log;
        let Part { answer: mut live, mut missing } =
            recover::fleet(dir, &manifest, FleetBounds::default(), &mut Recovered::default());
        let applied = tail.of(Table::GpuEvents).iter().map(|chunk| recover::apply(&chunk.records, &mut live));
        missing.extend(applied.filter_map(|outcome| {
            Some(format!("latest values of rows of the log: {}", causes(outcome.err()?.as_ref())))
        }));
        let fleet = Part { answer: Arc::new(live.snapshot()), missing };
        let mut health = Health::healthy(clock::now_ns());
        let lost = manifest.lost.iter().map(ToString::to_string);
        if let Some(reason) = first_and_more(&faults.iter().cloned().chain(lost).collect::<Vec<_>>()) {
            health.observe(Status::Degraded, reason, clock::now_ns());
        }
        let snapshot = Snapshot {
            files: manifest.files.into(),
            rollups: manifest.rollups.into(),
            lost: manifest.lost.into(),
            flushes: 0,
            tail: tail.chunks().cloned().collect(),
        };
        Self {
            reader: Reader::of_view(),
            snapshot,
            faults,
            fleet,
            health,
            readers: Arc::new(Semaphore::new(READERS_MAX)),
        }
    }

    /// Asks the snapshot. The answer also lacks what cannot be read of the log: nothing says which times that has.
    pub(crate) fn reading<T>(
        &self,
        abandoned: &CancellationToken,
        ask: impl FnOnce(Reading<'_>) -> Result<Part<T>, QueryError>,
    ) -> Result<Part<T>, QueryError> {
        let mut part = ask(Reading { reader: &self.reader, snapshot: &self.snapshot, abandoned })?;
        part.missing.extend(self.faults.iter().cloned());
        Ok(part)
    }
}

/// Rows of a [`StoreView`], batch by batch. Every batch has all columns of the schema.
#[derive(Debug)]
pub struct ViewRows<'a> {
    view: &'a StoreView,
    schema: SchemaRef,
    /// The hours that may have rows and were not begun, since 1970.
    hours: std::vec::IntoIter<i64>,
    hours_total: usize,
    span: (i64, i64),
    /// What is left of the hour that was begun.
    query: RowsQuery,
    is_open: bool,
    /// What is left of the rows that were read.
    page: Option<RecordBatch>,
    missing: BTreeSet<String>,
}

impl ViewRows<'_> {
    /// The table of the rows.
    pub fn table(&self) -> Table {
        self.query.table
    }

    /// The columns of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// How many hours of those that may have rows are done, and how many there are.
    pub fn hours(&self) -> (usize, usize) {
        let done = self.hours_total - self.hours.len() - usize::from(self.is_open);
        (done, self.hours_total)
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
        if self.page.is_none() {
            self.page = self.next_page()?;
        }
        let Some(page) = self.page.take() else { return Ok(None) };
        let rows = page.num_rows().min(BATCH_ROWS);
        self.page = (rows < page.num_rows()).then(|| page.slice(rows, page.num_rows() - rows));
        let batch = Batch::new(self.query.table, page.slice(0, rows), Origin::default(), 0);
        batch.map(Some).map_err(QueryError::failed)
    }

    fn next_page(&mut self) -> Result<Option<RecordBatch>, QueryError> {
        loop {
            if !self.is_open {
                let Some(hour) = self.hours.next() else { return Ok(None) };
                let from = hour.saturating_mul(HOUR_NS);
                self.query.start_ns = Some(from.max(self.span.0));
                self.query.end_ns = Some(from.saturating_add(HOUR_NS - 1).min(self.span.1));
                self.query.offset = 0;
                self.is_open = true;
            }
            let page = self.view.0.reading(&CancellationToken::new(), |it| query::range(it, &self.query))?;
            self.missing.extend(page.missing);
            let rows = page.answer.batch.as_ref().map_or(0, Batch::rows);
            self.is_open = rows == self.query.limit;
            let Some(batch) = page.answer.batch.filter(|_| rows > 0) else { continue };
            self.pass_over(batch.timestamps());
            let frame = RecordBatch::new_empty(Arc::clone(&self.schema));
            let plan = Merge::plan(self.query.table, &[batch.records().clone(), frame], Order::TimeGpu)?;
            return Ok(Some(plan.batch(0..plan.rows())?));
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

/// What the log has beyond the files.
#[derive(Default)]
struct Log {
    /// The records that are in no listed file.
    tail: Tail,
    faults: Vec<String>,
    /// Whether the writer has removed some of these records.
    has_gap: bool,
}

impl Log {
    fn read(wal: &Path, manifest: &Manifest) -> Result<Self, StoreError> {
        if !wal.exists() {
            return Ok(Self::default());
        }
        let recovery = read_beside(wal)?;
        let flushed = manifest.flushed_through.unwrap_or(0);
        let has_gap = manifest.flushed_through.is_some() && recovery.follows > flushed.saturating_add(1);
        let damage = recovery.damage.iter().filter(|damage| damage.sequences.end > flushed.saturating_add(1));
        let mut faults: Vec<String> = damage.map(|damage| format!("log {damage}")).collect();
        let mut tail = Tail::default();
        for record in recovery {
            let record = record?;
            if record.sequence <= flushed {
                continue;
            }
            match recover::rows(&record) {
                Err(reason) => {
                    faults.push(format!("log record {} holds no rows ({reason})", record.sequence));
                }
                Ok(arrivals) => {
                    for arrival in arrivals {
                        // Rows that do not fold stay apart.
                        let _folded = tail.push(arrival.chunk, record.sequence);
                    }
                }
            }
        }
        Ok(Self { tail, faults, has_gap })
    }
}
