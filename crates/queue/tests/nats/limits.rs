//! Bounds of topics and frames.

use std::num::NonZeroU32;
use std::time::Duration;

use gpuvitals_queue::link::publish_until;
use gpuvitals_queue::{Consumer, ConsumerOptions, ContentType, Frame, Producer, PublishError};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::Nats;
use crate::away::BACKOFF;
use crate::behaviour::{Place, credits, frame, is_quiet, receive, receive_one};
use crate::server::Server;

fn large() -> Frame {
    Frame::new(ContentType::Batch, 1, vec![0; 20 << 10])
}

#[tokio::test]
async fn a_full_topic_refuses_until_messages_reach_their_age() {
    let server = Server::start().await;
    let mut place = Nats::at(server.url());
    // Less than a URL may say.
    let settings = place.settings();
    (settings.max_bytes, settings.max_age) = (64 << 10, Duration::from_secs(1));
    let producer = place.producer("t");
    let mut taken: usize = 0;
    let refusal = loop {
        match producer.publish(large()).await {
            Ok(_) => taken += 1,
            Err(refusal) => break refusal,
        }
        assert!(taken < 10);
    };
    assert!(matches!(refusal, PublishError::Full { .. }) && refusal.is_retryable(), "{refusal:?}");
    let words = refusal.to_string();
    assert!(words.starts_with("topic t is full: its stream holds every message for its max_age"), "{words}");
    assert!(words.contains("Raise max_bytes or shorten max_age: nats stream edit"), "{words}");
    assert!(!words.contains("broker"), "a setting of the broker is of no use here: {words}");
    let cancel = CancellationToken::new();
    let sent = publish_until(&producer, large().stamped("p", 1), &cancel, &BACKOFF);
    timeout(Duration::from_secs(20), sent).await.expect("in time").unwrap();
}

#[tokio::test]
async fn acknowledged_messages_stay_for_groups_to_come() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    place.producer("t").publish(frame(5)).await.unwrap();
    for group in ["a", "b"] {
        let mut consumer = place.member("t", group, &credits(100));
        let delivery = receive_one(&mut consumer).await;
        assert_eq!(consumer.ack(&[delivery.id]).await, Ok(5));
        consumer.leave().await;
        let stats = place.admin().stats("t").await.unwrap();
        assert_eq!((stats.frames, stats.groups[group].lag), (1, 0));
    }
}

#[tokio::test]
async fn a_frame_larger_than_the_server_takes_is_refused() {
    let server = Server::start_with("max_payload: 65536\n").await;
    let producer = Nats::at(server.url()).producer("t");
    let outcome = producer.publish(Frame::new(ContentType::Batch, 9, vec![0; 63 << 10])).await;
    assert!(matches!(outcome, Err(PublishError::TooLarge { messages: 9, .. })), "{outcome:?}");
    producer.publish(Frame::new(ContentType::Batch, 9, vec![0; 57 << 10])).await.unwrap();
}

#[tokio::test]
async fn no_more_is_fetched_than_the_credits_allow() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    let producer = place.producer("t");
    for _ in 0..40 {
        producer.publish(frame(100)).await.unwrap();
    }
    let admin = place.admin();
    for (group, max_batch) in [("all", None), ("batches", NonZeroU32::new(300))] {
        let options =
            ConsumerOptions { max_batch, ack_timeout: Some(Duration::from_mins(1)), ..credits(1_000) };
        let mut consumer = place.member("t", group, &options);
        let mut received = 0;
        while received < 10 {
            let frames = receive(&mut consumer).await.len();
            assert!(max_batch.is_none() || frames <= 3, "{frames}");
            received += frames;
        }
        assert!(is_quiet(&mut consumer).await);
        assert_eq!((received, admin.stats("t").await.unwrap().groups[group].in_flight), (10, 10));
    }
}
