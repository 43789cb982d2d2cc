//! The collector's own API.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use gpuvitals_api::collector::{CollectorView, router};
use gpuvitals_core::figures::Family;
use gpuvitals_core::{Health, Status};
use gpuvitals_listener::{Meter, Terms, Vitals, serve};
use gpuvitals_store::{Store, StoreConfig};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::client::request;
use crate::world::fleet;

pub(crate) struct Collector(pub(crate) Mutex<Health>);

impl CollectorView for Collector {
    fn rows_stored(&self) -> u64 {
        4711
    }
}

impl Vitals for Collector {
    fn health(&self) -> Health {
        self.0.lock().unwrap().clone()
    }

    fn families(&self) -> Vec<Family> {
        vec![Family::counter("gpuvitals_collector_rows_stored_total", "Rows made durable.", 4711_u64)]
    }
}

async fn started() -> (SocketAddr, Arc<Collector>, CancellationToken, Store, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig::new(dir.path());
    let (store, _) = tokio::task::spawn_blocking(|| Store::open(config)).await.unwrap().unwrap();
    let batch = fleet();
    store.append(vec![batch]).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let view = Arc::new(Collector(Mutex::new(Health::healthy(0))));
    let shutdown = CancellationToken::new();
    let app = router(
        Arc::new(store.clone()),
        Arc::new(Semaphore::new(1)),
        Arc::clone(&view) as Arc<dyn CollectorView>,
    );
    let terms = Terms::new(Arc::new(Meter::new("collector")));
    tokio::spawn(serve(listener, app, terms, shutdown.clone()));
    (address, view, shutdown, store, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_tells_health_statistics_and_metrics() {
    let (address, view, shutdown, store, _dir) = started().await;
    let get = |path: &'static str| request(address, "GET", path, "");
    let health = get("/health").await.json();
    assert_eq!(health["status"], "healthy");
    assert!(health["timestamp"].as_str().unwrap().ends_with('Z'));
    assert_eq!(health.as_object().unwrap().len(), 2);

    let stats = get("/stats").await.json();
    let gpus = store.fleet().gpus.len();
    let rows = store.stats().tail_rows;
    let uptime = stats["uptime_seconds"].as_u64().unwrap();
    let wanted = json!({
        "total_processed": 4711, "active_gpus": gpus, "file_entries": 0, "cache_entries": rows, "uptime_seconds": uptime
    });
    assert_eq!(stats, wanted);
    store.flush().await.unwrap();
    let stats = get("/stats").await.json();
    assert_eq!((&stats["file_entries"], &stats["cache_entries"]), (&json!(rows), &json!(0)));

    let metrics = get("/metrics").await;
    assert!(metrics.header("content-type").unwrap().starts_with("text/plain"));
    let lines: Vec<&str> = metrics.text().lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines, ["gpuvitals_collector_rows_stored_total 4711"]);

    let ready = get("/readyz").await;
    assert_eq!((ready.status, ready.text()), (200, "ok\n"));
    view.0.lock().unwrap().observe(Status::Degraded, "disk full".to_owned(), 1);
    let degraded = get("/health").await;
    assert_eq!((degraded.status, &degraded.json()["reason"]), (200, &json!("disk full")));
    let ready = get("/readyz").await;
    assert_eq!((ready.status, ready.text()), (200, "ok; disk full\n"));
    view.0.lock().unwrap().observe(Status::Unhealthy, "broken".to_owned(), 2);
    assert_eq!(get("/health").await.status, 503);
    let ready = get("/readyz").await;
    assert_eq!((ready.status, ready.text()), (503, "broken\n"));
    let alive = get("/healthz").await;
    assert_eq!((alive.status, alive.text()), (200, "ok\n"));
    shutdown.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_a_gpu_come_as_a_bare_array_newest_first() {
    let (address, _view, shutdown, _store, _dir) = started().await;
    let key = "GPU-a";
    let rows = async |query: &str| {
        let answer = request(address, "GET", &format!("/telemetry/{key}{query}"), "").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json().as_array().unwrap().clone()
    };
    let newest_first = rows("").await;
    assert!(newest_first.len() > 1);
    for row in &newest_first {
        let names: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, ["gpu_id", "metrics", "timestamp"]);
        assert_eq!(row["gpu_id"], key);
        assert!(!row["metrics"].as_object().unwrap().is_empty());
    }
    let times: Vec<&str> = newest_first.iter().map(|row| row["timestamp"].as_str().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a > b), "{times:?}");
    let mut oldest_first = rows("?reverse=true").await;
    oldest_first.reverse();
    assert_eq!(oldest_first, newest_first);
    assert_eq!(rows("?limit=1").await, newest_first[..1]);
    shutdown.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_could_not_be_read_are_told_beside_the_array() {
    let (address, _view, shutdown, store, dir) = started().await;
    let path = "/telemetry/GPU-a?limit=100";
    let whole = request(address, "GET", path, "").await;
    assert_eq!((whole.status, whole.header("x-partial")), (200, None));
    store.flush().await.unwrap();
    let mut folders = vec![dir.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "parquet") {
                let length = std::fs::metadata(&entry).unwrap().len();
                std::fs::write(&entry, vec![0; usize::try_from(length).unwrap()]).unwrap();
            }
        }
    }
    let partial = request(address, "GET", path, "").await;
    assert_eq!(partial.status, 200);
    assert!(partial.json().as_array().unwrap().len() < whole.json().as_array().unwrap().len());
    assert!(partial.header("x-partial").unwrap().contains(".parquet"), "{:?}", partial.header("x-partial"));
    shutdown.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_collector_does_not_know_is_refused_with_a_reason() {
    let (address, _view, shutdown, _store, _dir) = started().await;
    for (path, status, code) in [
        ("/telemetry/nobody", 404, "unknown_gpu"),
        ("/telemetry/nobody?limit=many", 400, "bad_parameter"),
        ("/telemetry/nobody?reverse=maybe", 400, "bad_parameter"),
        ("/telemetry/nobody?offset=1", 400, "bad_parameter"),
        ("/telemetry/%ff", 400, "bad_parameter"),
        ("/nowhere", 404, "not_found"),
    ] {
        let answer = request(address, "GET", path, "").await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert_eq!(answer.json()["code"], code, "{path}");
    }
    shutdown.cancel();
}
