//! The store as a [`History`], by its writer and by a view beside it. Files are read on threads for blocking work, and no
//! further once nobody waits for the answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, Change, Changes, Fleet, History, HistoryStats, Part, QueryError, Rows,
    RowsQuery, TakeRows,
};
use gpuvitals_core::ports::Answer;
use gpuvitals_core::usage::{GpuUse, UseQuery};
use gpuvitals_core::{Batch, Health, Table};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::jobs::Job;
use crate::query;
use crate::reader::Reading;
use crate::recent::{NewestRows, Recent};
use crate::shared::count;
use crate::snapshot::Snapshot;
use crate::store::{Store, StoreInner};
use crate::view::StoreView;

impl History for Store {
    fn version(&self) -> u64 {
        self.version()
    }

    fn fleet(&self) -> Answered<'_, Arc<Fleet>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let missing = inner.shared.fleet_missing.clone();
            if let Some(answer) = inner.shared.shown() {
                return Ok(Part { answer, missing });
            }
            let job = tokio::task::spawn_blocking(move || inner.shared.fleet());
            let answer = job.await.map_err(QueryError::failed)?;
            Ok(Part { answer, missing })
        })
    }

    fn rows(&self, query: RowsQuery) -> Answered<'_, Rows> {
        self.work(move |inner, abandoned| inner.rows(&query, abandoned))
    }

    fn sweep(&self, query: RowsQuery, take: TakeRows) -> Answered<'_, ()> {
        self.work(move |inner, abandoned| inner.sweep(&query, &take, abandoned))
    }

    fn buckets(&self, query: BucketQuery) -> Answered<'_, Buckets> {
        self.work(move |inner, abandoned| inner.buckets(&query, abandoned))
    }

    fn usage(&self, query: UseQuery) -> Answered<'_, Vec<GpuUse>> {
        self.work(move |inner, abandoned| inner.usage(&query, abandoned))
    }

    fn changes(&self) -> Box<dyn Changes> {
        self.0.shared.subscribers.follow()
    }

    fn health(&self) -> Health {
        self.health()
    }

    fn stats(&self) -> HistoryStats {
        let stats = self.stats();
        HistoryStats {
            rows_on_disk: Some(stats.flushed.rows + stats.merged.rows),
            rows_in_memory: Some(stats.tail_rows + stats.recent_rows),
            // Names and numbers: always JSON.
            own: serde_json::to_value(stats).unwrap_or_default(),
        }
    }
}

impl History for StoreView {
    fn version(&self) -> u64 {
        0
    }

    fn fleet(&self) -> Answered<'_, Arc<Fleet>> {
        Box::pin(std::future::ready(Ok(self.0.fleet.clone())))
    }

    fn rows(&self, query: RowsQuery) -> Answered<'_, Rows> {
        let seen = Arc::clone(&self.0);
        work(&self.0.readers, move |abandoned| seen.reading(abandoned, |it| query::range(it, &query)))
    }

    fn sweep(&self, query: RowsQuery, take: TakeRows) -> Answered<'_, ()> {
        let seen = Arc::clone(&self.0);
        work(&self.0.readers, move |abandoned| seen.reading(abandoned, |it| query::sweep(it, &query, &take)))
    }

    fn buckets(&self, query: BucketQuery) -> Answered<'_, Buckets> {
        let seen = Arc::clone(&self.0);
        work(&self.0.readers, move |abandoned| seen.reading(abandoned, |it| query::buckets(it, &query)))
    }

    fn usage(&self, query: UseQuery) -> Answered<'_, Vec<GpuUse>> {
        let seen = Arc::clone(&self.0);
        work(&self.0.readers, move |abandoned| seen.reading(abandoned, |it| query::usage(it, &query)))
    }

    fn changes(&self) -> Box<dyn Changes> {
        Box::new(Unchanged)
    }

    fn health(&self) -> Health {
        self.0.health.clone()
    }

    fn stats(&self) -> HistoryStats {
        let Snapshot { files, tail, .. } = &self.0.snapshot;
        HistoryStats {
            rows_on_disk: Some(files.iter().map(|file| file.rows).sum()),
            rows_in_memory: Some(tail.iter().map(|chunk| chunk.records.num_rows() as u64).sum()),
            own: json!({ "files": files.len(), "gpus": self.0.fleet.answer.gpus.len() }),
        }
    }
}

/// The changes of a view: none.
#[derive(Debug)]
struct Unchanged;

impl Changes for Unchanged {
    fn next(&mut self) -> Answer<'_, Option<Change>> {
        Box::pin(std::future::ready(None))
    }
}

/// Works on an answer on a thread for blocking work, as many at a time as there are permits. If the answer is dropped first,
/// the token is cancelled.
fn work<'a, T: Send + 'static>(
    readers: &Arc<Semaphore>,
    work: impl FnOnce(&CancellationToken) -> Result<Part<T>, QueryError> + Send + 'static,
) -> Answered<'a, T> {
    let readers = Arc::clone(readers);
    Box::pin(async move {
        let permit = readers.acquire_owned().await.map_err(QueryError::failed)?;
        let abandoned = CancellationToken::new();
        let _guard = abandoned.clone().drop_guard();
        let job = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&abandoned)
        });
        job.await.unwrap_or_else(|error| Err(QueryError::failed(error)))
    })
}

impl Store {
    fn work<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&StoreInner, &CancellationToken) -> Result<Part<T>, QueryError> + Send + 'static,
    ) -> Answered<'_, T> {
        let inner = Arc::clone(&self.0);
        work(&self.0.shared.readers, move |abandoned| ask(&inner, abandoned))
    }
}

impl StoreInner {
    fn rows(&self, query: &RowsQuery, abandoned: &CancellationToken) -> Result<Part<Rows>, QueryError> {
        let snapshot = self.shared.snapshot.load_full();
        let reading = Reading { reader: &self.shared.reader, snapshot: &snapshot, abandoned };
        let rows = match self.at_an_end(query, reading)? {
            Some(rows) => rows,
            None => query::range(reading, query)?,
        };
        if !rows.missing.is_empty() {
            self.inspect(&snapshot);
        }
        Ok(rows)
    }

    /// Rows at an end of a GPU's history, if that is the question and memory has all of them.
    fn at_an_end(&self, query: &RowsQuery, reading: Reading<'_>) -> Result<Option<Part<Rows>>, QueryError> {
        let [gpu] = query.gpus.as_slice() else { return Ok(None) };
        if query.table != Table::GpuEvents
            || query.with_total
            || query.start_ns.is_some()
            || query.end_ns.is_some()
        {
            return Ok(None);
        }
        let counters = &self.shared.counters;
        count(&counters.asked, 1);
        let Some((held, from_memory)) = self.recent(gpu, reading)? else { return Ok(None) };
        let tail = held.chunk.into_iter().chain(reading.snapshot.tail.iter().cloned()).collect();
        let memory = Snapshot { lost: Arc::clone(&reading.snapshot.lost), tail, ..Snapshot::default() };
        let above = RowsQuery { start_ns: Some(held.floor_ns), ..query.clone() };
        let rows = query::range(Reading { snapshot: &memory, ..reading }, &above)?;
        let found = rows.answer.batch.as_ref().map_or(0, Batch::rows);
        let whole = held.floor_ns == i64::MIN || query.newest_first && found == query.limit;
        count(&counters.from_memory, u64::from(whole && from_memory));
        Ok(whole.then_some(rows))
    }

    /// The newest rows in files of a GPU, and whether memory had them. None if memory is to have none, or a file cannot be
    /// read.
    fn recent(&self, gpu: &Arc<str>, reading: Reading<'_>) -> Result<Option<(NewestRows, bool)>, QueryError> {
        let Some(recent) = &self.shared.recent else { return Ok(None) };
        let Snapshot { files, flushes, .. } = reading.snapshot;
        if let Some(held) = recent.held(gpu, *flushes) {
            return Ok(Some((held, true)));
        }
        let files = Snapshot { files: Arc::clone(files), ..Snapshot::default() };
        let rows = query::range(Reading { snapshot: &files, ..reading }, &newest(gpu, recent))?;
        if !rows.missing.is_empty() {
            return Ok(None);
        }
        Ok(Some((recent.keep(gpu, &rows.answer, *flushes)?, false)))
    }

    fn sweep(
        &self,
        query: &RowsQuery,
        take: &TakeRows,
        abandoned: &CancellationToken,
    ) -> Result<Part<()>, QueryError> {
        let snapshot = self.shared.snapshot.load_full();
        let reading = Reading { reader: &self.shared.reader, snapshot: &snapshot, abandoned };
        let swept = query::sweep(reading, query, take)?;
        if !swept.missing.is_empty() {
            self.inspect(&snapshot);
        }
        Ok(swept)
    }

    fn buckets(
        &self,
        query: &BucketQuery,
        abandoned: &CancellationToken,
    ) -> Result<Part<Buckets>, QueryError> {
        let snapshot = self.shared.snapshot.load_full();
        let reading = Reading { reader: &self.shared.reader, snapshot: &snapshot, abandoned };
        let buckets = query::buckets(reading, query)?;
        self.inspect(&snapshot);
        Ok(buckets)
    }

    fn usage(
        &self,
        query: &UseQuery,
        abandoned: &CancellationToken,
    ) -> Result<Part<Vec<GpuUse>>, QueryError> {
        let snapshot = self.shared.snapshot.load_full();
        let reading = Reading { reader: &self.shared.reader, snapshot: &snapshot, abandoned };
        let uses = query::usage(reading, query)?;
        self.inspect(&snapshot);
        Ok(uses)
    }

    /// Has condemned files set aside.
    fn inspect(&self, snapshot: &Snapshot) {
        // One at a time: the keeper's queue has room for everything else.
        if snapshot.files.iter().chain(snapshot.rollups.iter()).any(|file| file.damage().is_some())
            && !self.shared.inspecting.swap(true, Ordering::AcqRel)
            && self.jobs.try_send(Job::Inspect).is_err()
        {
            self.shared.inspecting.store(false, Ordering::Release);
        }
    }
}

/// The rows of a GPU that memory may keep.
fn newest(gpu: &Arc<str>, recent: &Recent) -> RowsQuery {
    RowsQuery {
        gpus: vec![Arc::clone(gpu)],
        newest_first: true,
        with_total: true,
        ..RowsQuery::of(Table::GpuEvents, recent.rows_max)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};

    use gpuvitals_core::history::{Aggregate, Selector};
    use gpuvitals_core::{MetricId, causes};
    use gpuvitals_rig::waiting::{PATIENCE, soon};
    use tokio::sync::oneshot;

    use super::*;
    use crate::config::StoreConfig;

    #[tokio::test]
    async fn work_on_an_answer_that_was_dropped_goes_no_further() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(StoreConfig::new(dir.path())).unwrap();
        let (begun, has_begun) = oneshot::channel();
        let (go_on, may_go_on) = mpsc::sync_channel(1);
        let (outcome, result) = oneshot::channel();
        let mut answer = store.work::<()>(move |inner, abandoned| {
            begun.send(()).unwrap();
            may_go_on.recv_timeout(PATIENCE).expect("leave to go on");
            let rows = inner.rows(&RowsQuery::of(Table::GpuEvents, 1), abandoned);
            let buckets = inner.buckets(&whole_day(), abandoned);
            outcome.send((rows.map(drop), buckets.map(drop))).unwrap();
            Ok(Part::whole(()))
        });
        tokio::select! {
            _ = &mut answer => panic!("it waits"),
            begun = has_begun => begun.unwrap(),
        }
        drop(answer);
        go_on.send(()).unwrap();
        let (rows, buckets) = soon("the end of what nobody waits for", result).await.unwrap();
        for error in [rows.unwrap_err(), buckets.unwrap_err()] {
            assert!(causes(&error).contains("nobody waits"), "{error}");
        }
    }

    #[tokio::test]
    async fn who_asks_for_fleet_or_counts_is_not_held_up_by_the_writer() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(StoreConfig::new(dir.path())).unwrap();
        let mut nobody = Context::from_waker(Waker::noop());
        let shown = store.fleet();
        let shared = Arc::clone(&store.0);
        let mut answer = {
            let _writing = shared.shared.fleet.lock().unwrap();
            let Poll::Ready(current) = History::fleet(&store).as_mut().poll(&mut nobody) else {
                panic!("what is shown is current")
            };
            assert!(Arc::ptr_eq(&current.unwrap().answer, &shown));
            shared.shared.version.fetch_add(1, Ordering::AcqRel);
            assert_eq!(store.stats().gpus, 0);
            let mut answer = History::fleet(&store);
            assert!(answer.as_mut().poll(&mut nobody).is_pending());
            answer
        };
        assert_eq!(answer.as_mut().await.unwrap().answer.gpus.len(), 0);
    }

    fn whole_day() -> BucketQuery {
        BucketQuery {
            table: Table::GpuEvents,
            gpus: Vec::new(),
            selector: Selector::default(),
            metrics: vec![MetricId::of("power_w")],
            start_ns: 0,
            end_ns: 86_400_000_000_000,
            step_ns: 60_000_000_000,
            phase_ns: 0,
            aggregates: vec![Aggregate::Mean],
            group_by: Vec::new(),
        }
    }
}
