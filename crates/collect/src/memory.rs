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

mod kept;
mod rows;

use std::future::ready;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuvitals_core::figures::Family;
use gpuvitals_core::history::{
    Answered, BucketQuery, Buckets, ChangeFeed, Changes, Fleet, History, HistoryStats, Part, QueryError,
    Rows, RowsQuery,
};
use gpuvitals_core::ports::{Answer, Sink, SinkError};
use gpuvitals_core::{Batch, Health, Table};
use serde_json::json;
use tokio::sync::Semaphore;

use self::kept::KeptGpus;
use crate::CollectorSettings;

/// Answers with rows that are worked on at a time.
const READERS_MAX: usize = 2;
/// Changes that a reader of [`History::changes`] may be behind; then it loses the oldest.
const CHANGES_MAX: usize = 256;
const NOT_KEPT: &str = "collector.sinks has no store, so memory has the latest values and the newest rows of each GPU since the \
                        start, and nothing else; for ranges of time and other tables add store (--sinks store,jsonl)";

/// The latest state and the newest rows of what a sink has taken.
#[derive(Debug)]
pub struct MemoryHistory {
    sink: Arc<dyn Sink>,
    kept: Arc<Mutex<KeptGpus>>,
    version: Arc<AtomicU64>,
    readers: Arc<Semaphore>,
    subscribers: ChangeFeed,
}

impl MemoryHistory {
    /// A memory of the rows that this sink takes from now on.
    pub fn new(sink: Arc<dyn Sink>, settings: &CollectorSettings) -> Self {
        Self {
            sink,
            kept: Arc::new(Mutex::new(KeptGpus::new(settings))),
            version: Arc::default(),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            subscribers: ChangeFeed::new(CHANGES_MAX),
        }
    }

    /// Shows rows that are durable.
    fn take(&self, mut batches: Vec<Batch>) {
        batches.iter_mut().for_each(Batch::forget_wire);
        let mut kept = lock(&self.kept);
        self.version.store(kept.take(&batches), Ordering::Release);
        drop(kept);
        self.subscribers.send(batches.into());
    }

    /// Works on an answer on a thread for blocking work. That work counts as one of [`READERS_MAX`] until it ends, also if the
    /// answer is dropped before.
    fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Mutex<KeptGpus>) -> Part<T> + Send + 'static,
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
        let forgotten = lock(&self.kept).counts().forgotten;
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
            let Part { answer: batch, missing } = kept::page(found, &query);
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
        let counts = lock(&self.kept).counts();
        HistoryStats {
            rows_on_disk: None,
            rows_in_memory: Some(counts.rows as u64),
            own: json!({
                "gpus": counts.gpus,
                "gpus_forgotten": counts.forgotten,
                "rows_in_memory": counts.rows,
                "bytes_in_memory": counts.bytes,
            }),
        }
    }
}

fn lock(kept: &Mutex<KeptGpus>) -> MutexGuard<'_, KeptGpus> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    use gpuvitals_rig::waiting::{PATIENCE, soon};
    use gpuvitals_settings::Section;
    use gpuvitals_store::{Store, StoreConfig};
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_on_an_answer_that_was_dropped_counts_until_it_ends_and_the_fleet_does_not_wait_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(StoreConfig::new(dir.path())).unwrap().0;
        let memory = MemoryHistory::new(Arc::new(store), &CollectorSettings::of(&[]).unwrap());
        let mut working = Vec::new();
        for _ in 0..READERS_MAX {
            let (begun, has_begun) = oneshot::channel();
            let (go_on, may_go_on) = mpsc::sync_channel(1);
            let mut answer = memory.ask::<()>(move |_| {
                begun.send(()).unwrap();
                may_go_on.recv_timeout(PATIENCE).expect("leave to go on");
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
        assert!(soon("an answer with a reader", rows).await.unwrap().answer.batch.is_none());
    }
}
