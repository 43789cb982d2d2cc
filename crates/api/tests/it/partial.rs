//! A history that knows only part of the fleet: each answer names the missing part, and no GPU is called unknown.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use gpuvitals_api::collector::{CollectorView, router};
use gpuvitals_api::{Api, ApiConfig, Beside, serve};
use gpuvitals_core::Health;
use gpuvitals_listener::{Access, Meter, Terms};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::client::{Events, request};
use crate::collector::Collector;
use crate::lacking::{Lack, Lacking, REASON};
use crate::world::{World, fleet};

async fn started() -> (World, SocketAddr) {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let api = Api::new(
        ApiConfig::default(),
        Arc::new(Lacking(world.store.clone(), Lack::Part)),
        world.parts.clone(),
    );
    tokio::spawn(serve(
        listener,
        api,
        Beside::reading(Router::new()),
        Access::open(),
        world.shutdown.clone(),
    ));
    (world, address)
}

#[tokio::test]
async fn answers_from_a_part_of_the_fleet_say_so() {
    let (_world, address) = started().await;
    for path in [
        "/api/v1/gpus",
        "/api/v1/gpus/GPU-a",
        "/api/v1/hosts",
        "/api/v1/hosts/sim-node-01/gpus",
        "/api/v1/telemetry?gpus=GPU-a",
        "/api/v1/query?metrics=power_w",
        "/api/v1/analysis/findings",
        "/api/v1/analysis/stragglers",
        "/api/v1/schedule/hints",
    ] {
        // The second answer is the cached one of the first, if any is.
        for _again in 0..2 {
            let answer = request(address, "GET", path, "").await;
            assert_eq!((answer.status, answer.header("x-partial")), (200, Some(REASON)), "{path}");
            if path != "/api/v1/gpus/GPU-a" {
                assert_eq!(answer.json()["partial"], serde_json::json!([REASON]), "{path}");
            }
        }
    }
}

#[tokio::test]
async fn lists_that_are_added_up_say_in_their_bodies_what_their_headers_say() {
    let (_world, address) = started().await;
    for path in [
        "/api/v1/jobs",
        "/api/v1/analysis/energy",
        "/api/v1/analysis/idle",
        "/api/v1/analysis/usage",
        "/api/v1/analysis/changes",
        "/api/v1/analysis/trends",
        "/api/v1/analysis/anomalies",
    ] {
        let answer = request(address, "GET", path, "").await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let said: Vec<String> = serde_json::from_value(answer.json()["partial"].clone()).unwrap();
        assert!(said.iter().any(|reason| reason == REASON), "{path}: {said:?}");
        assert_eq!(answer.header("x-partial"), Some(said.join("; ").as_str()), "{path}");
    }
}

#[tokio::test]
async fn tables_of_a_part_of_the_fleet_say_so_in_their_bodies() {
    let (_world, address) = started().await;
    for (path, cut) in [
        ("/api/v1/gpus?format=csv", ""),
        ("/api/v1/hosts?format=csv", ""),
        ("/api/v1/gpus?format=csv&limit=4", "1 row is left out: offset=4 asks for the next. "),
        ("/api/v1/telemetry?gpus=GPU-a&format=csv", ""),
        ("/api/v1/query?metrics=power_w&format=csv&wide=true", ""),
    ] {
        let answer = request(address, "GET", path, "").await;
        let said = format!("# {cut}Not everything could be read: {REASON}");
        assert_eq!(answer.text().lines().next_back(), Some(said.as_str()), "{path}");
    }
    let answer = request(address, "GET", "/api/v1/gpus?format=arrow", "").await;
    let reader = arrow_ipc::reader::StreamReader::try_new(answer.body.as_slice(), None).unwrap();
    let schema = reader.schema();
    let said = |key: &str| schema.metadata.get(key).cloned();
    assert_eq!(said("partial"), Some(serde_json::json!([REASON]).to_string()));
    assert_eq!(said("lacks"), Some(format!("Not everything could be read: {REASON}")));
}

#[tokio::test]
async fn a_stream_of_a_part_of_the_fleet_says_so_first() {
    let (world, address) = started().await;
    let mut events = Events::open(address, "/api/v1/stream?gpus=GPU-a").await;
    assert!(events.head.contains(&format!("x-partial: {REASON}")), "{}", events.head);
    world.append(fleet()).await;
    assert_eq!(events.event().await.unwrap(), ("partial".to_owned(), serde_json::json!([REASON])));
    assert_eq!(events.event().await.unwrap().0, "samples");
    let mut whole = Events::open(world.address, "/api/v1/stream").await;
    assert!(!whole.head.contains("x-partial"), "{}", whole.head);
    world.append(fleet()).await;
    assert_eq!(whole.event().await.unwrap().0, "samples");
}

#[tokio::test]
async fn what_may_be_in_the_rest_of_the_fleet_is_not_said_to_be_unknown() {
    let (_world, address) = started().await;
    for path in [
        "/api/v1/gpus/GPU-z",
        "/api/v1/gpus/GPU-z/telemetry",
        "/api/v1/telemetry?gpus=GPU-a,GPU-z",
        "/api/v1/telemetry?metrics=power_w,attic_c",
        "/api/v1/query?metrics=power_w&gpus=GPU-z",
        "/api/v1/hosts/nowhere/gpus",
        "/api/v1/stream?metrics=attic_c",
    ] {
        let answer = request(address, "GET", path, "").await;
        assert_eq!(answer.status, 503, "{path}: {}", answer.text());
        assert_eq!(answer.json()["code"], "incomplete", "{path}");
        assert!(answer.text().contains(REASON), "{path}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_collector_says_what_its_fleet_lacks() {
    let world = World::new().await;
    let view: Arc<dyn CollectorView> = Arc::new(Collector(Mutex::new(Health::healthy(0))));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = router(Arc::new(Lacking(world.store.clone(), Lack::Part)), Arc::new(Semaphore::new(1)), view);
    let terms = Terms::new(Arc::new(Meter::new("collector")));
    let shutdown = CancellationToken::new();
    tokio::spawn(gpuvitals_listener::serve(listener, app, terms, shutdown.clone()));
    for path in ["/stats", "/telemetry/GPU-a"] {
        let answer = request(address, "GET", path, "").await;
        assert_eq!((answer.status, answer.header("x-partial")), (200, Some(REASON)), "{path}");
    }
    let answer = request(address, "GET", "/telemetry/GPU-z", "").await;
    assert_eq!((answer.status, &answer.json()["code"]), (503, &"incomplete".into()));
    shutdown.cancel();
}
