//! Dead letters, foreign messages, and what the streams look like.

use std::sync::Arc;
use std::time::Duration;

use gpuvitals_queue::{
    Consumer, ConsumerOptions, ContentType, DeadSelection, Failure, Frame, NackKind, Producer, PublishError,
    Replayed, WhenFull,
};
use tokio::time::{Instant, sleep, timeout};

use crate::Nats;
use crate::behaviour::{ACK_TIMEOUT, MAX_RETRIES, Place, credits, frame, is_quiet, nack, receive_one};
use crate::server::Server;

#[tokio::test]
async fn dead_letters_are_kept_with_their_reason_replayed_and_purged() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    let (producer, admin) = (place.producer("t"), place.admin());
    let mut consumer = place.consumer("t", "g", &credits(100)).await;
    for number in 0..3 {
        producer.publish(frame(10).stamped("p", number)).await.unwrap();
        let delivery = receive_one(&mut consumer).await;
        consumer.nack(&[nack(delivery.id, NackKind::Reject)]).await.unwrap();
    }
    let letters = admin.dead_letters("t", 0, 10).await.unwrap();
    assert_eq!(letters.len(), 3);
    let letter = &letters[1];
    assert_eq!((&*letter.group, &*letter.topic, letter.offset, letter.attempts), ("g", "t", 2, 1));
    assert_eq!(letter.reason, Failure::Rejected("because".into()));
    assert_eq!(*letter.frame, frame(10).stamped("p", 1));
    // The server's clock and the one of this process differ.
    assert!(letter.published_at.0.abs_diff(letter.died_at.0) < 60_000);
    assert_eq!(admin.stats("t").await.unwrap().dead_letters, 3);

    assert_eq!(admin.purge_dead("t", &DeadSelection::Ids(vec![letters[0].id, 77])).await, Ok(1));
    let replayed = admin.replay_dead("t", &DeadSelection::Oldest(1)).await.unwrap();
    assert_eq!(replayed, Replayed { letters: 1, ..Replayed::default() });
    let again = receive_one(&mut consumer).await;
    assert_eq!((again.frame.count, again.attempt), (10, 1));
    assert_eq!(consumer.ack(&[again.id]).await, Ok(10));
    assert!(is_quiet(&mut consumer).await);
    let left = admin.dead_letters("t", 0, 10).await.unwrap();
    assert_eq!(left.iter().map(|letter| letter.id).collect::<Vec<_>>(), [letters[2].id]);
    assert_eq!(admin.topics().await.unwrap(), ["t"]);
}

#[tokio::test]
async fn a_letter_that_dies_again_right_after_its_replay_is_a_letter_again() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    let admin = place.admin();
    place.producer("t").publish(frame(5)).await.unwrap();
    let mut consumer = place.consumer("t", "g", &credits(100)).await;
    let mut last = 0;
    for _ in 0..3 {
        let delivery = receive_one(&mut consumer).await;
        assert_eq!(consumer.nack(&[nack(delivery.id, NackKind::Reject)]).await, Ok(5));
        let letters = admin.dead_letters("t", 0, 10).await.unwrap();
        let [letter] = &letters[..] else { panic!("{letters:?}") };
        assert!(letter.id > last && letter.offset == 1, "{letter:?}");
        last = letter.id;
        assert_eq!(admin.replay_dead("t", &DeadSelection::Oldest(1)).await.unwrap().letters, 1);
    }
}

#[tokio::test]
async fn a_message_that_kills_its_consumers_becomes_a_dead_letter() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    place.producer("t").publish(frame(5)).await.unwrap();
    for _ in 0..=MAX_RETRIES {
        let mut consumer = place.consumer("t", "g", &credits(100)).await;
        receive_one(&mut consumer).await;
        drop(consumer);
    }
    let mut last = place.consumer("t", "g", &credits(100)).await;
    let admin = place.admin();
    let deadline = Instant::now() + Duration::from_secs(20);
    let letters = loop {
        let received = timeout(ACK_TIMEOUT, last.receive()).await;
        assert!(received.is_err(), "nobody is to try it again: {received:?}");
        let letters = admin.dead_letters("t", 0, 10).await.unwrap();
        if !letters.is_empty() {
            break letters;
        }
        assert!(Instant::now() < deadline, "it vanished");
    };
    assert_eq!((letters[0].attempts, &letters[0].reason), (MAX_RETRIES + 1, &Failure::AckTimeout));
    assert_eq!(admin.stats("t").await.unwrap().groups["g"].lag, 0);
}

#[tokio::test]
async fn foreign_messages_are_json_or_dead_letters() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    let mut consumer = place.consumer("t", "g", &credits(100)).await;
    place.producer("t").publish(frame(1)).await.unwrap();
    let first = receive_one(&mut consumer).await;
    consumer.ack(&[first.id]).await.unwrap();
    let foreign = async_nats::connect(server.url().to_string()).await.unwrap();
    foreign.publish("gpuvitals.t", "{\"fields\":{}}".into()).await.unwrap();
    let one = receive_one(&mut consumer).await;
    assert_eq!((one.frame.content_type, one.frame.count), (ContentType::Json, 1));
    consumer.ack(&[one.id]).await.unwrap();
    foreign.publish("gpuvitals.t", "[{},{}]".into()).await.unwrap();
    let two = receive_one(&mut consumer).await;
    assert_eq!(consumer.ack(&[two.id]).await, Ok(2));
    let mut odd = async_nats::HeaderMap::new();
    odd.insert("Gpuvitals-Count", "many");
    foreign.publish_with_headers("gpuvitals.t", odd, "what?".into()).await.unwrap();
    assert!(is_quiet(&mut consumer).await);
    let letters = place.admin().dead_letters("t", 0, 10).await.unwrap();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!(&letter.frame.payload[..], b"what?");
    let reason = letter.reason.to_string();
    assert!(reason.contains("Gpuvitals-Count: \"many\" is not a number"), "{reason}");
}

/// Topics of a few frames.
fn small(server: &Server, when_full: WhenFull) -> Nats {
    let mut place = Nats::at(server.url());
    let settings = Arc::make_mut(&mut place.url.nats);
    (settings.max_bytes, settings.when_full) = (Some(64 << 10), Some(when_full));
    place
}

#[tokio::test]
async fn a_full_topic_refuses_until_all_groups_have_acknowledged() {
    let server = Server::start().await;
    let place = small(&server, WhenFull::Refuse);
    let producer = place.producer("t");
    let large = || Frame::new(ContentType::Batch, 1, vec![0; 20 << 10]);
    let mut taken: usize = 0;
    let refusal = loop {
        match producer.publish(large()).await {
            Ok(_) => taken += 1,
            Err(refusal) => break refusal,
        }
        assert!(taken < 10);
    };
    assert!(matches!(refusal, PublishError::Full { .. }) && refusal.is_retryable(), "{refusal:?}");
    let (mut one, mut other) =
        (place.consumer("t", "one", &credits(100)).await, place.consumer("t", "other", &credits(100)).await);
    // Both have to go on receiving, for that is when they look.
    let deadline = Instant::now() + Duration::from_secs(30);
    while producer.publish(large()).await.is_err() {
        assert!(Instant::now() < deadline, "there is no room again");
        for consumer in [&mut one, &mut other] {
            let Ok(received) = timeout(Duration::from_millis(200), consumer.receive()).await else {
                continue;
            };
            let ids: Vec<_> = received.unwrap().iter().map(|delivery| delivery.id).collect();
            consumer.ack(&ids).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_topic_may_drop_its_oldest_instead() {
    let server = Server::start().await;
    let place = small(&server, WhenFull::DropOldest);
    let producer = place.producer("t");
    for _ in 0..10 {
        producer.publish(Frame::new(ContentType::Batch, 1, vec![0; 20 << 10])).await.unwrap();
    }
    let frames = place.admin().stats("t").await.unwrap().frames;
    assert!((1..=3).contains(&frames), "{frames}");
}

#[tokio::test]
async fn an_abandoned_group_with_a_time_to_live_is_removed() {
    let server = Server::start().await;
    let place = Nats::at(server.url());
    place.producer("t").publish(frame(1)).await.unwrap();
    let options = ConsumerOptions { group_ttl: Some(Duration::from_secs(1)), ..credits(10) };
    let mut brief = place.consumer("t", "brief", &options).await;
    receive_one(&mut brief).await;
    let admin = place.admin();
    assert!(admin.stats("t").await.unwrap().groups.contains_key("brief"));
    brief.leave().await;
    let deadline = Instant::now() + Duration::from_secs(20);
    while admin.stats("t").await.unwrap().groups.contains_key("brief") {
        assert!(Instant::now() < deadline, "it is still there");
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_frame_larger_than_the_server_takes_is_refused() {
    let server = Server::start_with("max_payload: 65536\n").await;
    let producer = Nats::at(server.url()).producer("t");
    let outcome = producer.publish(Frame::new(ContentType::Batch, 9, vec![0; 60 << 10])).await;
    assert!(matches!(outcome, Err(PublishError::TooLarge { messages: 9, .. })), "{outcome:?}");
    producer.publish(Frame::new(ContentType::Batch, 9, vec![0; 40 << 10])).await.unwrap();
}
