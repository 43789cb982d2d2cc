//! Publishing, subscribing and settling.

use std::time::Duration;

use futures_util::future::join_all;
use gpuvitals_queue::link::{Client, Credentials, of_one_consumer};
use gpuvitals_queue::{
    Consumer, ConsumerOptions, ContentType, DeliveryId, Encoding, Frame, FrameDurability, Nack, NackKind,
    Producer, PublishError, ReceiveError, SettleError, Start, TopicStats,
};

use super::rig::{Rig, TOPIC, credits, frame, in_time, receive};

fn nack(id: DeliveryId, kind: NackKind) -> Nack {
    Nack { id, kind, reason: "busy".into() }
}

#[tokio::test]
async fn what_is_published_is_delivered_once_and_acknowledged() {
    let rig = Rig::new();
    let (producer, mut consumer) = (rig.producer(), rig.consumer("g"));
    let sent = frame(5).encoded(Encoding::Zstd).stamped("life", 3);
    let receipt = in_time(producer.publish(sent.clone())).await.unwrap();
    assert_eq!((receipt.offset, receipt.durability), (Some(0), FrameDurability::Memory));
    let deliveries = receive(&mut consumer).await;
    let [delivery] = &deliveries[..] else { panic!("one delivery: {deliveries:?}") };
    assert_eq!((&*delivery.frame, &*delivery.topic, delivery.attempt), (&sent, TOPIC, 1));
    assert_eq!(in_time(consumer.ack(&[delivery.id])).await, Ok(5));
    assert_eq!(in_time(consumer.ack(&[delivery.id])).await, Ok(0), "a repeat is fine");
    assert_eq!(rig.held(), 0);
    let repeat = in_time(producer.publish(sent)).await.unwrap();
    assert_eq!((repeat.offset, repeat.duplicate), (None, true));
    rig.stop().await;
}

#[tokio::test]
async fn publishes_called_at_once_are_pipelined_and_each_gets_its_own_answer() {
    let rig = Rig::with(|config| config.max_messages = 1_000, |_| {});
    let producer = rig.producer();
    // Every tenth is beyond what the topic can ever hold.
    let count = |n: u32| if n.is_multiple_of(10) { 1_001 } else { 1 };
    let outcomes = in_time(join_all((0..200).map(|n| producer.publish(frame(count(n)))))).await;
    for (n, outcome) in (0..).zip(&outcomes) {
        match outcome {
            Ok(receipt) => assert!(count(n) == 1 && receipt.offset.is_some()),
            Err(error) => {
                assert_eq!(*error, PublishError::TooLarge { messages: 1_001, bytes: 164 });
            }
        }
    }
    assert_eq!(rig.held(), 180);
    let stats = rig.queue.topic_stats(TOPIC).unwrap();
    assert_eq!((stats.published, stats.duplicates), (180, 0), "every frame has its own stamp");
    rig.stop().await;
}

#[tokio::test]
async fn a_full_topic_says_when_to_come_again() {
    let rig = Rig::with(|config| config.max_messages = 3, |_| {});
    let producer = rig.producer();
    in_time(producer.publish(frame(3))).await.unwrap();
    let full = in_time(producer.publish(frame(1))).await.unwrap_err();
    let retry_after = Some(Duration::from_millis(250));
    assert_eq!(full, PublishError::full(TOPIC, retry_after));
    rig.stop().await;
}

#[tokio::test]
async fn what_is_refused_comes_again_and_what_is_given_back_does_not_count() {
    let rig = Rig::new();
    let mut consumer = rig.consumer("g");
    in_time(rig.producer().publish(frame(2))).await.unwrap();
    for (kind, attempt) in [(NackKind::Retry, 1), (NackKind::Release, 2), (NackKind::Retry, 2)] {
        let delivery = receive(&mut consumer).await.remove(0);
        assert_eq!(delivery.attempt, attempt);
        assert_eq!(in_time(consumer.nack(&[nack(delivery.id, kind)])).await, Ok(2));
    }
    assert_eq!(receive(&mut consumer).await[0].attempt, 3);
    rig.stop().await;
}

#[tokio::test]
async fn a_deadline_moves_when_it_is_extended_and_only_then() {
    let rig = Rig::new();
    let patient = |ms| ConsumerOptions { ack_timeout: Some(Duration::from_millis(ms)), ..credits(9) };
    let mut consumer = rig.consumer_with("g", &patient(300));
    in_time(rig.producer().publish(frame(1))).await.unwrap();
    let delivery = receive(&mut consumer).await.remove(0);
    let now = gpuvitals_queue::QueueClock::system().now();
    let left = delivery.deadline.since(now);
    assert!(left <= Duration::from_millis(300) && !left.is_zero(), "{left:?}");
    in_time(consumer.extend(&[delivery.id], Duration::from_secs(1))).await.unwrap();
    let nothing = tokio::time::timeout(Duration::from_millis(500), consumer.receive()).await;
    assert!(nothing.is_err(), "it is still held");
    let again = receive(&mut consumer).await.remove(0);
    assert_eq!(again.attempt, 2);
    let over = in_time(consumer.extend(&[delivery.id], Duration::from_mins(1))).await;
    assert_eq!(over, Err(SettleError::LeaseOver { id: delivery.id, more: 0 }));
    rig.stop().await;
}

#[tokio::test]
async fn a_consumer_has_no_more_than_its_credits() {
    let rig = Rig::new();
    let (producer, mut consumer) = (rig.producer(), rig.consumer_with("g", &credits(10)));
    for _ in 0..5 {
        in_time(producer.publish(frame(4))).await.unwrap();
    }
    let mut ids = Vec::new();
    while ids.len() < 2 {
        ids.extend(receive(&mut consumer).await.iter().map(|delivery| delivery.id));
    }
    let more = tokio::time::timeout(Duration::from_millis(100), consumer.receive()).await;
    assert!(more.is_err(), "a third frame is beyond the credits");
    in_time(consumer.ack(&ids[..1])).await.unwrap();
    assert_eq!(receive(&mut consumer).await[0].id.offset, 2);
    rig.stop().await;
}

#[tokio::test]
async fn every_group_gets_everything_and_within_a_group_one_consumer_gets_each() {
    let rig = Rig::new();
    let producer = rig.producer();
    let mut members = Vec::new();
    for group in ["a", "a", "b"] {
        let consumer = rig.consumer_with(group, &credits(1));
        members.push((group, consumer));
    }
    let mut tasks = tokio::task::JoinSet::new();
    for (group, mut consumer) in members {
        tasks.spawn(async move {
            let mut offsets = Vec::new();
            while let Ok(Ok(deliveries)) =
                tokio::time::timeout(Duration::from_millis(700), consumer.receive()).await
            {
                for delivery in deliveries {
                    consumer.ack(&[delivery.id]).await.unwrap();
                    offsets.push(delivery.id.offset);
                }
            }
            (group, offsets)
        });
    }
    in_time(join_all((0..40).map(|_| producer.publish(frame(1))))).await;
    let (mut a, mut b) = (Vec::new(), Vec::new());
    while let Some(done) = in_time(tasks.join_next()).await {
        let (group, offsets) = done.unwrap();
        assert!(!offsets.is_empty(), "both members of a group get something");
        if group == "a" { a.extend(offsets) } else { b.extend(offsets) }
    }
    a.sort_unstable();
    b.sort_unstable();
    let all: Vec<_> = (0..40).collect();
    assert_eq!((a, b), (all.clone(), all));
    rig.stop().await;
}

#[tokio::test]
async fn a_group_begins_where_its_first_consumer_says() {
    let rig = Rig::new();
    let producer = rig.producer();
    in_time(producer.publish(frame(1))).await.unwrap();
    let newest = ConsumerOptions { start: Start::Newest, ..ConsumerOptions::default() };
    let mut late = rig.consumer_with("late", &newest);
    let nothing = tokio::time::timeout(Duration::from_millis(200), late.receive()).await;
    assert!(nothing.is_err(), "what came before is not for it");
    in_time(producer.publish(frame(1))).await.unwrap();
    assert_eq!(receive(&mut late).await[0].id.offset, 1);
    rig.stop().await;
}

#[tokio::test]
async fn connections_of_one_consumer_are_one_subscriber() {
    let rig = Rig::new();
    let of_one = of_one_consumer(ConsumerOptions::default());
    let (mut a, mut b) = (rig.consumer_with("g", &of_one), rig.consumer_with("g", &of_one));
    let (mut alone, mut other) = (rig.consumer("g"), rig.consumer_with("h", &of_one));
    let members = |stats: &TopicStats| stats.groups.values().map(|group| group.members).sum::<u64>();
    // They join, and there is nothing to receive.
    tokio::select! {
        _ = join_all([&mut a, &mut b, &mut alone, &mut other].map(Consumer::receive)) => panic!("nothing was published"),
        () = rig.until(|stats| members(stats) == 4) => {}
    }
    let stats = rig.queue.topic_stats(TOPIC).unwrap();
    assert_eq!((stats.subscribers, stats.groups["g"].members, stats.groups["h"].members), (3, 3, 1));
    rig.stop().await;
}

#[tokio::test]
async fn neither_leaving_nor_crashing_counts_as_an_attempt() {
    let rig = Rig::new();
    in_time(rig.producer().publish(frame(1))).await.unwrap();
    let mut leaving = rig.consumer("g");
    assert_eq!(receive(&mut leaving).await[0].attempt, 1);
    in_time(leaving.leave()).await;
    let mut crashing = rig.consumer("g");
    assert_eq!(receive(&mut crashing).await[0].attempt, 1, "it did not count");
    drop(crashing);
    let mut last = rig.consumer("g");
    assert_eq!(receive(&mut last).await[0].attempt, 1, "nor did the loss");
    rig.stop().await;
}

#[tokio::test]
async fn a_consumer_of_a_group_that_is_removed_is_told_so() {
    let rig = Rig::new();
    let mut consumer = rig.consumer("g");
    in_time(rig.producer().publish(frame(1))).await.unwrap();
    receive(&mut consumer).await;
    rig.queue.remove_group(TOPIC, "g").unwrap();
    assert_eq!(in_time(consumer.receive()).await.unwrap_err(), ReceiveError::NotSubscribed);
    rig.stop().await;
}

fn frame_of_json() -> Frame {
    let text = r#"{"timestamp":"2026-01-01T00:00:00Z","fields":{"gpu_id":"gpu_0","temperature":61}}"#;
    Frame::new(ContentType::Json, 1, text)
}

#[tokio::test]
async fn a_url_decides_how_a_queue_is_spoken_to() {
    let rig = Rig::new();
    let client = |url: &str| Client::new(url.parse().unwrap(), Credentials::default());
    let own = Client::in_process(rig.queue.clone());
    let places = [
        own,
        client(&rig.url().to_string()),
        client(&rig.address.to_string()),
        client(&format!("http://{}", rig.address)),
    ];
    for (place, group) in places.iter().zip(["a", "b", "c", "d"]) {
        let mut consumer = in_time(place.consumer(TOPIC, group, &ConsumerOptions::default())).await.unwrap();
        let sent = frame_of_json();
        in_time(place.producer(TOPIC).unwrap().publish(sent.clone())).await.unwrap();
        let delivery = receive(&mut consumer).await.pop().unwrap();
        assert_eq!(delivery.frame.payload, sent.payload, "{}", place.url());
        assert!(in_time(consumer.ack(&[delivery.id])).await.is_ok());
    }
    let refused = client("inproc:").producer(TOPIC).unwrap_err();
    assert_eq!(refused.to_string(), "inproc: is the queue of this process, which has none");
    let refused = places[1].producer("a/b").unwrap_err();
    assert_eq!(refused.to_string(), "cannot use the name of the topic");
    rig.stop().await;
}
