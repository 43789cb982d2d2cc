//! Bodies that are too long, cut, packed or mislabelled.

use std::time::Duration;

use gpuvitals_queue::QueueConfig;
use gpuvitals_queue::server::http::HttpLimits;
use gpuvitals_rig::waiting::retried;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::client::{JSON, LINES, get, post, say};
use super::world::{World, array, gzip, message, messages};

#[tokio::test]
async fn packed_bodies_are_unpacked() {
    let world = World::new();
    let body = array(300);
    let zstd = zstd::bulk::compress(body.as_bytes(), 3).unwrap();
    for (coding, packed) in [
        ("gzip", gzip(body.as_bytes())),
        ("GZIP", [gzip(&body.as_bytes()[..100]), gzip(&body.as_bytes()[100..])].concat()),
        ("zstd", zstd),
        ("identity", body.clone().into_bytes()),
    ] {
        let answer = post(world.at, "/publish/t", &[JSON, ("content-encoding", coding)], &packed).await;
        assert_eq!(answer.json()["accepted"], 300, "{coding}: {answer:?}");
    }
    let cut = gzip(body.as_bytes());
    for (coding, bad) in [("gzip", &b"no gzip"[..]), ("gzip", &cut[..cut.len() / 2]), ("zstd", b"no zstd")] {
        let answer = post(world.at, "/publish/t", &[JSON, ("content-encoding", coding)], bad).await;
        assert!(answer.refused(400, "bad_messages").contains(coding));
    }
    let answer = post(world.at, "/publish/t", &[JSON, ("content-encoding", "br")], b"x").await;
    assert!(answer.refused(415, "unsupported_type").contains("gzip"));
}

#[tokio::test]
async fn a_small_body_that_unpacks_to_a_giant_is_refused() {
    let world = World::new();
    let mebibyte = vec![b' '; 1 << 20];
    // A member of gzip follows another, a frame of zstd another: 256 MiB in all.
    let packed = [
        ("gzip", gzip(&mebibyte).repeat(256)),
        ("zstd", zstd::bulk::compress(&mebibyte, 1).unwrap().repeat(256)),
    ];
    for (coding, body) in packed {
        assert!(body.len() < 4 << 20);
        let answer = post(world.at, "/publish/t", &[JSON, ("content-encoding", coding)], &body).await;
        assert!(answer.refused(413, "body_too_large").contains("16777216 bytes"));
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_the_limit() {
    let world = World::new();
    let body = messages(60_000, "\n");
    assert!(body.len() > 4 << 20);
    let answer = post(world.at, "/publish/t", &[LINES], body.as_bytes()).await;
    assert!(answer.refused(413, "body_too_large").contains("4194304 bytes"));

    let head = "POST /publish/t HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/x-ndjson\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let chunked = format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let answer = say(world.at, chunked.as_bytes()).await;
    assert!(answer.refused(413, "body_too_large").contains("4194304 bytes"));
    assert!(world.queue.topics().is_empty());
}

#[tokio::test]
async fn chunks_are_put_together_and_a_cut_body_is_taken_in_no_part() {
    let world = World::new();
    let head = "POST /publish/t HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
                transfer-encoding: chunked\r\n\r\n";
    let body = array(3);
    let (first, second) = body.split_at(50);
    let chunks = format!("{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n", first.len(), second.len());
    let answer = say(world.at, format!("{head}{chunks}0\r\n\r\n").as_bytes()).await;
    assert_eq!(answer.json()["accepted"], 3);

    // Two whole lines, and then the connection goes.
    let lines = format!("{}\n", messages(2, "\n"));
    let cut = format!("{head}{:x}\r\n{lines}\r\n400\r\nhalf", lines.len())
        .replace("application/json", "application/x-ndjson");
    let mut stream = TcpStream::connect(world.at).await.unwrap();
    stream.write_all(cut.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(world.queue.topic_stats("t").unwrap().messages, 3);
}

#[tokio::test]
async fn other_types_are_refused_with_the_types_there_are() {
    let world = World::new();
    for headers in
        [&[][..], &[("content-type", "text/plain")], &[("content-type", "application/x-www-form-urlencoded")]]
    {
        let answer = post(world.at, "/publish/t", headers, message(0).as_bytes()).await;
        let message = answer.refused(415, "unsupported_type");
        for known in ["application/json", "application/x-ndjson", "application/vnd.gpuvitals.batch"] {
            assert!(message.contains(known), "{message}");
        }
    }
    let headers = [("content-type", "Application/JSON; charset=utf-8")];
    assert_eq!(post(world.at, "/publish/t", &headers, message(0).as_bytes()).await.status, 200);
}

#[tokio::test]
async fn bodies_that_never_end_do_not_take_more_memory_than_there_is_for_them() {
    let limits = HttpLimits {
        bodies_bytes: 64 << 10,
        request_time: Duration::from_millis(500),
        ..HttpLimits::default()
    };
    let world = World::with(QueueConfig::default(), limits);
    let mut stalled = TcpStream::connect(world.at).await.unwrap();
    let head = "POST /publish/t HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
                content-length: 100000\r\n\r\n";
    stalled.write_all(&[head.as_bytes(), " ".repeat(60_000).as_bytes()].concat()).await.unwrap();
    let held = async || {
        let text = get(world.at, "/metrics").await.text;
        let line = text.lines().find(|line| line.starts_with("gpuvitals_queue_receiving_bytes "));
        line.unwrap().rsplit(' ').next().unwrap().parse::<usize>().unwrap()
    };
    retried("all that was sent", async || (held().await >= 60_000).then_some(())).await;
    let answer = post(world.at, "/publish/t", &[LINES], messages(100, "\n").as_bytes()).await;
    assert!(answer.refused(503, "overloaded").contains("again"));
    assert_eq!(answer.header("retry-after"), Some("1"));

    let mut answer = String::new();
    stalled.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("took longer"), "{answer}");
    let answer = post(world.at, "/publish/t", &[LINES], messages(100, "\n").as_bytes()).await;
    assert_eq!((answer.json()["accepted"].clone(), held().await), (json!(100), 0));
}
