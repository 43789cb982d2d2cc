//! What is taken, and what of it is not.

use gpuvitals_core::batch::Value as Number;
use gpuvitals_core::{BatchBuilder, Identity, IdentityColumn, Origin, Table, catalogue, wire};
use gpuvitals_queue::server::http::HttpLimits;
use gpuvitals_queue::{ContentType, Encoding, QueueConfig};
use gpuvitals_rig::waiting::soon;
use serde_json::json;
use tokio::task::JoinSet;

use super::client::{JSON, LINES, post, say};
use super::world::{World, array, message, messages};

#[tokio::test]
async fn one_message_is_stored_as_it_was_written() {
    let world = World::new();
    let answer = post(world.at, "/publish/gpu-telemetry", &[JSON], message(7).as_bytes()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(
        answer.json(),
        json!({
            "accepted": 1, "refused": [], "refused_count": 0, "left_out": [], "left_out_count": 0,
            "durability": "memory", "offsets": [0], "duplicate": false,
        })
    );
    let frames = world.frames("gpu-telemetry").await;
    let frame = &frames[0].0.frame;
    assert_eq!(frame.payload, message(7));
    assert_eq!((frame.content_type, frame.encoding, frame.count), (ContentType::Json, Encoding::Identity, 1));
}

#[tokio::test]
async fn a_long_array_is_cut_into_frames_and_compressed() {
    let world = World::new();
    let answer = post(world.at, "/publish/t", &[JSON], array(1_000).as_bytes()).await;
    assert_eq!(answer.json()["accepted"], 1_000, "{answer:?}");
    assert_eq!(answer.json()["offsets"], json!([0, 1, 2, 3]));
    let frames = world.frames("t").await;
    let counts: Vec<u32> = frames.iter().map(|(delivery, _)| delivery.frame.count).collect();
    assert_eq!(counts, [256, 256, 256, 232]);
    let numbers = frames.iter().flat_map(|(_, messages)| messages).map(|m| m["fields"]["number"].clone());
    assert!(numbers.eq((0..1_000).map(|n| json!(n))));
    let bytes: usize = frames.iter().map(|(delivery, _)| delivery.frame.payload.len()).sum();
    assert!(frames.iter().all(|(delivery, _)| delivery.frame.encoding == Encoding::Zstd));
    assert!(bytes < array(1_000).len() / 8, "{bytes} bytes are held");
}

#[tokio::test]
async fn of_lines_the_good_ones_are_taken_and_the_bad_ones_named() {
    let world = World::new();
    let body = [
        message(0),
        "{\"timestamp\":".to_owned(),
        String::new(),
        r#"{"timestamp":"yesterday","fields":{"gpu_id":"gpu_0","temperature":1}}"#.to_owned(),
        format!("[{}]", message(9)),
        "1],[2".to_owned(),
        format!("{}\r", message(1)),
        r#"{"timestamp":"2026-01-01T00:00:00Z","fields":{"gpu_id":"gpu_0","temperature":-900}}"#.to_owned(),
        r#"{"timestamp":"2026-01-01T00:00:00Z","fields":{"gpu_id":"gpu_0","n":1e999}}"#.to_owned(),
        r#"{"timestamp":"2026-01-01T00:00:00Z","fields":{"gpu_id":"gpu_0","power_draw":9,"temperature":-900}}"#
            .to_owned(),
    ];
    let answer = post(world.at, "/publish/t", &[LINES], body.join("\n").as_bytes()).await;
    let told = answer.json();
    assert_eq!((answer.status, &told["accepted"], &told["refused_count"]), (200, &json!(3), &json!(6)));
    let refused = |n: usize| (told["refused"][n]["line"].clone(), told["refused"][n]["reason"].to_string());
    for (n, (line, word)) in [
        (2, "JSON"),
        (4, "timestamp"),
        (5, "message"),
        (6, "JSON"),
        (8, "temperature"),
        (9, "number out of range"),
    ]
    .into_iter()
    .enumerate()
    {
        let (found, reason) = refused(n);
        assert_eq!(found, line, "{told:#}");
        assert!(reason.contains(word), "{reason}");
    }
    assert_eq!((&told["left_out_count"], &told["left_out"][0]["line"]), (&json!(1), &json!(10)));
    let frames = world.frames("t").await;
    let numbers: Vec<_> = frames[0].1.iter().map(|message| message["fields"]["number"].clone()).collect();
    assert_eq!(numbers, [json!(0), json!(1), json!(null)]);
}

#[tokio::test]
async fn a_request_without_a_good_message_is_refused_with_what_is_wrong() {
    let world = World::new();
    let bad = r#"{"timestamp":"2026-01-01T00:00:00Z","fields":{"temperature":61}}"#;
    for (headers, body, says) in [
        (JSON, bad.to_owned(), "index 0"),
        (JSON, format!("[{bad},{bad}]"), "no message of 2"),
        (LINES, format!("\n{bad}\n"), "line 2"),
        (JSON, "[]".to_owned(), "no message"),
        (JSON, String::new(), "no message"),
        (LINES, "\n\n".to_owned(), "no message"),
        (JSON, format!("[{},", message(0)), "JSON"),
        (JSON, format!("[{}] x", message(0)), "JSON"),
        (JSON, "\"text\"".to_owned(), "message"),
        (JSON, "null".to_owned(), "message"),
    ] {
        let answer = post(world.at, "/publish/t", &[headers], body.as_bytes()).await;
        let message = answer.refused(400, "bad_messages");
        assert!(message.contains(says), "{body}: {message}");
    }
    let answer = post(world.at, "/publish/t", &[JSON], b"[\"\xff\"]").await;
    assert!(answer.refused(400, "bad_messages").contains("byte 2"));
    assert!(world.queue.topics().is_empty(), "nothing was published");
}

#[tokio::test]
async fn many_bad_messages_are_counted_and_the_first_are_named() {
    let world = World::new();
    let body = format!("{}\n{}", message(0), "x\n".repeat(500));
    let told = post(world.at, "/publish/t", &[LINES], body.as_bytes()).await.json();
    assert_eq!((&told["accepted"], &told["refused_count"]), (&json!(1), &json!(500)));
    assert_eq!(told["refused"].as_array().unwrap().len(), 20);
}

#[tokio::test]
async fn a_message_too_deep_to_read_does_not_take_its_neighbours_with_it() {
    let world = World::new();
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let body = format!("[{},{deep},{}]", message(0), message(1));
    let told = post(world.at, "/publish/t", &[JSON], body.as_bytes()).await.json();
    assert_eq!((&told["accepted"], &told["refused"][0]["index"]), (&json!(2), &json!(1)), "{told}");
}

#[tokio::test]
async fn a_binary_batch_is_one_frame_of_its_rows() {
    let world = World::new();
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let mut identity = Identity::default();
    identity.set(IdentityColumn::Node, "n1").unwrap();
    identity.name_gpu("gpu_0").unwrap();
    identity.resolve().unwrap();
    let identity = builder.intern(&identity);
    let power = catalogue::by_column("power_w").unwrap();
    for number in 0..300 {
        let row = builder.row(1_800_000_000_000_000_000 + number, identity);
        builder.set(row, power, Number::Float(300.0)).unwrap();
    }
    let batch = builder.finish(Origin::default(), 1).unwrap();
    let bytes = wire::encode(&batch).unwrap();
    let headers = [("content-type", "application/vnd.gpuvitals.batch")];
    let answer = post(world.at, "/publish/t", &headers, &bytes).await;
    assert_eq!(answer.json()["accepted"], 300, "{answer:?}");
    let frames = world.frames("t").await;
    let frame = &frames[0].0.frame;
    assert_eq!((frame.content_type, frame.count), (ContentType::Batch, 300));
    assert_eq!(frame.payload, bytes);

    for bad in [&b""[..], b"GVB1", &bytes[..20], b"{}"] {
        let answer = post(world.at, "/publish/t", &headers, bad).await;
        assert!(answer.refused(400, "bad_messages").contains("batch"));
    }
}

#[tokio::test]
async fn a_repeat_is_recognised_and_said_to_be_one() {
    let world = World::new();
    let stamp = [JSON, ("x-gpuvitals-producer", "p-1"), ("x-gpuvitals-sequence", "4")];
    let body = array(600);
    let first = post(world.at, "/publish/t", &stamp, body.as_bytes()).await.json();
    assert_eq!(
        (&first["accepted"], &first["duplicate"], &first["offsets"]),
        (&json!(600), &json!(false), &json!([0]))
    );
    let again = post(world.at, "/publish/t", &stamp, body.as_bytes()).await.json();
    assert_eq!(
        (&again["accepted"], &again["duplicate"], &again["offsets"]),
        (&json!(600), &json!(true), &json!([]))
    );
    let stats = world.queue.topic_stats("t").unwrap();
    assert_eq!((stats.messages, stats.frames, stats.duplicates), (600, 1, 600));

    for (headers, says) in [
        (vec![JSON, ("x-gpuvitals-producer", "p")], "together"),
        (vec![JSON, ("x-gpuvitals-sequence", "1")], "together"),
        (vec![JSON, ("x-gpuvitals-producer", "p"), ("x-gpuvitals-sequence", "-1")], "whole number"),
        (vec![JSON, ("x-gpuvitals-producer", ""), ("x-gpuvitals-sequence", "1")], "1 to 128 bytes"),
    ] {
        let answer = post(world.at, "/publish/t", &headers, message(0).as_bytes()).await;
        assert!(answer.refused(400, "bad_producer").contains(says));
    }
}

#[tokio::test]
async fn a_producer_that_is_not_utf_8_is_refused() {
    let world = World::new();
    let body = message(0);
    // Two that are not UTF-8 would become one, and the other's messages repeats.
    let stamp: &[u8] = b"x-gpuvitals-sequence: 1\r\nx-gpuvitals-producer: importer-\xe4\r\n";
    let head = format!(
        "POST /publish/t HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n",
        body.len()
    );
    let answer = say(world.at, &[head.as_bytes(), stamp, b"\r\n", body.as_bytes()].concat()).await;
    assert!(answer.refused(400, "bad_producer").contains("not UTF-8"), "{answer:?}");
    assert_eq!(world.queue.topics().len(), 0, "nothing of it was taken");
}

#[tokio::test]
async fn a_stamped_request_beyond_one_frame_is_refused_whole() {
    let world =
        World::with(QueueConfig::default(), HttpLimits { body_bytes: 16 << 20, ..HttpLimits::default() });
    let stamp = [LINES, ("x-gpuvitals-producer", "p"), ("x-gpuvitals-sequence", "0")];
    let body = messages(65_537, "\n");
    let answer = post(world.at, "/publish/t", &stamp, body.as_bytes()).await;
    assert!(answer.refused(413, "too_large").contains("one frame"));
    assert!(world.queue.topics().is_empty());
}

#[tokio::test]
async fn a_full_topic_says_how_far_it_came_and_when_to_come_again() {
    let config = QueueConfig { max_messages: 600, ..QueueConfig::default() };
    let world = World::with(config, HttpLimits::default());
    let answer = post(world.at, "/publish/t", &[JSON], array(1_000).as_bytes()).await;
    let message = answer.refused(429, "full");
    assert!(message.contains("topic t is full: more comes than is collected"), "{message}");
    assert!(message.contains("raise broker.messages_max and broker.bytes_max"), "{message}");
    assert_eq!(answer.header("retry-after"), Some("1"));
    let told = answer.json();
    assert_eq!((&told["accepted"], &told["next"]), (&json!(512), &json!({"index": 512})));
    assert_eq!(world.queue.topic_stats("t").unwrap().messages, 512);
}

#[tokio::test]
async fn what_the_queue_refuses_has_a_status_of_its_own() {
    let config = QueueConfig { max_topics: 1, max_messages: 2, ..QueueConfig::default() };
    let world = World::with(config, HttpLimits::default());
    let publish = async |topic: &str, body: &str| {
        post(world.at, &format!("/publish/{topic}"), &[JSON], body.as_bytes()).await
    };
    publish("t", &message(0)).await;
    publish("other", &message(0)).await.refused(409, "too_many_topics");
    publish("t", &array(3)).await.refused(413, "too_large");
    for topic in ["a%20b", "a%2Fb", "x.dead", &"x".repeat(129)] {
        publish(topic, &message(0)).await.refused(400, "bad_topic");
    }
    publish("%ff", &message(0)).await.refused(400, "bad_parameter");
    world.queue.shutdown().await;
    let answer = publish("t", &message(0)).await;
    answer.refused(503, "shutting_down");
    assert_eq!(answer.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn a_hundred_publishers_at_once_lose_nothing() {
    let world = World::new();
    let mut publishers = JoinSet::new();
    for publisher in 0..100_u32 {
        let at = world.at;
        publishers.spawn(async move {
            for round in 0..5 {
                let number = publisher * 100 + round * 10;
                let body: Vec<String> = (number..number + 10).map(message).collect();
                let answer = post(at, "/publish/t", &[LINES], body.join("\n").as_bytes()).await;
                assert_eq!((answer.status, &answer.json()["accepted"]), (200, &json!(10)));
            }
        });
    }
    soon("the end of all publishers", publishers.join_all()).await;
    let frames = world.frames("t").await;
    let mut numbers: Vec<u64> =
        frames.iter().flat_map(|(_, m)| m).map(|m| m["fields"]["number"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    let expected = (0..100).flat_map(|p| p * 100..p * 100 + 50);
    assert!(numbers.into_iter().eq(expected));
}

#[tokio::test]
async fn a_nested_value_that_no_column_takes_is_named() {
    let world = World::new();
    let body = r#"{"timestamp":"2026-01-01T00:00:00Z","fields":{"gpu_id":0,"a":{"b":1},"power_w":1}}"#;
    let told = post(world.at, "/publish/t", &[JSON], body.as_bytes()).await.json();
    assert_eq!((&told["accepted"], &told["left_out_count"]), (&json!(1), &json!(1)), "{told}");
    assert_eq!(told["left_out"][0]["reason"], "a is neither a number nor a text");
}
