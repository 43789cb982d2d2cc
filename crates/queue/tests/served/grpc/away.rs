//! A queue that goes away, and comes back or not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use gpuvitals_core::backoff::Backoff;
use gpuvitals_queue::link::{Away, Credentials, GrpcConsumer, GrpcProducer, Stamps, publish_until};
use gpuvitals_queue::protocol::v1;
use gpuvitals_queue::{
    Consumer, ConsumerOptions, FrameDurability, Nack, NackKind, Producer, PublishError, Queue, QueueClock,
    QueueConfig, SettleError,
};
use gpuvitals_rig::waiting::retried;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::rig::{Rig, TOPIC, frame, in_time, receive};

#[tokio::test]
async fn nobody_waits_for_a_queue_that_is_away_to_be_made() {
    let (queue, address) = Rig::new().stop().await;
    let url = format!("grpc://{address}").parse().unwrap();
    let producer = GrpcProducer::new(&url, &Credentials::default(), TOPIC).unwrap();
    let away = in_time(producer.publish(frame(1))).await.unwrap_err();
    assert!(
        matches!(&away, PublishError::Unavailable { reason } if reason.starts_with("127.0.0.1:")),
        "{away}"
    );
    assert!(away.is_retryable());
    let options = ConsumerOptions::default();
    let mut consumer = GrpcConsumer::new(&url, &Credentials::default(), TOPIC, "g", &options).unwrap();
    let mut away = consumer.away();
    let refused = |away: &Away| away.as_ref().is_some_and(|reason| reason.contains("Connection refused"));
    tokio::select! {
        received = consumer.receive() => panic!("{received:?}"),
        told = in_time(away.wait_for(refused)) => drop(told.unwrap()),
    }
    let rig = Rig::over(queue, address, |_| {});
    let cancel = CancellationToken::new();
    let backoff = Backoff::default();
    let sent = publish_until(&producer, frame(1), &cancel, &backoff);
    let (receipt, deliveries) = tokio::join!(in_time(sent), receive(&mut consumer));
    assert_eq!((receipt.unwrap().offset, deliveries[0].id.offset), (Some(0), 0));
    rig.stop().await;
}

#[tokio::test]
async fn a_service_that_is_no_queue_is_named() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n").await.ok();
            stream.read_to_end(&mut Vec::new()).await.ok();
        }
    });
    for scheme in ["grpc", "http"] {
        let url = format!("{scheme}://{address}").parse().unwrap();
        let producer = GrpcProducer::new(&url, &Credentials::default(), TOPIC).unwrap();
        let refused = in_time(producer.publish(frame(1))).await.unwrap_err();
        assert!(
            matches!(&refused, PublishError::Unavailable { reason } if reason.contains(&address)),
            "{refused}"
        );
    }
    serving.abort();
}

#[tokio::test]
async fn a_server_that_restarts_again_and_again_loses_nothing_and_doubles_nothing() {
    const FRAMES: u64 = 400;
    let mut rig = Rig::new();
    let (url, cancel) = (rig.url(), CancellationToken::new());
    let mut publishers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let producer = GrpcProducer::new(&url, &Credentials::default(), TOPIC).unwrap();
        let (stamps, cancel) = (Stamps::new(), cancel.clone());
        let backoff = Backoff { base: Duration::from_millis(5), cap: Duration::from_millis(50) };
        publishers.spawn(async move {
            for _ in 0..FRAMES / 4 {
                publish_until(&producer, stamps.stamp(frame(1)), &cancel, &backoff).await.unwrap();
            }
        });
    }
    let mut consumer = rig.consumer("g");
    let consuming = tokio::spawn(async move {
        let mut acked = BTreeSet::new();
        while acked.len() < 400 {
            let deliveries = consumer.receive().await.unwrap();
            let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.id).collect();
            // What a lost connection leaves unsettled comes again.
            if consumer.ack(&ids).await.is_ok() {
                acked.extend(ids.iter().map(|id| id.offset));
            }
        }
        acked
    });
    for restart in 1..=5 {
        rig.until(|stats| stats.published >= restart * FRAMES / 8).await;
        let (queue, address) = rig.stop().await;
        rig = Rig::over(queue, address, |_| {});
    }
    while let Some(done) = in_time(publishers.join_next()).await {
        done.unwrap();
    }
    let acked = in_time(consuming).await.unwrap();
    assert_eq!(acked, (0..FRAMES).collect(), "every offset once: none lost, none stored twice");
    assert_eq!(rig.queue.topic_stats(TOPIC).unwrap().published, FRAMES);
    rig.stop().await;
}

#[tokio::test]
async fn a_queue_on_disk_that_restarts_knows_every_frame_that_it_answered() {
    const FRAMES: u64 = 100;
    let directory = tempfile::tempdir().unwrap();
    let open = async || {
        let config = QueueConfig { backoff_base: Duration::ZERO, ..QueueConfig::default() };
        Queue::open(directory.path(), config, QueueClock::system()).await.unwrap().0
    };
    let rig = Rig::over(open().await, "127.0.0.1:0".parse().unwrap(), |_| {});
    let (producer, mut consumer) = (rig.producer(), rig.consumer("g"));
    let publish_all =
        || join_all((0..FRAMES).map(|sequence| producer.publish(frame(1).stamped("life", sequence))));
    for outcome in in_time(publish_all()).await {
        assert_eq!(outcome.unwrap().durability, FrameDurability::Synced);
    }
    let first = receive(&mut consumer).await;
    let ids: Vec<_> = first.iter().map(|delivery| delivery.id).collect();
    let mut acked = in_time(consumer.ack(&ids)).await.unwrap();
    let queue = rig.queue.clone();
    // The server stops first: what consumers have is given back.
    let (_, address) = rig.stop().await;
    queue.shutdown().await;
    drop(queue);
    let rig = Rig::over(open().await, address, |_| {});
    for outcome in in_time(publish_all()).await {
        // The first ones find the old connection lost.
        assert!(outcome.is_err() || outcome.unwrap().duplicate);
    }
    assert!(in_time(publish_all()).await.iter().all(|outcome| outcome.as_ref().unwrap().duplicate));
    while acked < FRAMES {
        for delivery in receive(&mut consumer).await {
            acked += in_time(consumer.ack(&[delivery.id])).await.unwrap();
        }
    }
    assert_eq!(rig.held(), 0);
    rig.stop().await;
}

#[tokio::test]
async fn a_name_of_a_lost_session_settles_nothing_of_a_new_one() {
    let rig = Rig::new();
    let mut consumer = rig.consumer("g");
    in_time(rig.producer().publish(frame(1))).await.unwrap();
    let old = receive(&mut consumer).await[0].id;
    let (_, address) = rig.stop().await;
    // A queue in memory comes back empty, and gives the same names to other frames.
    let queue = Queue::in_process(QueueConfig::default(), QueueClock::system());
    let rig = Rig::over(queue, address, |_| {});
    in_time(rig.producer().publish(frame(1))).await.unwrap();
    assert_eq!(in_time(consumer.ack(&[old])).await, Err(SettleError::ConnectionLost));
    assert_eq!(rig.held(), 1);
    let new = receive(&mut consumer).await[0].id;
    assert_eq!(new.to_string(), old.to_string(), "the same name");
    // Whoever still works on the old frame is done with it only now.
    assert_eq!(in_time(consumer.ack(&[old])).await, Ok(0));
    let refusal = Nack { id: old, kind: NackKind::Reject, reason: "old".into() };
    assert_eq!(in_time(consumer.nack(&[refusal])).await, Ok(0));
    let over = in_time(consumer.extend(&[old], Duration::from_secs(1))).await;
    assert_eq!(over, Err(SettleError::LeaseOver { id: old, more: 0 }));
    assert_eq!(rig.held(), 1, "the new one was not settled");
    assert_eq!(in_time(consumer.ack(&[new])).await, Ok(1));
    assert_eq!(rig.held(), 0);
    rig.stop().await;
}

#[tokio::test]
async fn an_end_answers_what_it_read_and_tells_the_others() {
    let rig = Rig::new();
    let mut client = rig.raw().await;
    let mut consumer = rig.consumer("g");
    // One frame was sent, and the stream stays open.
    let (requests, mut outgoing) = tokio::sync::mpsc::channel(1);
    let body = futures_util::stream::poll_fn(move |context| outgoing.poll_recv(context));
    let mut answers = client.publish_stream(body).await.unwrap().into_inner();
    let named = v1::PublishRequest { topic: TOPIC.into(), frame: Some(json("{}")) };
    requests.send(named).await.unwrap();
    receive(&mut consumer).await;
    let queue = rig.queue.clone();
    let (_, ()) = tokio::join!(rig.stop(), async {
        let first = in_time(answers.message()).await.unwrap().unwrap();
        assert!(matches!(first.outcome, Some(v1::publish_reply::Outcome::Receipt(_))));
        let end = in_time(answers.message()).await.unwrap_err();
        assert_eq!((end.code(), end.message()), (Code::Unavailable, "the queue is shutting down"));
    });
    let mut other = queue.subscribe(TOPIC, "g", &ConsumerOptions::default()).await.unwrap();
    assert_eq!(receive(&mut other).await[0].attempt, 1, "the end of the server blames no message");
}

#[tokio::test]
async fn a_queue_that_drains_waits_for_acknowledgements_over_the_network() {
    let rig = Rig::new();
    let mut consumer = rig.consumer("g");
    for _ in 0..3 {
        in_time(rig.producer().publish(frame(1))).await.unwrap();
    }
    let first = receive(&mut consumer).await;
    let consuming = async {
        let mut seen = 0;
        for delivery in first {
            seen += consumer.ack(&[delivery.id]).await.unwrap();
        }
        while seen < 3 {
            for delivery in receive(&mut consumer).await {
                seen += consumer.ack(&[delivery.id]).await.unwrap();
            }
        }
    };
    let queue = rig.queue.clone();
    let (report, ()) = tokio::join!(in_time(queue.shutdown()), consuming);
    assert_eq!(report, gpuvitals_queue::DrainReport::default());
    let refused = in_time(rig.producer().publish(frame(1))).await.unwrap_err();
    assert_eq!(refused, PublishError::Unavailable { reason: "queue is shutting down".into() });
    rig.stop().await;
}

#[tokio::test]
async fn a_publish_that_is_given_up_does_not_hold_up_the_others() {
    let rig = Rig::new();
    let producer = Arc::new(rig.producer());
    in_time(producer.publish(frame(1))).await.unwrap();
    for _ in 0..300 {
        // Polled once: sent, its answer not waited for.
        let given_up = tokio::time::timeout(Duration::ZERO, producer.publish(frame(1))).await;
        drop(given_up);
    }
    in_time(producer.publish(frame(1))).await.unwrap();
    rig.until(|stats| stats.published >= 2).await;
    rig.stop().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_an_open_stream_is_not_idle() {
    let short = Duration::from_millis(50);
    let rig = Rig::with(|_| {}, |config| config.limits.idle = short);
    let (producer, mut consumer) = (rig.producer(), rig.consumer("g"));
    in_time(producer.publish(frame(1))).await.unwrap();
    receive(&mut consumer).await;
    // Each of these connections is closed once it has been idle for that long.
    for _ in 0..5 {
        let mut silent = tokio::net::TcpStream::connect(rig.address).await.unwrap();
        in_time(silent.read_to_end(&mut Vec::new())).await.unwrap();
    }
    in_time(producer.publish(frame(1))).await.unwrap();
    assert_eq!(receive(&mut consumer).await[0].attempt, 1, "the subscription still stands");
    rig.stop().await;
}

#[tokio::test]
async fn a_client_that_reads_no_answer_gives_its_place_back() {
    let rig = Rig::with(|_| {}, |config| config.limits.connections = 1);
    // HTTP/2 with windows of nothing, and a request: GET /metrics.
    let mut asked = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    asked.extend(b"\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0");
    asked.extend(b"\0\0\x0f\x01\x05\0\0\0\x01\x82\x86\x04\x08/metrics\x01\x01q");
    let mut greedy = tokio::net::TcpStream::connect(rig.address).await.unwrap();
    greedy.write_all(&asked).await.unwrap();
    let other = async || {
        let mut other = tokio::net::TcpStream::connect(rig.address).await.unwrap();
        let mut answer = Vec::new();
        other.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.ok();
        other.read_to_end(&mut answer).await.ok();
        answer.starts_with(b"HTTP/1.1 200").then_some(())
    };
    retried("an answer to another", other).await;
    drop(greedy);
    rig.stop().await;
}

pub(crate) fn json(text: &'static str) -> v1::Frame {
    v1::Frame {
        content_type: v1::ContentType::Json.into(),
        count: 1,
        payload: text.into(),
        ..v1::Frame::default()
    }
}
