//! A history in memory, for sinks whose rows nobody can query.
//!
//! [`MemoryHistory`] hands rows to its sink. Once these are durable it keeps the latest state of every GPU, and of each GPU the
//! newest rows of `gpu_events`. It starts empty. It answers for these, and refuses ranges of time and other tables.
//!
//! A GPU has at most [`CollectorSettings::max_entries`] rows, and no more bytes than its equal share of
//! [`CollectorSettings::cache_bytes`], but always its newest row. A row takes 160 bytes and 24 for each value, for one of an
//! unknown column 40 and the length of a text. The latest state is not bounded: every GPU has one, as in the store.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::ArrayRef;
use gpuvitals_core::batch::{MetricColumn, RowKeys, Value};
use gpuvitals_core::figures::Family;
use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, Change, Changes, ExtraValue, Fleet, History, HistoryStats, LiveFleet,
    Part, QueryError, Rows, RowsQuery,
};
use gpuvitals_core::ports::{Answer, Sink, SinkError};
use gpuvitals_core::{
    Batch, BatchBuilder, Health, Identity, IdentityColumn, MetricId, Origin, Table, ValueError,
};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::sync::broadcast::{self, error::RecvError};

use crate::CollectorSettings;

/// Answers that are worked on at a time.
const READERS_MAX: usize = 2;
/// Changes that a reader of [`History::changes`] may be behind; then it loses the oldest.
const CHANGES_MAX: usize = 256;
/// Bytes of a row beside its values, with its place in the map and the parts that rows share.
const ROW_BYTES: usize = 160;
const NOT_KEPT: &str = "collector.sinks has no store, so memory has the latest values and the newest rows of each GPU since the \
                        start, and nothing else; for ranges of time and other tables add store (--sinks store,jsonl)";

/// The latest state and the newest rows of what a sink has taken.
#[derive(Debug)]
pub struct MemoryHistory {
    sink: Arc<dyn Sink>,
    kept: Arc<Mutex<Kept>>,
    version: AtomicU64,
    readers: Arc<Semaphore>,
    subscribers: broadcast::Sender<Arc<[Batch]>>,
}

#[derive(Debug)]
struct Kept {
    live: LiveFleet,
    shown: Arc<Fleet>,
    version: u64,
    gpus: HashMap<Arc<str>, GpuRows>,
    rows_max: usize,
    bytes_max: usize,
}

/// The newest rows of a GPU.
#[derive(Debug, Default)]
struct GpuRows {
    /// By time.
    rows: BTreeMap<i64, Arc<Row>>,
    bytes: usize,
    /// The identity of the last row, which the next one most likely has as well.
    identity: Arc<Identity>,
}

#[derive(Debug, Clone)]
struct Row {
    identity: Arc<Identity>,
    values: Vec<(MetricId, Value)>,
    extras: Vec<(Arc<str>, ExtraValue)>,
}

/// The columns of a batch, looked up once.
struct Columns<'a> {
    metrics: Vec<(MetricId, MetricColumn<'a>)>,
    extras: Vec<(Arc<str>, &'a ArrayRef)>,
}

impl MemoryHistory {
    /// A memory of the rows that this sink takes from now on.
    pub fn new(sink: Arc<dyn Sink>, settings: &CollectorSettings) -> Self {
        let kept = Kept {
            live: LiveFleet::default(),
            shown: Arc::default(),
            version: 0,
            gpus: HashMap::new(),
            rows_max: settings.max_entries,
            bytes_max: settings.cache_bytes.as_usize(),
        };
        Self {
            sink,
            kept: Arc::new(Mutex::new(kept)),
            version: AtomicU64::new(0),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            subscribers: broadcast::Sender::new(CHANGES_MAX),
        }
    }

    /// Shows rows that are durable.
    fn take(&self, mut batches: Vec<Batch>) {
        batches.iter_mut().for_each(Batch::forget_wire);
        let mut kept = lock(&self.kept);
        for batch in &batches {
            kept.take(batch);
        }
        kept.version += 1;
        self.version.store(kept.version, Ordering::Release);
        drop(kept);
        // Without a reader nobody hears it.
        let _heard = self.subscribers.send(batches.into());
    }

    /// Works on an answer on a thread for blocking work.
    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Mutex<Kept>) -> Part<T> + Send + 'static,
    ) -> Answered<'_, T> {
        let kept = Arc::clone(&self.kept);
        Box::pin(async move {
            let _permit = self.readers.acquire().await.map_err(QueryError::failed)?;
            tokio::task::spawn_blocking(move || work(&kept)).await.map_err(QueryError::failed)
        })
    }
}

impl Sink for MemoryHistory {
    fn accept(&self, batches: Vec<Batch>) -> Answer<'_, Result<(), SinkError>> {
        Box::pin(async move {
            self.sink.accept(batches.clone()).await?;
            self.take(batches);
            Ok(())
        })
    }

    fn close(&self) -> Answer<'_, Result<(), SinkError>> {
        self.sink.close()
    }

    fn health(&self) -> Health {
        self.sink.health()
    }

    fn families(&self) -> Vec<Family> {
        self.sink.families()
    }
}

impl History for MemoryHistory {
    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    fn fleet(&self) -> Answered<'_, Arc<Fleet>> {
        self.ask(|kept| Part::whole(lock(kept).fleet()))
    }

    fn rows(&self, query: RowsQuery) -> Answered<'_, Rows> {
        if query.table != Table::GpuEvents || query.start_ns.is_some() || query.end_ns.is_some() {
            return Box::pin(ready(Err(QueryError::NotKept { reason: NOT_KEPT.into() })));
        }
        self.ask(move |kept| {
            let (rows, total) = lock(kept).select(&query);
            let Part { answer: batch, missing } = batch(&rows, query.metrics.as_deref());
            Part { answer: Rows { batch, total: query.with_total.then_some(total) }, missing }
        })
    }

    fn buckets(&self, _query: BucketQuery) -> Answered<'_, Buckets> {
        Box::pin(ready(Err(QueryError::NotKept { reason: NOT_KEPT.into() })))
    }

    fn changes(&self) -> Box<dyn Changes> {
        Box::new(Subscription(self.subscribers.subscribe()))
    }

    /// That of the sink.
    fn health(&self) -> Health {
        self.sink.health()
    }

    fn stats(&self) -> HistoryStats {
        let kept = lock(&self.kept);
        let rows: usize = kept.gpus.values().map(|gpu| gpu.rows.len()).sum();
        let bytes: usize = kept.gpus.values().map(|gpu| gpu.bytes).sum();
        HistoryStats {
            rows_on_disk: None,
            rows_in_memory: Some(rows as u64),
            own: json!({ "gpus": kept.gpus.len(), "rows_in_memory": rows, "bytes_in_memory": bytes }),
        }
    }
}

#[derive(Debug)]
struct Subscription(broadcast::Receiver<Arc<[Batch]>>);

impl Changes for Subscription {
    fn next(&mut self) -> Answer<'_, Option<Change>> {
        Box::pin(async {
            match self.0.recv().await {
                Ok(rows) => Some(Change::Rows(rows)),
                Err(RecvError::Lagged(missed)) => Some(Change::Missed(missed)),
                Err(RecvError::Closed) => None,
            }
        })
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    fn take(&mut self, batch: &Batch) {
        if batch.table() != Table::GpuEvents {
            return;
        }
        // A sink takes no row without a key.
        let Ok(keys) = RowKeys::of(batch.records(), Table::GpuEvents) else { return };
        self.live.apply(batch, &keys);
        let columns = Columns::of(batch);
        let gpus_before = self.gpus.len();
        for (row, (&time_ns, &id)) in batch.timestamps().iter().zip(&keys.ids).enumerate() {
            let Some(key) = keys.keys.get(id as usize) else { continue };
            let gpu = self.gpus.entry(Arc::clone(key)).or_default();
            gpu.add(time_ns, columns.row(batch, row));
            gpu.trim(self.rows_max, usize::MAX);
        }
        let share = self.bytes_max / self.gpus.len().max(1);
        if self.gpus.len() > gpus_before {
            self.gpus.values_mut().for_each(|gpu| gpu.trim(self.rows_max, share));
        } else {
            for key in &keys.keys {
                self.gpus.get_mut(key).into_iter().for_each(|gpu| gpu.trim(self.rows_max, share));
            }
        }
    }

    fn fleet(&mut self) -> Arc<Fleet> {
        if self.shown.version != self.version {
            self.live.set_version(self.version);
            self.shown = Arc::new(self.live.snapshot());
        }
        Arc::clone(&self.shown)
    }

    /// The rows of a page, in order, and how many there are in all.
    fn select(&self, query: &RowsQuery) -> (Vec<(i64, Arc<Row>)>, usize) {
        let all = query.gpus.is_empty().then_some(&self.gpus).into_iter().flatten();
        let named = query.gpus.iter().filter_map(|key| self.gpus.get_key_value(key));
        let (mut found, mut total) = (Vec::new(), 0);
        let most = query.offset.saturating_add(query.limit);
        for (key, gpu) in all.chain(named) {
            total += gpu.rows.len();
            let rows = gpu.rows.iter().map(|(time_ns, row)| (*time_ns, key, row));
            if query.newest_first {
                found.extend(rows.rev().take(most));
            } else {
                found.extend(rows.take(most));
            }
        }
        found.sort_unstable_by(|(a_ns, a, _), (b_ns, b, _)| {
            let by_time = a_ns.cmp(b_ns);
            if query.newest_first { by_time.reverse() } else { by_time }.then_with(|| a.cmp(b))
        });
        let page = found.into_iter().skip(query.offset).take(query.limit);
        (page.map(|(time_ns, _, row)| (time_ns, Arc::clone(row))).collect(), total)
    }
}

impl GpuRows {
    /// Adds a row, or what it adds to the row of that time.
    fn add(&mut self, time_ns: i64, mut row: Row) {
        if row.identity == self.identity {
            row.identity = Arc::clone(&self.identity);
        } else {
            self.identity = Arc::clone(&row.identity);
        }
        match self.rows.entry(time_ns) {
            Entry::Vacant(free) => {
                self.bytes += row.bytes();
                free.insert(Arc::new(row));
            }
            Entry::Occupied(mut known) => {
                let known = Arc::make_mut(known.get_mut());
                self.bytes -= known.bytes();
                known.merge(row);
                self.bytes += known.bytes();
            }
        }
    }

    /// Drops the oldest rows beyond the bounds, but never the newest.
    fn trim(&mut self, rows_max: usize, bytes_max: usize) {
        while self.rows.len() > 1
            && (self.rows.len() > rows_max || self.bytes > bytes_max)
            && let Some((_, row)) = self.rows.pop_first()
        {
            self.bytes -= row.bytes();
        }
    }
}

impl<'a> Columns<'a> {
    fn of(batch: &'a Batch) -> Self {
        let extras = batch.extras().map(|(name, column)| (name.into(), column));
        Self { metrics: batch.metrics().collect(), extras: extras.collect() }
    }

    fn row(&self, batch: &Batch, row: usize) -> Row {
        let values = self.metrics.iter().filter_map(|(id, column)| Some((*id, column.value(row)?)));
        let extras = self.extras.iter();
        let extras =
            extras.filter_map(|(name, column)| Some((Arc::clone(name), ExtraValue::of(column, row)?)));
        let (mut values, mut extras): (Vec<_>, Vec<_>) = (values.collect(), extras.collect());
        values.shrink_to_fit();
        extras.shrink_to_fit();
        Row { identity: Arc::new(batch.identity(row)), values, extras }
    }
}

impl Row {
    /// Takes over the values of a later arrival with the same key: what it lacks stays.
    fn merge(&mut self, later: Self) {
        if self.identity != later.identity {
            let mut identity = (*self.identity).clone();
            for column in IdentityColumn::ALL {
                if let Some(text) = later.identity.get(column) {
                    // It comes from an identity.
                    let _taken = identity.set(column, text);
                }
            }
            identity.index = later.identity.index.or(identity.index);
            self.identity = Arc::new(identity);
        }
        replace(&mut self.values, later.values);
        replace(&mut self.extras, later.extras);
    }

    fn bytes(&self) -> usize {
        let texts = self.extras.iter().map(|(_, value)| match value {
            ExtraValue::Number(_) => 0,
            ExtraValue::Text(text) => text.len(),
        });
        ROW_BYTES
            + size_of_val(self.values.as_slice())
            + size_of_val(self.extras.as_slice())
            + texts.sum::<usize>()
    }
}

fn replace<K: PartialEq, V>(values: &mut Vec<(K, V)>, later: Vec<(K, V)>) {
    for (name, value) in later {
        match values.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => values.push((name, value)),
        }
    }
}

/// Rows as a batch, with those columns or all.
fn batch(rows: &[(i64, Arc<Row>)], wanted: Option<&[String]>) -> Part<Option<Batch>> {
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted.iter().any(|column| column == name));
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let mut refused: Option<ValueError> = None;
    let mut note = |outcome: Result<(), ValueError>| refused = refused.take().or(outcome.err());
    for (time_ns, row) in rows {
        let identity = builder.intern(&row.identity);
        let id = builder.row(*time_ns, identity);
        for (metric, value) in row.values.iter().filter(|(metric, _)| is_wanted(metric.metric().column)) {
            note(builder.set(id, *metric, *value));
        }
        for (name, value) in row.extras.iter().filter(|(name, _)| is_wanted(name)) {
            match value {
                ExtraValue::Text(text) => note(builder.set_extra_text(id, name, text)),
                ExtraValue::Number(number) => note(builder.set_extra(id, name, *number)),
            }
        }
    }
    let missing = refused.map(|error| format!("not all unknown columns of these rows: {error}"));
    Part { answer: builder.finish(Origin::default(), 0), missing: missing.into_iter().collect() }
}
