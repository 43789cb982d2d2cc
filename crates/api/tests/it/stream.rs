//! The live stream.

use std::time::Duration;

use serde_json::json;

use crate::client::Events;
use crate::world::{World, fleet, gpu, rows};

#[tokio::test]
async fn an_append_reaches_those_who_listen() {
    let world = World::empty(|_, _| ()).await;
    let mut all = Events::open(world.address, "/api/v1/stream").await;
    assert!(all.head.starts_with("HTTP/1.0 200"), "{}", all.head);
    assert!(all.head.contains("content-type: text/event-stream"), "{}", all.head);
    assert!(all.block().await.unwrap().contains("retry: 3000"));
    let mut one = Events::open(world.address, "/api/v1/stream?gpus=GPU-b&metrics=power_w").await;
    let mut host = Events::open(world.address, "/api/v1/stream?hosts=sim-node-02,nowhere").await;
    let mut column = Events::open(world.address, "/api/v1/stream?metrics=temperature_c").await;
    world.append(fleet()).await;
    let (name, data) = all.event().await.unwrap();
    assert_eq!(name, "samples");
    assert_eq!(data.as_array().unwrap().len(), 7);
    assert_eq!(
        data[2],
        json!({"gpu_id": "GPU-a", "hostname": "sim-node-01", "metrics": {"power_w": 598.1, "room_c": 21.5},
               "timestamp": "2026-11-20T16:00:00Z", "simulated": true})
    );
    let (_, data) = one.event().await.unwrap();
    assert_eq!(
        data,
        json!([{"gpu_id": "GPU-b", "hostname": "sim-node-01", "metrics": {"power_w": 70.0},
                "timestamp": "2026-11-20T15:59:59Z", "simulated": true}])
    );
    let (_, data) = host.event().await.unwrap();
    assert_eq!((data.as_array().unwrap().len(), &data[0]["gpu_id"]), (1, &json!("GPU-d")));
    let (_, data) = column.event().await.unwrap();
    let ids = |data: &serde_json::Value| -> Vec<String> {
        data.as_array().unwrap().iter().map(|row| row["gpu_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&data), ["rack@7"]);
    let mut foreign = Events::open(world.address, "/api/v1/stream?metrics=room_c,temperature_c").await;
    world.append(fleet()).await;
    assert_eq!(ids(&foreign.event().await.unwrap().1), ["GPU-a", "rack@7"]);
    // A gateway that stops ends its streams.
    world.shutdown.cancel();
    while all.block().await.is_some() {}
    world.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_known_gpu_may_be_named_by_any_of_its_names() {
    let world = World::new().await;
    let mut events = Events::open(world.address, "/api/v1/stream?gpus=sim-node-01:gpu10").await;
    world.append(fleet()).await;
    assert_eq!(events.event().await.unwrap().1[0]["gpu_id"], "GPU-b");
}

#[tokio::test]
async fn a_gpu_that_is_not_known_yet_may_be_named_by_any_of_its_names() {
    let world = World::empty(|_, _| ()).await;
    for name in ["GPU-a", "0000:1b:00.0", "0000:1b:00.0@sim-node-01", "sim-node-01:gpu0"] {
        let fresh = World::empty(|_, _| ()).await;
        let mut events = Events::open(fresh.address, &format!("/api/v1/stream?gpus={name}")).await;
        fresh.append(fleet()).await;
        let rows = events.event().await.unwrap().1;
        assert!(rows.as_array().unwrap().iter().all(|row| row["gpu_id"] == "GPU-a"), "{name}: {rows}");
    }
    // An unknown name selects no GPU, not all.
    let mut nobody = Events::open(world.address, "/api/v1/stream?gpus=nobody").await;
    world.append(fleet()).await;
    world.shutdown.cancel();
    while let Some(block) = nobody.block().await {
        assert!(!block.contains("samples"), "{block}");
    }
}

#[tokio::test]
async fn rows_are_tested_by_their_identity() {
    let world = World::empty(|_, _| ()).await;
    for (test, gpus) in [
        ("where=pod%3Dtrain-7", &["GPU-a"][..]),
        ("where=vendor%3Damd", &["GPU-d"]),
        ("where=model%3D~NVIDIA.*;pod%3D&host=sim-node-01", &["GPU-b", "GPU-c"]),
    ] {
        let fresh = World::empty(|_, _| ()).await;
        let mut events = Events::open(fresh.address, &format!("/api/v1/stream?{test}")).await;
        fresh.append(fleet()).await;
        let rows = events.event().await.unwrap().1;
        let mut found: Vec<&str> =
            rows.as_array().unwrap().iter().map(|row| row["gpu_id"].as_str().unwrap()).collect();
        found.dedup();
        assert_eq!(found, gpus, "{test}");
    }
    assert_eq!(world.get("/api/v1/stream?where=nonsense").await.json()["code"], "bad_parameter");
}

#[tokio::test]
async fn who_is_too_slow_is_told_how_much_it_missed() {
    let world = World::empty(|api, _| api.limits.resume_bytes = 1 << 20).await;
    let events = Events::open(world.address, "/api/v1/stream").await;
    // A row of many unknown columns, so that the sockets in between are soon full.
    let names: Vec<String> = (0..120).map(|n| format!("column_with_a_long_name_{n:090}")).collect();
    let values: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 0.5)).collect();
    let many = |second: i64| {
        let identity = gpu("GPU-a", "sim-node-01", 0, "NVIDIA H100 80GB HBM3");
        let rows_of_one = (0..100).map(|n| (identity.clone(), second * 100 + n, values.as_slice()));
        rows(&rows_of_one.collect::<Vec<_>>())
    };
    for second in 0..40 {
        world.append(many(second)).await;
    }
    let mut events = events;
    let (mut missed, mut seen, mut lags) = (0, 0, 0);
    // Every append is seen, in events of some of its rows, or counted as missed: one that broke off is both.
    while missed * 100 + seen < 4_000 {
        match events.event().await.unwrap() {
            (name, data) if name == "lagged" => {
                missed += data["missed"].as_u64().unwrap();
                lags += 1;
            }
            (_, data) => seen += data.as_array().unwrap().len() as u64,
        }
    }
    assert!(missed * 100 + seen < 4_000 + 100 * lags, "missed {missed}, seen {seen} rows");
    assert!(missed > 0 && seen >= 400, "missed {missed}, seen {seen} rows");
    let text = world.get("/metrics").await;
    assert!(text.text().contains(&format!("gpuvitals_gateway_stream_missed_total {missed}\n")));
}

#[tokio::test]
async fn a_large_append_comes_in_several_events() {
    let world = World::empty(|_, _| ()).await;
    let mut events = Events::open(world.address, "/api/v1/stream").await;
    let identity = gpu("GPU-a", "sim-node-01", 0, "NVIDIA H100 80GB HBM3");
    let row = |n| (identity.clone(), n, [("power_w", 1.0)].as_slice());
    world.append(rows(&(0..2_500).map(row).collect::<Vec<_>>())).await;
    for expected in [1_000, 1_000, 500] {
        assert_eq!(events.event().await.unwrap().1.as_array().unwrap().len(), expected);
    }
}

#[tokio::test]
async fn there_are_no_more_streams_than_there_may_be() {
    let world = World::empty(|api, _| api.limits.streams = 2).await;
    let first = Events::open(world.address, "/api/v1/stream").await;
    let _second = Events::open(world.address, "/api/v1/stream").await;
    let refused = world.get("/api/v1/stream").await;
    assert_eq!((refused.status, &refused.json()["code"]), (503, &json!("too_many_streams")));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(world.ok("/stats").await["gateway"]["streams"], 2);
    drop(first);
    // The gateway notices that a client has gone when it next writes to it, at the latest.
    loop {
        world.append(fleet()).await;
        let again = Events::open(world.address, "/api/v1/stream").await;
        if again.head.contains(" 200 ") {
            break;
        }
    }
}

#[tokio::test]
async fn silence_is_broken_by_comments() {
    let world = World::empty(|api, _| api.limits.heartbeat = Duration::from_millis(5)).await;
    let mut events = Events::open(world.address, "/api/v1/stream").await;
    assert!(events.block().await.unwrap().contains(": live"));
    let place = events.id.clone().unwrap();
    // With a place, so that a stream without rows is resumed from here.
    for _ in 0..2 {
        assert_eq!(events.block().await.unwrap(), format!(": still here\nid: {place}\n"));
    }
}

/// So many rows of a GPU, the first of them this many seconds ago.
fn some(count: i64, seconds_ago: i64) -> gpuvitals_core::Batch {
    let identity = gpu("GPU-a", "sim-node-01", 0, "NVIDIA H100 80GB HBM3");
    let row = |n| (identity.clone(), seconds_ago - n, [("power_w", 1.0)].as_slice());
    rows(&(0..count).map(row).collect::<Vec<_>>())
}

/// The times of the rows of the next event.
async fn times(events: &mut Events) -> Vec<String> {
    let (name, data) = events.event().await.unwrap();
    assert_eq!(name, "samples", "{data}");
    data.as_array().unwrap().iter().map(|row| row["timestamp"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_client_that_comes_back_gets_what_it_missed_once() {
    let world = World::empty(|_, _| ()).await;
    let mut events = Events::open(world.address, "/api/v1/stream").await;
    world.append(some(1, 50)).await;
    world.append(some(1, 40)).await;
    assert_eq!(times(&mut events).await, ["2026-11-20T15:59:10Z"]);
    let id = events.id.clone().unwrap();
    drop(events);
    // Nobody listens; one of the rows is older than those that were sent.
    world.append(some(1, 60)).await;
    world.append(some(1, 30)).await;
    let mut back = Events::resume(world.address, "/api/v1/stream", &id).await;
    let mut ids = vec![];
    for expected in ["2026-11-20T15:59:20Z", "2026-11-20T15:59:00Z", "2026-11-20T15:59:30Z"] {
        assert_eq!(times(&mut back).await, [expected]);
        ids.push(back.id.clone().unwrap());
    }
    world.append(some(1, 20)).await;
    assert_eq!(times(&mut back).await, ["2026-11-20T15:59:40Z"]);
    let changes: Vec<u64> = ids.iter().map(|id| id.split('-').next().unwrap().parse().unwrap()).collect();
    assert!(changes.is_sorted() && changes[0] < changes[2], "{ids:?}");
    // What is there is not sent again to who has all of it.
    let id = back.id.clone().unwrap();
    let mut again = Events::resume(world.address, "/api/v1/stream", &id).await;
    world.append(some(1, 10)).await;
    assert_eq!(times(&mut again).await, ["2026-11-20T15:59:50Z"]);
}

#[tokio::test]
async fn a_client_that_left_within_an_append_gets_the_rest_of_it() {
    let world = World::empty(|_, _| ()).await;
    let mut events = Events::open(world.address, "/api/v1/stream").await;
    world.append(some(2_500, 2_500)).await;
    assert_eq!(times(&mut events).await.len(), 1_000);
    let id = events.id.clone().unwrap();
    drop(events);
    let mut back = Events::resume(world.address, "/api/v1/stream", &id).await;
    assert_eq!(times(&mut back).await[0], "2026-11-20T15:35:00Z");
    assert_eq!(times(&mut back).await.len(), 500);
}

#[tokio::test]
async fn who_was_away_for_too_long_is_told_since_when_and_goes_on_live() {
    let world = World::empty(|api, _| api.limits.resume_bytes = 1).await;
    let events = Events::open(world.address, "/api/v1/stream").await;
    world.append(some(1, 50)).await;
    let mut late = Events::open(world.address, "/api/v1/stream").await;
    late.block().await.unwrap();
    let id = late.id.clone().unwrap();
    drop(events);
    world.append(some(1, 40)).await;
    world.append(some(1, 30)).await;
    for (id, since) in [(&*id, json!("2026-11-20T16:00:00.000002Z")), ("another-server", json!(null))] {
        let mut back = Events::resume(world.address, "/api/v1/stream", id).await;
        assert_eq!(back.event().await.unwrap(), ("gap".to_owned(), json!({ "since": since })));
        world.append(some(1, 20)).await;
        assert_eq!(times(&mut back).await, ["2026-11-20T15:59:40Z"]);
    }
}
