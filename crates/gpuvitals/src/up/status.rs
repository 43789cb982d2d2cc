//! What the gateway shows of everybody else.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use gpuvitals_api::StatusView;
use gpuvitals_core::Health;
use gpuvitals_core::clock;
use gpuvitals_core::figures::Family;
use gpuvitals_queue::Queue;
use gpuvitals_store::Store;
use serde_json::json;

use crate::{collect, pipe};

/// Queue, collector and source as the gateway sees them.
#[derive(Debug)]
pub(crate) struct Status {
    /// None: it is elsewhere, and tells its statistics itself.
    queue: Option<Queue>,
    queue_health: Mutex<Health>,
    collector: Arc<collect::Progress>,
    source: Option<Arc<pipe::Progress>>,
    kind: &'static str,
    store: Store,
    /// Workers of the collector.
    workers: usize,
}

impl Status {
    /// The view over these parts.
    pub(crate) fn new(
        queue: Option<Queue>,
        source: Option<Arc<pipe::Progress>>,
        kind: &'static str,
        (store, workers): (Store, usize),
    ) -> Self {
        Self {
            queue,
            queue_health: Mutex::new(Health::healthy(clock::now_ns())),
            collector: Arc::new(collect::Progress::new()),
            source,
            kind,
            store,
            workers,
        }
    }

    /// Notes how the parts are that tell it only when they are asked: since when is the first look that found them so.
    pub(crate) fn look(&self) {
        self.queue_health();
        self.collector_health();
    }

    /// The collector's progress, for its workers to write.
    pub(crate) fn collector(&self) -> &Arc<collect::Progress> {
        &self.collector
    }
}

impl StatusView for Status {
    fn queue_stats(&self) -> serde_json::Value {
        match &self.queue {
            Some(queue) => serde_json::to_value(queue.stats()).unwrap_or_default(),
            None => json!({}),
        }
    }

    fn queue_health(&self) -> Health {
        let Some(queue) = &self.queue else {
            let healthy = || Health::healthy(clock::now_ns());
            return self.source.as_ref().map_or_else(healthy, |source| source.queue());
        };
        let seen = queue.health();
        let mut health = self.queue_health.lock().unwrap_or_else(PoisonError::into_inner);
        health.observe(seen.status, seen.reasons.join("; "), clock::now_ns());
        health.clone()
    }

    fn collector_health(&self) -> Health {
        self.collector.health()
    }

    fn source(&self) -> serde_json::Value {
        let mut json = self.source.as_ref().map_or_else(|| json!({}), |progress| progress.to_json());
        if let Some(object) = json.as_object_mut() {
            object.insert("kind".to_owned(), self.kind.into());
            let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
            object.insert("rows_stored".to_owned(), count(&self.collector.rows_stored).into());
            object.insert("rows_refused_future".to_owned(), count(&self.collector.rows_future).into());
            object.insert("messages_refused".to_owned(), count(&self.collector.messages_refused).into());
            object.insert("store_failures".to_owned(), count(&self.collector.store_failures).into());
        }
        json
    }

    fn families(&self) -> Vec<Family> {
        let mut families = collect::families(&self.collector, &self.store.stats(), self.workers);
        families.extend(self.source.iter().flat_map(|source| source.families()));
        families.extend(crate::telemetry::families());
        families
    }
}
