//! Publishing and subscribing, limits, and the end.

use std::io::Read;
use std::net::{TcpListener, TcpStream};

use gpuvitals_queue::{Consumer, FrameDurability, Nack, NackKind};
use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;
use gpuvitals_rig::small_disk::SmallDisk;
use gpuvitals_rig::waiting::until;
use serde_json::Value;

use crate::process::{Broker, consumer, message, outcome, receive};

#[tokio::test]
async fn what_is_published_by_http_is_received_by_grpc_on_the_same_port() {
    let broker = Broker::start(&[]);
    for url in [&broker.grpc, &broker.http] {
        let (status, answer) = broker.post("t", &format!("[{},{}]", message(0, 100), message(1, 200)));
        assert!((200..300).contains(&status), "{status} {answer}");
        let mut reader = consumer(url, "t", "g");
        let delivered = receive(&mut reader).await;
        assert_eq!((delivered[0].frame.count, delivered[0].attempt), (2, 1));
        let payload = std::str::from_utf8(&delivered[0].frame.payload).unwrap();
        assert!(payload.contains(r#""power_w":200"#), "{payload}");
        assert_eq!(reader.ack(&[delivered[0].id]).await.unwrap(), 2);
        reader.leave().await;
    }
    let (_, stats) = broker.get("/stats");
    assert_eq!((&stats["total_processed"], &stats["topics"]["t"]["messages"]), (&4.into(), &0.into()));
    assert_eq!(broker.get("/health").1["status"], "healthy");
    assert_eq!(broker.get("/topics").1["topics"], serde_json::json!(["t"]));
    assert_eq!(broker.terminate(), Some(0));
}

#[tokio::test]
async fn a_signal_lets_consumers_acknowledge_what_they_have() {
    let broker = Broker::start(&[]);
    let mut reader = broker.consumer("t", "g");
    assert!(broker.post("t", &message(0, 1)).0 < 300);
    let delivered = receive(&mut reader).await;
    broker.process.signal("TERM");
    broker.logged("the end", |lines| lines.iter().any(|line| line["message"] == "stopping").then_some(()));
    assert_eq!(reader.ack(&[delivered[0].id]).await.unwrap(), 1);
    drop(reader);
    broker.logged("the end", |lines| lines.iter().any(|line| line["message"] == "stopped").then_some(()));
    let log = broker.log();
    assert!(!log.contains("are gone") && !log.contains("had not acknowledged"), "{log}");
    assert_eq!(broker.process.ended().0, Some(0));
}

#[test]
fn what_is_lost_with_a_queue_in_memory_is_named() {
    let broker = Broker::start(&[]);
    assert!(broker.post("held", &message(0, 1)).0 < 300);
    broker.process.signal("INT");
    let lost: Value = broker.logged("what is gone", |lines| {
        lines.iter().find(|line| line["message"].as_str().is_some_and(|m| m.contains("are gone"))).cloned()
    });
    assert_eq!((&lost["topic"], &lost["messages"]), (&"held".into(), &1.into()));
}

#[tokio::test]
async fn what_only_a_tail_had_before_it_is_no_loss() {
    let broker = Broker::start(&[]);
    let (mut reader, mut tail) = (broker.consumer("t", "store"), broker.consumer("t", "tail-1"));
    assert!(broker.post("t", &message(0, 1)).0 < 300);
    let _held = receive(&mut tail).await;
    let ids = [receive(&mut reader).await[0].id];
    assert_eq!(reader.ack(&ids).await.unwrap(), 1);
    tail.leave().await;
    broker.process.signal("TERM");
    let (code, log) = broker.process.ended();
    assert_eq!(code, Some(0));
    assert!(!log.contains("left in memory") && log.contains("held for tails alone"), "{log}");
}

#[test]
fn a_port_that_is_taken_is_named_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = gpuvitals!().args(["broker", "--port", &port]).finished().unwrap();
    let (code, _, errors) = outcome(&output);
    assert_eq!(code, Some(69), "{errors}");
    assert!(errors.contains(&port) && errors.contains("--port 0 takes a free one"), "{errors}");
}

#[test]
fn a_full_topic_refuses_or_lets_the_oldest_go_as_it_was_told() {
    for (policy, taken, health) in [("refuse", false, "degraded"), ("drop_oldest", true, "healthy")] {
        let broker = Broker::start(&["--messages-max", "2", "--when-full", policy]);
        for n in 0..2 {
            assert!(broker.post("t", &message(n, 1)).0 < 300);
        }
        let (status, answer) = broker.post("t", &message(2, 1));
        assert_eq!(status < 300, taken, "{policy}: {status} {answer}");
        let message = answer["message"].as_str().unwrap_or_default();
        let remedy = "topic t is full: more comes than is collected. Start or add collectors (gpuvitals queue stats names \
                      the group that is behind), or raise broker.messages_max and broker.bytes_max";
        assert_eq!(message.contains(remedy), !taken, "{policy}: {answer}");
        let stats = broker.get("/stats/t").1;
        let counts = [&stats["messages"], &stats["refused"], &stats["dropped"]].map(Value::as_u64);
        assert_eq!(counts, [2, u64::from(!taken), u64::from(taken)].map(Some), "{policy}: {stats}");
        assert_eq!(broker.get("/health").1["status"], health, "{policy}");
    }
}

#[tokio::test]
async fn without_persistence_a_receipt_says_so() {
    let broker = Broker::start(&[]);
    let frame = gpuvitals_queue::Frame::new(gpuvitals_queue::ContentType::Json, 1, message(0, 1));
    assert_eq!(broker.publish("t", frame).await.durability, FrameDurability::Memory);
}

/// Warnings in the log that contain these words.
fn warnings(broker: &Broker, words: &str) -> usize {
    let of = |line: &&Value| {
        line["level"] == "warn" && line["message"].as_str().is_some_and(|text| text.contains(words))
    };
    broker.logged(words, |lines| Some(lines.iter().filter(of).count()).filter(|count| *count > 0))
}

#[tokio::test]
async fn dead_letters_and_refused_publishers_and_connections_are_logged_once_with_their_count() {
    let broker = Broker::start(&["--messages-max", "2", "--connections-max", "4"]);
    assert!(broker.post("t", &format!("[{},{}]", message(0, 1), message(1, 1))).0 < 300);
    for _ in 0..20 {
        assert_eq!(broker.post("t", &message(2, 1)).0, 429);
    }
    assert_eq!(warnings(&broker, "topic t is full (2 messages) and refuses publishers"), 1);

    let mut reader = broker.consumer("t", "g");
    let id = receive(&mut reader).await[0].id;
    let reject = Nack { id, kind: NackKind::Reject, reason: "unreadable".into() };
    assert_eq!(reader.nack(&[reject]).await.unwrap(), 2);
    reader.leave().await;
    assert_eq!(warnings(&broker, "topic t has dead letters: 2 messages"), 1);

    // Idle connections give way to new ones; only where all are in use are new ones closed.
    let address = broker.http.strip_prefix("http://").unwrap();
    let idle: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    assert_eq!(broker.get("/health").0, 200);
    drop(idle);
    let readers: Vec<_> = ["a", "b", "c", "d"].map(|group| broker.consumer("u", group)).into();
    assert!(broker.post("u", &message(0, 1)).0 < 300);
    for mut reader in readers {
        receive(&mut reader).await;
        std::mem::forget(reader);
    }
    for mut refused in (0..3).map(|_| TcpStream::connect(address).unwrap()) {
        assert_eq!(refused.read(&mut [0]).unwrap_or(0), 0, "closed at once");
    }
    assert_eq!(warnings(&broker, "all connections are in use"), 1);
}

#[test]
fn a_full_disk_is_logged_and_shows_in_the_health() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let Some(_mounted) = SmallDisk::mount(&disk, "64k") else { return };
    let broker = Broker::start(&["--persistence-path", disk.join("mq").to_str().unwrap()]);
    let body = format!("[{}]", (0..200).map(|n| message(n, n)).collect::<Vec<_>>().join(","));
    until("a refusal", || broker.post("t", &body).0, |status| *status >= 300);
    let (_, health) = broker.get("/health");
    assert_eq!(health["status"], "degraded", "{health}");
    let reason = health["reason"].as_str().unwrap();
    assert!(reason.contains("queue cannot store") && reason.contains("No space left"), "{health}");
    assert!(reason.contains(" time"), "{health}");
    assert_eq!(warnings(&broker, "queue cannot store"), 1);
}
