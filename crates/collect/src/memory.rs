//! A history in memory, for sinks whose rows nobody can query.
//!
//! [`MemoryHistory`] hands rows to its sink. Once these are durable it keeps the latest state of every GPU, and of each GPU the
//! newest rows of `gpu_events`. It starts empty. It answers for these, and refuses ranges of time and other tables.
//!
//! A GPU has at most [`CollectorSettings::max_entries`] rows, and no more bytes than its equal share of
//! [`CollectorSettings::cache_bytes`], but always its newest row. A row takes 160 bytes and 24 for each value. A value of an
//! unknown column takes 64 and the length of the name, a text 24 and its length more. Rows of a GPU share equal identities:
//! each takes 300 bytes, and for each of its texts 24 and the length. [`CollectorSettings::gpus_max`] GPUs have a latest state and
//! rows; if there are more, the longest silent leave first.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::ArrayRef;
use gpuvitals_core::batch::{MetricColumn, RowKeys, Value};
use gpuvitals_core::figures::Family;
use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, ChangeFeed, Changes, ExtraValue, Fleet, History, HistoryStats, LiveFleet,
    Part, QueryError, Rows, RowsQuery,
};
use gpuvitals_core::ports::{Answer, Sink, SinkError};
use gpuvitals_core::{
    Batch, BatchBuilder, Health, Identity, IdentityColumn, MetricId, Origin, Table, ValueError, clock,
};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::CollectorSettings;

/// Answers with rows that are worked on at a time.
const READERS_MAX: usize = 2;
/// Changes that a reader of [`History::changes`] may be behind; then it loses the oldest.
const CHANGES_MAX: usize = 256;
/// Bytes of a row beside its values and its identity, with its place in the map.
const ROW_BYTES: usize = 160;
/// Bytes of an identity beside its texts, with its place in the map.
const IDENTITY_BYTES: usize = 300;
/// Bytes of a shared text beside its characters.
const TEXT_BYTES: usize = 24;
const NOT_KEPT: &str = "collector.sinks has no store, so memory has the latest values and the newest rows of each GPU since the \
                        start, and nothing else; for ranges of time and other tables add store (--sinks store,jsonl)";

/// The latest state and the newest rows of what a sink has taken.
#[derive(Debug)]
pub struct MemoryHistory {
    sink: Arc<dyn Sink>,
    kept: Arc<Mutex<Kept>>,
    version: Arc<AtomicU64>,
    readers: Arc<Semaphore>,
    subscribers: ChangeFeed,
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
    /// Of the rows and the identities.
    bytes: usize,
    /// The identities of the rows, with the number of rows of each.
    identities: HashMap<Arc<Identity>, usize>,
}

#[derive(Debug, Clone)]
struct Row {
    identity: Arc<Identity>,
    values: Vec<(MetricId, Value)>,
    extras: Vec<(Arc<str>, ExtraValue)>,
}

/// A row with its time and the key of its GPU.
type Found = (i64, Arc<str>, Arc<Row>);

/// The columns of a batch, looked up once.
struct Columns<'a> {
    metrics: Vec<(MetricId, MetricColumn<'a>)>,
    extras: Vec<(Arc<str>, &'a ArrayRef)>,
}

impl MemoryHistory {
    /// A memory of the rows that this sink takes from now on.
    pub fn new(sink: Arc<dyn Sink>, settings: &CollectorSettings) -> Self {
        let kept = Kept {
            live: LiveFleet::new(settings.fleet_bounds()),
            shown: Arc::default(),
            version: 0,
            gpus: HashMap::new(),
            rows_max: settings.max_entries,
            bytes_max: settings.cache_bytes.as_usize(),
        };
        Self {
            sink,
            kept: Arc::new(Mutex::new(kept)),
            version: Arc::default(),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            subscribers: ChangeFeed::new(CHANGES_MAX),
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
        self.subscribers.send(batches.into());
    }

    /// Works on an answer on a thread for blocking work. That work counts as one of [`READERS_MAX`] until it ends, also if the
    /// answer is dropped before.
    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Mutex<Kept>) -> Part<T> + Send + 'static,
    ) -> Answered<'_, T> {
        let kept = Arc::clone(&self.kept);
        Box::pin(async move {
            let permit = Arc::clone(&self.readers).acquire_owned().await.map_err(QueryError::failed)?;
            let job = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                work(&kept)
            });
            job.await.map_err(QueryError::failed)
        })
    }
}

impl Sink for MemoryHistory {
    fn accept(&self, batches: Vec<Batch>) -> Answer<'_, Result<(), SinkError>> {
        Box::pin(async move {
            self.sink.accept(batches.clone()).await?;
            if !batches.is_empty() {
                self.take(batches);
            }
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
        let help = "GPUs that left the latest state because there were more than collector.gpus_max, the longest silent first.";
        let forgotten = lock(&self.kept).live.forgotten();
        let mut families = self.sink.families();
        families.push(Family::counter("gpuvitals_memory_gpus_forgotten_total", help, forgotten));
        families
    }
}

impl History for MemoryHistory {
    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Does not wait for those who ask for rows.
    fn fleet(&self) -> Answered<'_, Arc<Fleet>> {
        let (kept, version) = (Arc::clone(&self.kept), Arc::clone(&self.version));
        Box::pin(async move {
            let job = tokio::task::spawn_blocking(move || lock(&kept).fleet(&version));
            Ok(Part::whole(job.await.map_err(QueryError::failed)?))
        })
    }

    fn rows(&self, query: RowsQuery) -> Answered<'_, Rows> {
        if query.table != Table::GpuEvents || query.start_ns.is_some() || query.end_ns.is_some() {
            return Box::pin(ready(Err(QueryError::NotKept { reason: NOT_KEPT.into() })));
        }
        self.ask(move |kept| {
            let (found, total) = lock(kept).find(&query);
            let Part { answer: batch, missing } = batch(&page(found, &query), query.metrics.as_deref());
            Part { answer: Rows { batch, total: query.with_total.then_some(total) }, missing }
        })
    }

    fn buckets(&self, _query: BucketQuery) -> Answered<'_, Buckets> {
        Box::pin(ready(Err(QueryError::NotKept { reason: NOT_KEPT.into() })))
    }

    fn changes(&self) -> Box<dyn Changes> {
        self.subscribers.follow()
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
            own: json!({
                "gpus": kept.gpus.len(),
                "gpus_forgotten": kept.live.forgotten(),
                "rows_in_memory": rows,
                "bytes_in_memory": bytes,
            }),
        }
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
        let forgotten_before = self.live.forgotten();
        self.live.arrive(batch, &keys, clock::now_ns());
        let columns = Columns::of(batch);
        let gpus_before = self.gpus.len();
        for (row, (&time_ns, &id)) in batch.timestamps().iter().zip(&keys.ids).enumerate() {
            // One that the fleet does not hold has only rows that are ahead of the clock.
            let Some(key) = keys.keys.get(id as usize).filter(|key| self.live.holds(key)) else { continue };
            let gpu = self.gpus.entry(Arc::clone(key)).or_default();
            gpu.add(time_ns, columns.row(batch, row));
            gpu.trim(self.rows_max, usize::MAX);
        }
        if self.live.forgotten() > forgotten_before {
            self.gpus.retain(|key, _| self.live.holds(key));
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

    /// The present fleet; the version is that of the history.
    fn fleet(&mut self, version: &AtomicU64) -> Arc<Fleet> {
        if self.live.advance(clock::now_ns()) {
            self.version += 1;
            version.store(self.version, Ordering::Release);
        }
        if self.shown.version != self.version {
            self.live.set_version(self.version);
            self.shown = Arc::new(self.live.snapshot());
        }
        Arc::clone(&self.shown)
    }

    /// The rows among which the page is, and how many rows there are in all.
    fn find(&self, query: &RowsQuery) -> (Vec<Found>, usize) {
        let all = query.gpus.is_empty().then_some(&self.gpus).into_iter().flatten();
        let named = query.gpus.iter().filter_map(|key| self.gpus.get_key_value(key));
        let (mut found, mut total) = (Vec::new(), 0);
        let most = query.offset.saturating_add(query.limit);
        let is_selected = |row: &Row| query.selector.selects(|column| row.identity.get(column));
        for (key, gpu) in all.chain(named) {
            let rows = || gpu.rows.iter().filter(|(_, row)| is_selected(row));
            total += if query.selector.is_empty() { gpu.rows.len() } else { rows().count() };
            let behind = rows().filter(|(time_ns, _)| is_behind(**time_ns, key, query));
            let behind = behind.map(|(time_ns, row)| (*time_ns, Arc::clone(key), Arc::clone(row)));
            if query.newest_first {
                found.extend(behind.rev().take(most));
            } else {
                found.extend(behind.take(most));
            }
        }
        (found, total)
    }
}

/// Whether a row is behind the place after which the page begins.
fn is_behind(time_ns: i64, key: &Arc<str>, query: &RowsQuery) -> bool {
    query.after.as_ref().is_none_or(|after| {
        let by_time = time_ns.cmp(&after.timestamp_ns);
        let by_time = if query.newest_first { by_time.reverse() } else { by_time };
        by_time.then_with(|| key.cmp(&after.key)).is_gt()
    })
}

/// The rows of a page, in order.
fn page(mut found: Vec<Found>, query: &RowsQuery) -> Vec<Found> {
    found.sort_unstable_by(|(a_ns, a, _), (b_ns, b, _)| {
        let by_time = a_ns.cmp(b_ns);
        if query.newest_first { by_time.reverse() } else { by_time }.then_with(|| a.cmp(b))
    });
    found.into_iter().skip(query.offset).take(query.limit).collect()
}

impl GpuRows {
    /// Adds a row, or what it adds to the row of that time.
    fn add(&mut self, time_ns: i64, row: Row) {
        let mut row = match self.rows.remove(&time_ns) {
            None => row,
            Some(known) => {
                self.release(&known);
                let mut known = Arc::unwrap_or_clone(known);
                known.merge(row);
                known
            }
        };
        self.bytes += row.bytes();
        row.identity = self.share(row.identity);
        self.rows.insert(time_ns, Arc::new(row));
    }

    /// Drops the oldest rows beyond the bounds, but never the newest.
    fn trim(&mut self, rows_max: usize, bytes_max: usize) {
        while self.rows.len() > 1
            && (self.rows.len() > rows_max || self.bytes > bytes_max)
            && let Some((_, row)) = self.rows.pop_first()
        {
            self.release(&row);
        }
    }

    /// The identity for one more row.
    fn share(&mut self, identity: Arc<Identity>) -> Arc<Identity> {
        let mut rows = match self.identities.entry(identity) {
            Entry::Occupied(rows) => rows,
            Entry::Vacant(free) => {
                self.bytes += identity_bytes(free.key());
                free.insert_entry(0)
            }
        };
        *rows.get_mut() += 1;
        Arc::clone(rows.key())
    }

    /// Counts a row that was taken out, and its identity if it was the last row of it, no more.
    fn release(&mut self, row: &Row) {
        self.bytes -= row.bytes();
        if let Entry::Occupied(mut rows) = self.identities.entry(Arc::clone(&row.identity)) {
            *rows.get_mut() -= 1;
            if *rows.get() == 0 {
                rows.remove();
                self.bytes -= identity_bytes(&row.identity);
            }
        }
    }
}

fn identity_bytes(identity: &Identity) -> usize {
    let texts = IdentityColumn::ALL.iter().filter_map(|column| identity.get(*column));
    IDENTITY_BYTES + texts.map(|text| TEXT_BYTES + text.len()).sum::<usize>()
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

    /// Without the identity, which rows share. Names are counted for each row: only rows of one batch share them.
    fn bytes(&self) -> usize {
        let texts = self.extras.iter().map(|(name, value)| match value {
            ExtraValue::Number(_) => TEXT_BYTES + name.len(),
            ExtraValue::Text(text) => TEXT_BYTES + name.len() + TEXT_BYTES + text.len(),
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
    values.shrink_to_fit();
}

/// Rows as a batch, with those columns or all.
fn batch(rows: &[Found], wanted: Option<&[String]>) -> Part<Option<Batch>> {
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted.iter().any(|column| column == name));
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let mut refused: Option<ValueError> = None;
    let mut note = |outcome: Result<(), ValueError>| refused = refused.take().or(outcome.err());
    for (time_ns, _, row) in rows {
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
    let missing = refused.map(|error| format!("not all values of these rows: {error}"));
    Part { answer: builder.finish(Origin::default(), 0), missing: missing.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use gpuvitals_settings::Section;
    use gpuvitals_store::{Store, StoreConfig};
    use tokio::sync::oneshot;

    use super::*;

    fn memory(dir: &tempfile::TempDir, cache_bytes: &str) -> MemoryHistory {
        let settings = CollectorSettings::of(&[("collector.cache_bytes", cache_bytes.into())]).unwrap();
        MemoryHistory::new(Arc::new(Store::open(StoreConfig::new(dir.path())).unwrap().0), &settings)
    }

    /// A row of one GPU, with that many values of unknown columns.
    fn row(time_ns: i64, job: &str, unknown: usize) -> Batch {
        let identity = Identity::default().with(IdentityColumn::Uuid, "GPU-0");
        let identity = identity.and_then(|identity| identity.with(IdentityColumn::Job, job)).unwrap();
        let mut builder = BatchBuilder::new(Table::GpuEvents);
        let identity = builder.intern(&identity);
        let row = builder.row(time_ns, identity);
        builder.set(row, MetricId::of("power_w"), Value::Float(1.5)).unwrap();
        for column in 0..unknown {
            builder.set_extra_text(row, &format!("{}{column}", "name_".repeat(10)), "text").unwrap();
        }
        builder.finish(Origin::default(), 0).unwrap()
    }

    /// Bytes that the rows of a GPU hold: each piece once, however many rows share it.
    fn held(gpu: &GpuRows) -> usize {
        let mut pieces: HashMap<*const (), usize> = HashMap::new();
        for row in gpu.rows.values() {
            pieces.insert(Arc::as_ptr(row).cast(), size_of::<Row>());
            pieces.insert(row.values.as_ptr().cast(), row.values.capacity() * size_of::<(MetricId, Value)>());
            pieces.insert(
                row.extras.as_ptr().cast(),
                row.extras.capacity() * size_of::<(Arc<str>, ExtraValue)>(),
            );
            pieces.insert(Arc::as_ptr(&row.identity).cast(), size_of::<Identity>());
            let texts = IdentityColumn::ALL.iter().filter_map(|column| row.identity.shared(*column));
            let extras = row.extras.iter().flat_map(|(name, value)| match value {
                ExtraValue::Number(_) => [Some(name), None],
                ExtraValue::Text(text) => [Some(name), Some(text)],
            });
            for text in texts.chain(extras.flatten()) {
                pieces.insert(Arc::as_ptr(text).cast(), text.len());
            }
        }
        pieces.values().sum()
    }

    #[test]
    fn rows_hold_no_more_than_their_room_whatever_their_identities_and_names_are() {
        const ROOM: usize = 64 << 10;
        let dir = tempfile::tempdir().unwrap();
        let check = |case: &str, rows_min: usize, batch: &dyn Fn(i64) -> Batch| {
            let memory = memory(&tempfile::tempdir_in(&dir).unwrap(), "64KiB");
            for time_ns in 0..900 {
                // Now and then a row of a time that is there.
                memory.take(vec![batch(time_ns), batch(time_ns / 7 * 7)]);
            }
            let kept = lock(&memory.kept);
            let gpu = kept.gpus.get("GPU-0").unwrap();
            let (rows, bytes, held) = (gpu.rows.len(), gpu.bytes, held(gpu));
            assert!(held <= bytes && bytes <= ROOM && rows >= rows_min, "{case}: {rows}, {bytes}, {held}");
            assert!(gpu.identities.len() <= rows, "{case}: identities of rows that are gone");
            assert_eq!(gpu.identities.values().sum::<usize>(), rows, "{case}");
        };
        check("the same", 340, &|time_ns| row(time_ns, "job", 0));
        // Two sources of a GPU, say.
        check("in turns", 340, &|time_ns| row(time_ns, ["job-a", "job-b"][usize::from(time_ns % 2 == 0)], 0));
        check("always new", 80, &|time_ns| row(time_ns, &format!("{time_ns:0>250}"), 0));
        check("unknown columns", 45, &|time_ns| row(time_ns, "job", 8));
    }

    #[tokio::test]
    async fn work_on_an_answer_that_was_dropped_counts_until_it_ends_and_the_fleet_does_not_wait_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let memory = memory(&dir, "64KiB");
        let mut working = Vec::new();
        for _ in 0..READERS_MAX {
            let (begun, has_begun) = oneshot::channel();
            let (go_on, may_go_on) = mpsc::sync_channel(1);
            let mut answer = memory.ask::<()>(move |_| {
                begun.send(()).unwrap();
                may_go_on.recv().unwrap();
                Part::whole(())
            });
            tokio::select! {
                _ = &mut answer => panic!("it waits"),
                begun = has_begun => begun.unwrap(),
            }
            working.push(go_on);
        }
        assert_eq!(memory.readers.available_permits(), 0);
        assert!(memory.fleet().await.unwrap().answer.gpus.is_empty());
        let mut rows = memory.rows(RowsQuery::of(Table::GpuEvents, 1));
        assert!(rows.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        for go_on in working {
            go_on.send(()).unwrap();
        }
        assert!(rows.await.unwrap().answer.batch.is_none());
    }
}
