//! The handle that callers hold: a [`Sink`] and a [`History`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvitals_core::batch::RowKeys;
use gpuvitals_core::figures::Family;
use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, ChangeFeed, Changes, Fleet, FleetBounds, History, HistoryStats,
    LiveFleet, Part, QueryError, Rows, RowsQuery, TakeRows,
};
use gpuvitals_core::merge::Overwritten;
use gpuvitals_core::ports::{Answer, Sink, SinkError};
use gpuvitals_core::{Batch, Health, Status, Table, causes, clock};
use serde_json::json;

use crate::error::PostgresError;
use crate::link::{Lease, Links, Purpose};
use crate::names::Names;
use crate::partition::Partitions;
use crate::settings::Database;
use crate::write::Written;
use crate::{buckets, read, schema, write};

/// Changes that a reader of [`History::changes`] may be behind; then it loses the oldest.
const CHANGES_MAX: usize = 256;
/// Longest time for one transaction.
const WRITE_WITHIN: Duration = Duration::from_mins(1);
/// Longest wait for the answer to a ping.
const PING_WITHIN: Duration = Duration::from_secs(2);

/// An open database. Clones are handles of the same one.
#[derive(Debug, Clone)]
pub struct Postgres(Arc<PostgresInner>);

#[derive(Debug)]
struct PostgresInner {
    links: Links,
    names: Names,
    partitions: Partitions,
    /// Whether the tables are there.
    is_ready: tokio::sync::Mutex<bool>,
    /// The subject up to which the latest values have been read; none: all have.
    read_to: tokio::sync::Mutex<Option<i32>>,
    live: Mutex<Live>,
    version: AtomicU64,
    subscribers: ChangeFeed,
    /// Whether rows can be written.
    health: Mutex<Health>,
    /// Whether questions are answered.
    reading: Mutex<Health>,
    rows: AtomicU64,
    rows_too_old: AtomicU64,
    rows_overwritten: AtomicU64,
    transactions: AtomicU64,
    failures: AtomicU64,
}

#[derive(Debug)]
struct Live {
    fleet: LiveFleet,
    shown: Arc<Fleet>,
}

impl Postgres {
    /// Connects and makes what is missing. A server that is away is tried again whenever it is needed, and [`Sink::health`] says
    /// so. Rows older than `keep` are dropped by the day. `bounds` are those of the latest state. The latest state of each GPU is read when it is asked for first.
    ///
    /// # Errors
    /// If the settings are wrong, or the tables are those of another version.
    pub async fn open(
        settings: Database,
        keep: Option<Duration>,
        bounds: FleetBounds,
    ) -> Result<Self, PostgresError> {
        let inner = PostgresInner {
            links: Links::new(settings)?,
            names: Names::default(),
            partitions: Partitions::new(keep),
            is_ready: tokio::sync::Mutex::default(),
            read_to: tokio::sync::Mutex::new(Some(i32::MIN)),
            live: Mutex::new(Live { fleet: LiveFleet::new(bounds), shown: Arc::default() }),
            version: AtomicU64::new(1),
            subscribers: ChangeFeed::new(CHANGES_MAX),
            health: Mutex::new(Health::healthy(clock::now_ns())),
            reading: Mutex::new(Health::healthy(clock::now_ns())),
            rows: AtomicU64::new(0),
            rows_too_old: AtomicU64::new(0),
            rows_overwritten: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        };
        match inner.lease(Purpose::Other).await {
            Ok(lease) => lease.give_back(),
            Err(error @ (PostgresError::Layout { .. } | PostgresError::Column { .. })) => return Err(error),
            Err(error) => inner.note(Err(&error)),
        }
        Ok(Self(Arc::new(inner)))
    }

    /// Asks the server whether it is there and has the tables, for [`History::health`] of a process that neither writes nor is
    /// asked.
    ///
    /// # Errors
    /// If it does not answer, or refuses. The health says so too.
    pub async fn ping(&self) -> Result<(), PostgresError> {
        let asked = async {
            let mut lease = self.0.lease(Purpose::Other).await?;
            drop(lease.moment().await?);
            lease.give_back();
            Ok(())
        };
        let late = PostgresError::TimedOut { doing: "ask whether it is there", within: PING_WITHIN };
        let answered = Box::pin(tokio::time::timeout(PING_WITHIN, asked)).await.unwrap_or(Err(late));
        let reason = answered.as_ref().err().map(|error| causes(error));
        self.0.note_reading(reason.as_deref());
        answered
    }
}

impl PostgresInner {
    /// A connection to a database that has the tables.
    async fn lease(&self, purpose: Purpose) -> Result<Lease<'_>, PostgresError> {
        let mut lease = self.links.lease(purpose).await?;
        let mut is_ready = self.is_ready.lock().await;
        if !*is_ready {
            self.names.forget();
            self.partitions.forget();
            lease.staged().clear();
            schema::migrate(&mut lease).await?;
            *is_ready = true;
            // A process that writes nothing learns nowhere else that rows would be taken again.
            self.note(Ok(()));
        }
        Ok(lease)
    }

    /// Reads the latest values that the database had before this process wrote, some GPUs at a time. If this is dropped, the
    /// next one continues.
    async fn load(&self) -> Result<(), QueryError> {
        let mut read_to = self.read_to.lock().await;
        if read_to.is_none() {
            return Ok(());
        }
        Box::pin(self.read(self.load_from(&mut read_to))).await
    }

    async fn load_from(&self, read_to: &mut Option<i32>) -> Result<(), QueryError> {
        let mut lease = self.lease(Purpose::Question).await?;
        let ahead_max_ns = lock(&self.live).fleet.bounds().ahead_max_ns;
        let latest_ns = clock::now_ns().saturating_add(ahead_max_ns);
        while let Some(after) = *read_to {
            let moment = lease.moment().await?;
            let found = read::latest(&moment, &self.names, after, latest_ns).await?;
            drop(moment);
            if let Some(batch) = found.as_ref().and_then(|(_, batch)| batch.as_ref()) {
                self.show_older(batch);
            }
            *read_to = found.map(|(last, _)| last);
        }
        lease.give_back();
        Ok(())
    }

    async fn accept(&self, batches: Vec<Batch>) -> Result<(), PostgresError> {
        if batches.is_empty() {
            return Ok(());
        }
        let came: usize = batches.iter().map(Batch::rows).sum();
        let writing = async {
            let mut lease = self.lease(Purpose::Other).await?;
            let batches = self.partitions.make_for(&mut lease, batches).await?;
            let written = write::write(&mut lease, &self.names, &batches).await?;
            lease.give_back();
            Ok((written, batches))
        };
        let doing = "write rows";
        let late = PostgresError::TimedOut { doing, within: WRITE_WITHIN };
        let written = tokio::time::timeout(WRITE_WITHIN, writing).await.unwrap_or(Err(late));
        self.note(written.as_ref().map(|_| ()));
        if written.as_ref().is_err_and(PostgresError::lacks_tables) {
            *self.is_ready.lock().await = false;
        }
        let (Written { rows, overwritten }, batches) = written?;
        self.note_overwritten(&overwritten);
        let kept: usize = batches.iter().map(Batch::rows).sum();
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.rows_too_old.fetch_add((came - kept) as u64, Ordering::Relaxed);
        self.transactions.fetch_add(1, Ordering::Relaxed);
        self.show(&batches);
        self.subscribers.send(batches.into());
        Ok(())
    }

    /// Counts rows that were put together although they differ. The log has the first.
    fn note_overwritten(&self, overwritten: &Overwritten) {
        let Overwritten { rows, first } = overwritten;
        if *rows > 0 && self.rows_overwritten.fetch_add(*rows, Ordering::Relaxed) == 0 {
            let first = first.as_deref().unwrap_or_default();
            tracing::warn!(first, "{}", Overwritten::SENTENCE);
        }
    }

    /// Shows rows that are durable.
    fn show(&self, batches: &[Batch]) {
        let mut live = lock(&self.live);
        for batch in batches {
            apply(&mut live.fleet, batch);
        }
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Shows rows that were there before: newer ones of their GPUs may be shown already.
    fn show_older(&self, batch: &Batch) {
        let mut live = lock(&self.live);
        // They are few, and who finds no room is counted where the others are.
        let mut older = LiveFleet::new(FleetBounds { gpus_max: usize::MAX, ..live.fleet.bounds() });
        apply(&mut older, batch);
        for gpu in &older.snapshot().gpus {
            live.fleet.add(gpu);
        }
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Reads, and notes how it went.
    async fn read<T>(&self, reading: impl Future<Output = Result<T, QueryError>>) -> Result<T, QueryError> {
        let read = reading.await;
        let reason = match &read {
            Err(QueryError::Away { reason }) => Some(reason.as_ref()),
            _ => None,
        };
        self.note_reading(reason);
        read
    }

    /// Notes why there is no answer, or that there is one.
    fn note_reading(&self, reason: Option<&str>) {
        let (status, reason) = match reason {
            Some(reason) => (Status::Degraded, format!("PostgreSQL: {reason}")),
            None => (Status::Healthy, String::new()),
        };
        lock(&self.reading).observe(status, reason, clock::now_ns());
    }

    /// Notes how it went.
    fn note(&self, outcome: Result<(), &PostgresError>) {
        let (status, reason) = match outcome {
            Ok(()) => (Status::Healthy, String::new()),
            Err(error) => (Status::Degraded, format!("PostgreSQL: {}", causes(error))),
        };
        if outcome.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        let mut health = lock(&self.health);
        if health.status != status {
            if status == Status::Healthy {
                tracing::info!("PostgreSQL takes rows again");
            } else {
                tracing::warn!(reason, "PostgreSQL takes no rows");
            }
        }
        health.observe(status, reason, clock::now_ns());
    }

    fn fleet(&self) -> Arc<Fleet> {
        let mut live = lock(&self.live);
        if live.fleet.advance(clock::now_ns()) {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        let version = self.version.load(Ordering::Acquire);
        if live.shown.version != version {
            live.fleet.set_version(version);
            live.shown = Arc::new(live.fleet.snapshot());
        }
        Arc::clone(&live.shown)
    }
}

impl Sink for Postgres {
    fn accept(&self, batches: Vec<Batch>) -> Answer<'_, Result<(), SinkError>> {
        Box::pin(async move { Ok(self.0.accept(batches).await?) })
    }

    fn close(&self) -> Answer<'_, Result<(), SinkError>> {
        Box::pin(async move {
            self.0.links.close();
            Ok(())
        })
    }

    fn health(&self) -> Health {
        lock(&self.0.health).clone()
    }

    fn families(&self) -> Vec<Family> {
        let inner = &*self.0;
        vec![
            Family::counter("gpuvitals_postgres_rows_total", "Rows written.", &inner.rows),
            Family::counter(
                "gpuvitals_postgres_rows_too_old_total",
                "Rows that were older than store.keep when they came: acknowledged, not written.",
                &inner.rows_too_old,
            ),
            Family::counter(
                "gpuvitals_postgres_rows_overwritten_total",
                "Rows that were put together with one of the same GPU and time although a column had another value: the later \
                 stayed. Repeats are none. The log names the first.",
                &inner.rows_overwritten,
            ),
            Family::counter(
                "gpuvitals_postgres_transactions_total",
                "Transactions that wrote them.",
                &inner.transactions,
            ),
            Family::counter(
                "gpuvitals_postgres_gpus_forgotten_total",
                "GPUs that left the latest state because there were more than collector.gpus_max, the longest silent first. \
                 Their rows stay.",
                lock(&inner.live).fleet.forgotten(),
            ),
            Family::counter(
                "gpuvitals_postgres_failures_total",
                "Transactions that failed or could not begin; their rows come again.",
                &inner.failures,
            ),
        ]
    }
}

impl History for Postgres {
    fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    fn fleet(&self) -> Answered<'_, Arc<Fleet>> {
        Box::pin(async move {
            self.0.load().await?;
            let inner = Arc::clone(&self.0);
            let job = tokio::task::spawn_blocking(move || inner.fleet());
            Ok(Part::whole(job.await.map_err(QueryError::failed)?))
        })
    }

    fn rows(&self, query: RowsQuery) -> Answered<'_, Rows> {
        Box::pin(self.0.read(async move {
            let mut lease = self.0.lease(Purpose::Question).await?;
            let moment = lease.moment().await?;
            let rows = read::rows(&moment, &self.0.names, &query).await?;
            drop(moment);
            lease.give_back();
            Ok(Part::whole(rows))
        }))
    }

    fn sweep(&self, query: RowsQuery, take: TakeRows) -> Answered<'_, ()> {
        Box::pin(self.0.read(async move {
            let mut lease = self.0.lease(Purpose::Question).await?;
            let moment = lease.moment().await?;
            read::sweep(&moment, &self.0.names, &query, &take).await?;
            drop(moment);
            lease.give_back();
            Ok(Part::whole(()))
        }))
    }

    fn buckets(&self, query: BucketQuery) -> Answered<'_, Buckets> {
        Box::pin(self.0.read(async move {
            let mut lease = self.0.lease(Purpose::Question).await?;
            let moment = lease.moment().await?;
            let buckets = buckets::buckets(&moment, &self.0.names, &query).await?;
            drop(moment);
            lease.give_back();
            Ok(Part::whole(buckets))
        }))
    }

    fn changes(&self) -> Box<dyn Changes> {
        self.0.subscribers.follow()
    }

    fn health(&self) -> Health {
        Health::of_all([Sink::health(self), lock(&self.0.reading).clone()])
    }

    fn stats(&self) -> HistoryStats {
        let inner = &*self.0;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        HistoryStats {
            rows_on_disk: None,
            rows_in_memory: None,
            own: json!({
                "gpus": lock(&inner.live).fleet.gpus(),
                "gpus_forgotten": lock(&inner.live).fleet.forgotten(),
                "rows_written": count(&inner.rows),
                "rows_overwritten": count(&inner.rows_overwritten),
                "transactions": count(&inner.transactions),
                "failures": count(&inner.failures),
            }),
        }
    }
}

/// Takes rows of `gpu_events` in.
fn apply(fleet: &mut LiveFleet, batch: &Batch) {
    // Rows without a key were refused.
    let keys = RowKeys::of(batch.records(), Table::GpuEvents);
    if let Ok(keys) = keys
        && batch.table() == Table::GpuEvents
    {
        fleet.arrive(batch, &keys, clock::now_ns());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
