//! The gateway's view of all other parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_api::{Peer, StatusView};
use gpuvitals_core::Health;
use gpuvitals_core::clock;
use gpuvitals_core::clusters::ClusterView;
use gpuvitals_core::figures::Family;
use gpuvitals_core::ports::Sink;
use gpuvitals_queue::Queue;
use serde::Serialize;
use serde_json::json;

use crate::clusters::ClusterReaders;
use crate::pipe::{self, FINDING_ROWS, SidePipe, worst};
use crate::watched::Watched;

/// Name of a part of this process among others.
const HERE: &str = "this process";
/// Age of the newest row from which a store that is only served is a recording.
const RECORDED_AFTER: Duration = Duration::from_hours(1);

/// The queue, wherever it is.
#[derive(Debug)]
pub(crate) enum StatusQueue {
    /// In this process, with its address.
    Here(Queue, String),
    /// Its health is that of the ways to it.
    Elsewhere(Watched),
}

/// Queue, collector and source as the gateway sees them.
#[derive(Debug)]
pub(crate) struct Status {
    queue: StatusQueue,
    queue_health: Mutex<Health>,
    collector: Arc<gpuvitals_collect::CollectorProgress>,
    /// Kind of the source, and its progress; unused without a source.
    source: (&'static str, Arc<pipe::Progress>),
    sink: Arc<dyn Sink>,
    /// Workers of the collector.
    workers: usize,
    clusters: Option<Arc<ClusterReaders>>,
    findings: Arc<SidePipe>,
}

impl Status {
    /// The view over these parts.
    pub(crate) fn new(
        queue: StatusQueue,
        source: (&'static str, Arc<pipe::Progress>),
        (sink, workers): (Arc<dyn Sink>, usize),
        (clusters, findings): (Option<Arc<ClusterReaders>>, Arc<SidePipe>),
    ) -> Self {
        Self {
            queue,
            queue_health: Mutex::new(Health::healthy(clock::now_ns())),
            collector: Arc::new(gpuvitals_collect::CollectorProgress::new()),
            source,
            sink,
            workers,
            clusters,
            findings,
        }
    }

    /// Records the health of parts that report only when asked: a state begins with the first check that
    /// finds it.
    pub(crate) fn look(&self) {
        self.queue_health();
        self.collector.health();
    }

    fn queue_health(&self) -> Health {
        let of_clusters = self.clusters.as_ref().map(|clusters| clusters.queue());
        worst(self.own_queue_health(), of_clusters.into_iter().chain([self.findings.queue()]))
    }

    fn own_queue_health(&self) -> Health {
        let StatusQueue::Here(queue, _) = &self.queue else {
            // Whether it takes rows, and whether it can be reached to give them.
            let (takes, gives) = (self.source.1.queue(), self.collector.reach());
            return if takes.status < gives.status { gives } else { takes };
        };
        let seen = queue.health();
        let mut health = self.queue_health.lock().unwrap_or_else(PoisonError::into_inner);
        health.observe(seen.status, seen.reasons.join("; "), clock::now_ns());
        health.clone()
    }

    /// Whether others send rows: those of the findings are this process's own.
    fn takes_rows(&self) -> bool {
        self.collector.rows_stored.load(Ordering::Relaxed) > self.findings.rows()
    }

    /// The collector's progress, for its workers to write.
    pub(crate) fn collector(&self) -> &Arc<gpuvitals_collect::CollectorProgress> {
        &self.collector
    }
}

/// The source of the rows, and its progress.
#[derive(Serialize)]
struct SourceStatus {
    kind: &'static str,
    /// Everything that was read is published, and nothing more comes.
    ended: bool,
    #[serde(flatten)]
    counts: pipe::SourceCounts,
    rows_published: u64,
    rows_stored: u64,
    rows_refused_future: u64,
    messages_refused: u64,
    store_failures: u64,
}

impl StatusView for Status {
    fn queues(&self) -> Vec<Peer> {
        let (name, stats) = match &self.queue {
            StatusQueue::Here(queue, address) => {
                (address.clone(), serde_json::to_value(queue.stats()).unwrap_or_default())
            }
            StatusQueue::Elsewhere(watched) => {
                let Peer { name, stats, .. } = watched.peer();
                (name, stats)
            }
        };
        vec![Peer { name, health: self.queue_health(), stats }]
    }

    fn collectors(&self) -> Vec<Peer> {
        let rows = self.collector.rows_stored.load(Ordering::Relaxed);
        let stats = json!({ "total_processed": rows });
        vec![Peer { name: HERE.to_owned(), health: self.collector.health(), stats }]
    }

    fn clusters(&self) -> Vec<Arc<ClusterView>> {
        self.clusters.as_ref().map(|clusters| clusters.views()).unwrap_or_default()
    }

    fn source(&self) -> serde_json::Value {
        let (kind, progress) = &self.source;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let shown = SourceStatus {
            kind,
            // Before the counts, so that those beside it are the last ones.
            ended: progress.has_ended(),
            counts: progress.source(),
            rows_published: progress.counts().rows,
            rows_stored: count(&self.collector.rows_stored),
            rows_refused_future: count(&self.collector.rows_future),
            messages_refused: count(&self.collector.messages_refused),
            store_failures: count(&self.collector.store_failures),
        };
        serde_json::to_value(shown).unwrap_or_default()
    }

    fn recorded_after(&self) -> Option<Duration> {
        match &self.source {
            ("replay", progress) if progress.has_ended() => Some(Duration::ZERO),
            // What stores rows or reads clusters has GPUs that fall silent, and no recording that ends.
            ("none", _) if self.clusters.is_none() && !self.takes_rows() => Some(RECORDED_AFTER),
            _ => None,
        }
    }

    fn recorded_until(&self) -> Option<i64> {
        let (kind, progress) = &self.source;
        (*kind == "replay").then(|| progress.ended_at()).flatten()
    }

    fn families(&self) -> Vec<Family> {
        let mut families = gpuvitals_collect::families(&self.collector, self.workers);
        families.extend(self.sink.families());
        families.extend(self.source.1.families(1));
        families.extend(self.clusters.iter().flat_map(|clusters| clusters.families()));
        families.extend(self.findings.families(FINDING_ROWS));
        families.extend(crate::outgoing::families());
        families
    }
}
