//! A store with a small fleet in it, and a gateway in front.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use gpuvitals_api::{Api, ApiConfig, Beside, Page, Peer, StatusView, serve};
use gpuvitals_core::batch::Value;
use gpuvitals_core::clock::Clock;
use gpuvitals_core::clusters::ClusterView;
use gpuvitals_core::feed::{self, Feed};
use gpuvitals_core::time::{self, SECOND_NS};
use gpuvitals_core::{Batch, BatchBuilder, Health, Identity, IdentityColumn, Origin, Table, catalogue};
use gpuvitals_flight::JobIncidents;
use gpuvitals_listener::{AcceptError, Access};
use gpuvitals_store::{Store, StoreConfig};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::{Answer, request};

/// The time in the tests.
pub(crate) const NOW: &str = "2026-11-20T16:00:00Z";

pub(crate) fn now_ns() -> i64 {
    time::parse(NOW).unwrap()
}

/// The other parts of the program.
pub(crate) struct Parts {
    pub(crate) queue: Mutex<Health>,
    pub(crate) collector: Mutex<Health>,
    pub(crate) breaks: Mutex<bool>,
    pub(crate) clusters: Mutex<Vec<Arc<ClusterView>>>,
    /// Age of the newest row from which all rows are a recording.
    pub(crate) recorded_after: Mutex<Option<Duration>>,
    /// The newest row of a recording that was read to its end.
    pub(crate) recorded_until: Mutex<Option<i64>>,
    more_collectors: Mutex<Vec<Peer>>,
}

impl Parts {
    /// More collectors, beside the one that the tests change.
    pub(crate) fn add_collector(&self, peer: Peer) {
        self.more_collectors.lock().unwrap().push(peer);
    }
}

impl StatusView for Parts {
    fn queues(&self) -> Vec<Peer> {
        let stats = json!({
            "topics": {"gpu-telemetry": {"messages": 3, "subscribers": 1, "throughput_msg_per_sec": 12.5}},
            "total_processed": 4711, "uptime_seconds": 60.5, "dead_letters": 2
        });
        vec![Peer { name: "q:9090".to_owned(), health: self.queue.lock().unwrap().clone(), stats }]
    }

    fn collectors(&self) -> Vec<Peer> {
        let health = self.collector.lock().unwrap().clone();
        let one = Peer { name: "c:8080".to_owned(), health, stats: json!({"total_processed": 7}) };
        std::iter::once(one).chain(self.more_collectors.lock().unwrap().clone()).collect()
    }

    fn clusters(&self) -> Vec<Arc<ClusterView>> {
        self.clusters.lock().unwrap().clone()
    }

    fn recorded_after(&self) -> Option<Duration> {
        *self.recorded_after.lock().unwrap()
    }

    fn recorded_until(&self) -> Option<i64> {
        *self.recorded_until.lock().unwrap()
    }

    fn source(&self) -> serde_json::Value {
        assert!(!*self.breaks.lock().unwrap(), "the source is broken");
        json!({"kind": "simulated", "rows": 9})
    }
}

/// A running gateway.
pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) store: Store,
    pub(crate) parts: Arc<Parts>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) served: JoinHandle<Result<(), AcceptError>>,
    now: Arc<AtomicI64>,
    findings: Mutex<Feed>,
    _dir: TempDir,
}

impl World {
    /// An empty store, with settings changed.
    pub(crate) async fn empty(change: impl FnOnce(&mut ApiConfig, &mut StoreConfig)) -> Self {
        Self::with(Vec::new(), change).await
    }

    /// One whose history has these rows before anybody looks at it: a minute is judged once.
    pub(crate) async fn with(
        rows: Vec<Batch>,
        change: impl FnOnce(&mut ApiConfig, &mut StoreConfig),
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let now = Arc::new(AtomicI64::new(now_ns()));
        let ticking = Arc::clone(&now);
        let mut config = ApiConfig {
            clock: Clock::new(move || ticking.load(Ordering::Relaxed)),
            page: Page::none(),
            ..ApiConfig::default()
        };
        // Each test sets for itself when an answer may be reused.
        config.limits.reuse = Duration::ZERO;
        let mut store_config = StoreConfig::new(dir.path().join("store"));
        change(&mut config, &mut store_config);
        let (store, _) = tokio::task::spawn_blocking(|| Store::open(store_config)).await.unwrap().unwrap();
        if !rows.is_empty() {
            store.append(rows).await.unwrap();
        }
        let parts = Arc::new(Parts {
            queue: Mutex::new(Health::healthy(now_ns())),
            collector: Mutex::new(Health::healthy(now_ns())),
            breaks: Mutex::new(false),
            clusters: Mutex::default(),
            recorded_after: Mutex::default(),
            recorded_until: Mutex::default(),
            more_collectors: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let api = Api::new(config, Arc::new(store.clone()), Arc::clone(&parts) as Arc<dyn StatusView>);
        let (outlet, feed) = feed::open();
        api.keep_findings(outlet, "gateway");
        let incidents = JobIncidents::open(&dir.path().join("flight"), 20).unwrap();
        api.keep_flight(Arc::new(incidents), vec!["job_hung".to_owned()]);
        let served = tokio::spawn(serve(
            listener,
            api,
            Beside::reading(Router::new()),
            Access::open(),
            shutdown.clone(),
        ));
        Self { address, store, parts, shutdown, served, now, findings: Mutex::new(feed), _dir: dir }
    }

    /// The fleet of [`fleet`] in a gateway with default settings.
    pub(crate) async fn new() -> Self {
        let world = Self::empty(|_, _| ()).await;
        world.append(fleet()).await;
        world
    }

    pub(crate) async fn append(&self, batch: Batch) {
        self.store.append(vec![batch]).await.unwrap();
    }

    /// Stores the rows that findings and silences have made, and returns them.
    pub(crate) async fn store_findings(&self) -> Vec<Batch> {
        let rows = self.findings.lock().unwrap().rest();
        self.store.append(rows.clone()).await.unwrap();
        rows
    }

    pub(crate) fn set_time(&self, ns: i64) {
        self.now.store(ns, Ordering::Relaxed);
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        request(self.address, "GET", path, "").await
    }

    /// The JSON of an answer that must be 200.
    pub(crate) async fn ok(&self, path: &str) -> serde_json::Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
        answer.json()
    }
}

/// A row: GPU, seconds before now, values.
pub(crate) type Row<'a> = (Identity, i64, &'a [(&'a str, f64)]);

/// Rows of GPUs.
pub(crate) fn rows(rows: &[Row<'_>]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for (identity, seconds_ago, values) in rows {
        let identity = builder.intern(identity);
        let row = builder.row(now_ns() - seconds_ago * SECOND_NS, identity);
        for (column, value) in *values {
            match catalogue::by_column(column) {
                Some(id) => builder.set(row, id, Value::Float(*value)).unwrap(),
                None => builder.set_extra(row, column, *value).unwrap(),
            }
        }
    }
    builder.finish(Origin { node: Arc::from("test"), started_ns: 1 }, 1).unwrap()
}

/// A simulated GPU.
pub(crate) fn gpu(uuid: &str, node: &str, index: i32, model: &str) -> Identity {
    let vendor = if model.starts_with("AMD") { "amd" } else { "nvidia" };
    let texts = [
        (IdentityColumn::Uuid, uuid),
        (IdentityColumn::Node, node),
        (IdentityColumn::Vendor, vendor),
        (IdentityColumn::Model, model),
        (IdentityColumn::Source, "simulated"),
    ];
    let mut identity = Identity::default();
    identity.index = Some(index);
    for (column, text) in texts {
        identity.set(column, text).unwrap();
    }
    identity
}

/// Two hosts and five GPUs, one in each state: `GPU-a` active, `GPU-b` idle, `GPU-c` unhealthy, `GPU-d` stale and, with
/// a name to be encoded and without a host, `rack@7` unknown.
pub(crate) fn fleet() -> Batch {
    let h100 = "NVIDIA H100 80GB HBM3";
    let mi300 = "AMD Instinct MI300X";
    let a = gpu("GPU-a", "sim-node-01", 0, h100)
        .with(IdentityColumn::Driver, "570.86.15")
        .and_then(|gpu| gpu.with(IdentityColumn::Pci, "0000:1b:00.0"))
        .and_then(|gpu| gpu.with(IdentityColumn::Pod, "train-7"))
        .and_then(|gpu| gpu.with(IdentityColumn::Namespace, "research"))
        .unwrap();
    let b = gpu("GPU-b", "sim-node-01", 10, h100);
    let c = gpu("GPU-c", "sim-node-01", 2, h100);
    let d = gpu("GPU-d", "sim-node-02", 0, mi300);
    let lonely = Identity::default().with(IdentityColumn::Uuid, "rack@7").unwrap();
    rows(&[
        (a.clone(), 20, &[("utilization_pct", 90.5), ("power_w", 600.1), ("memory_total_mb", 81559.0)]),
        (a.clone(), 10, &[("utilization_pct", 97.0), ("power_w", 612.4)]),
        (a, 0, &[("power_w", 598.1), ("room_c", 21.5)]),
        (b, 1, &[("utilization_pct", 0.0), ("power_w", 70.0)]),
        (c, 2, &[("utilization_pct", 50.0), ("power_w", 300.0), ("xid_last", 79.0)]),
        (d, 3600, &[("utilization_pct", 100.0), ("power_w", 750.0)]),
        (lonely, 5, &[("temperature_c", 40.0)]),
    ])
}
