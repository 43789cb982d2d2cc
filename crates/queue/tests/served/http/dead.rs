//! Dead letters by HTTP.

use axum::body::Body;
use axum::http::Request;
use gpuvitals_queue::server::http::router;
use gpuvitals_queue::server::{HttpLimits, ServerConfig};
use gpuvitals_queue::{
    Consumer as _, ConsumerOptions, ContentType, Encoding, Frame, Nack, NackKind, QueueConfig, WhenFull,
};
use gpuvitals_rig::waiting::soon;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::client::{LINES, ask, get, post};
use super::world::{World, message, messages};

/// Everything that is held in `t` becomes dead letters of group `g`, a letter each frame.
async fn kill(world: &World) {
    let mut consumer = world.queue.subscribe("t", "g", &ConsumerOptions::default()).await.unwrap();
    while world.queue.topic_stats("t").unwrap().messages > 0 {
        for delivery in soon("a frame that is held", consumer.receive()).await.unwrap() {
            let (id, reason) = (delivery.id, "no such column".into());
            consumer.nack(&[Nack { id, kind: NackKind::Reject, reason }]).await.unwrap();
        }
    }
    consumer.leave().await;
}

async fn publish(world: &World, letters: u32) {
    for number in 0..letters {
        let answer = post(world.at, "/publish/t", &[LINES], message(number).as_bytes()).await;
        assert_eq!(answer.status, 200);
    }
}

async fn replay(world: &World, body: &Value) -> super::client::Answer {
    post(world.at, "/topics/t/dead/replay", &[], body.to_string().as_bytes()).await
}

#[tokio::test]
async fn a_dead_letter_says_what_why_when_and_shows_its_messages() {
    let world = World::new();
    post(world.at, "/publish/t", &[LINES], messages(3, "\n").as_bytes()).await;
    kill(&world).await;
    let told = get(world.at, "/topics/t/dead").await.json();
    assert_eq!(told.get("next"), None);
    let letter = &told["dead"][0];
    assert_eq!(letter["reason"], "rejected by consumer: no such column");
    assert_eq!(
        (&letter["group"], &letter["offset"], &letter["attempts"]),
        (&json!("g"), &json!(0), &json!(1))
    );
    assert_eq!((&letter["messages_count"], &letter["content_type"]), (&json!(3), &json!("json")));
    let numbers: Vec<&Value> =
        letter["messages"].as_array().unwrap().iter().map(|m| &m["fields"]["number"]).collect();
    assert_eq!(numbers, [0, 1, 2]);
    for time in ["published_at", "died_at"] {
        assert!(letter[time].as_str().unwrap().ends_with('Z'));
    }
}

#[tokio::test]
async fn what_is_no_json_is_shown_as_the_bytes_it_is() {
    let world = World::new();
    let long = vec![7_u8; 300 << 10];
    for frame in [
        Frame::new(ContentType::Batch, 2, "GVB1…"),
        Frame::new(ContentType::Json, 2, "not json"),
        Frame::new(ContentType::Json, 2, "not zstd").encoded(Encoding::Zstd),
        Frame::new(ContentType::Batch, 2, long),
    ] {
        world.queue.publish("t", frame).await.unwrap();
    }
    kill(&world).await;
    let told = get(world.at, "/topics/t/dead").await.json();
    let shown: Vec<&Value> = (0..3).map(|n| &told["dead"][n]["payload_base64"]).collect();
    assert_eq!(shown, ["R1ZCMeKApg==", "bm90IGpzb24=", "bm90IHpzdGQ="]);
    assert_eq!(told["dead"][3]["payload_bytes"], 300 << 10);
    let told = get(world.at, "/topics/t/dead?content=false").await.json();
    let letter = &told["dead"][0];
    assert_eq!((&letter["messages_count"], &letter["payload_bytes"]), (&json!(2), &json!(7)));
    assert_eq!((letter.get("payload_base64"), letter.get("messages")), (None, None));
    let wrong = get(world.at, "/topics/t/dead?content=no").await;
    assert!(wrong.refused(400, "bad_parameter").contains("true or false"));
}

#[tokio::test]
async fn letters_come_page_by_page() {
    let world = World::new();
    publish(&world, 5).await;
    kill(&world).await;
    let first = get(world.at, "/topics/t/dead?limit=2").await.json();
    assert_eq!(first["dead"].as_array().unwrap().len(), 2);
    let mut seen: Vec<Value> = Vec::new();
    let mut path = "/topics/t/dead?limit=2".to_owned();
    loop {
        let page = get(world.at, &path).await.json();
        seen.extend(
            page["dead"].as_array().unwrap().iter().map(|l| l["messages"][0]["fields"]["number"].clone()),
        );
        let Some(next) = page.get("next") else { break };
        path = format!("/topics/t/dead?limit=2&from={next}");
    }
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    for (query, says) in [("limit=0", "1 to 500"), ("limit=501", "1 to 500"), ("from=-1", "id"), ("x=1", "x")]
    {
        let answer = get(world.at, &format!("/topics/t/dead?{query}")).await;
        assert!(answer.refused(400, "bad_parameter").contains(says));
    }
}

#[tokio::test]
async fn letters_stay_where_they_are_while_their_topic_is_full() {
    let config = QueueConfig { max_messages: 2, when_full: WhenFull::Refuse, ..QueueConfig::default() };
    let world = World::with(config, HttpLimits::default());
    publish(&world, 2).await;
    kill(&world).await;
    publish(&world, 1).await;
    let answer = replay(&world, &json!({"oldest": 9})).await.json();
    assert_eq!(answer, json!({"letters": 1, "without_room": 1, "unreadable": 0, "left": 0}));
    assert_eq!(world.queue.topic_stats("t").unwrap().dead_letters, 1);
    kill(&world).await;
    assert_eq!(replay(&world, &json!({"oldest": 1})).await.json()["letters"], 1);
    assert_eq!(world.queue.topic_stats("t").unwrap().dead_letters, 2);
}

#[tokio::test]
async fn letters_are_given_back_by_id_or_the_oldest_first() {
    let world = World::new();
    publish(&world, 4).await;
    kill(&world).await;
    let told = get(world.at, "/topics/t/dead").await.json();
    let id = told["dead"][2]["id"].as_u64().unwrap();
    let answer = replay(&world, &json!({"ids": [id, 999]})).await;
    let one = json!({"letters": 1, "without_room": 0, "unreadable": 0, "left": 0});
    assert_eq!(answer.json(), one);
    assert_eq!(replay(&world, &json!({"oldest": 1})).await.json(), one);
    assert_eq!(world.queue.topic_stats("t").unwrap().dead_letters, 2);
    let mut consumer = world.queue.subscribe("t", "g", &ConsumerOptions::default()).await.unwrap();
    let mut numbers: Vec<u64> = consumer.receive().await.unwrap().iter().map(|d| d.id.offset).collect();
    numbers.sort_unstable();
    assert_eq!(numbers.len(), 2);
    drop(consumer);

    for (body, says) in [
        (json!({}), "either ids or oldest"),
        (json!({"ids": [1], "oldest": 1}), "either ids or oldest"),
        (json!({"id": 1}), "unknown field"),
        (json!({"oldest": -1}), "oldest"),
        (json!("oldest"), "expected an object"),
        (json!({"oldest": 1, "messages_per_second": 0}), "above 0"),
        (json!({"ids": vec![0; 10_001]}), "10000"),
        (json!({"ids": [7, 9_223_372_036_854_775_808_u64]}), "9223372036854775808"),
    ] {
        let message = replay(&world, &body).await.refused(400, "bad_parameter");
        assert!(message.contains(says), "{message}");
    }
    world.queue.remove_group("t", "g").unwrap();
    let mut late = world.queue.subscribe("t", "late", &ConsumerOptions::default()).await.unwrap();
    assert_eq!(replay(&world, &json!({"oldest": 10})).await.json()["letters"], 2);
    assert!(!late.receive().await.unwrap().is_empty(), "they are for all groups");
}

#[tokio::test]
async fn a_replay_at_a_rate_takes_its_time_and_says_what_is_left() {
    let world = World::new();
    publish(&world, 30).await;
    kill(&world).await;
    let app = router(world.queue.clone(), &ServerConfig::default(), CancellationToken::new());
    let body = json!({"oldest": 30, "messages_per_second": 1.0}).to_string();
    let request = Request::post("/topics/t/dead/replay").body(Body::from(body)).unwrap();
    tokio::time::pause();
    let began = Instant::now();
    let answer = app.oneshot(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    // One at once, and one every second up to the twentieth.
    assert_eq!((&answer["letters"], &answer["left"]), (&json!(21), &json!(9)), "{answer}");
    assert!(began.elapsed().as_secs() >= 20);
}

#[tokio::test]
async fn letters_are_thrown_away_by_id_the_oldest_or_all() {
    let world = World::new();
    publish(&world, 6).await;
    kill(&world).await;
    let told = get(world.at, "/topics/t/dead").await.json();
    let id = |n: usize| told["dead"][n]["id"].as_u64().unwrap();
    let purge =
        async |query: &str| ask(world.at, "DELETE", &format!("/topics/t/dead{query}"), &[], &[]).await;
    assert_eq!(purge(&format!("?ids={},{}", id(4), id(5))).await.json(), json!({"letters": 2}));
    assert_eq!(purge("?oldest=1").await.json(), json!({"letters": 1}));
    purge("?oldest=x").await.refused(400, "bad_parameter");
    purge("?ids=1,x").await.refused(400, "bad_parameter");
    purge("?all=1").await.refused(400, "bad_parameter");
    purge("?ids=1&oldest=1").await.refused(400, "bad_parameter");
    assert_eq!(world.queue.topic_stats("t").unwrap().dead_letters, 3);
    assert_eq!(purge("").await.json(), json!({"letters": 3}));
    ask(world.at, "DELETE", "/topics/x/dead", &[], &[]).await.refused(404, "unknown_topic");
}
