//! What every queue does, whatever it runs on. Each behaviour is run against the queue in this process and against
//! NATS.

use std::collections::BTreeSet;
use std::future::Future;
use std::num::NonZeroU32;
use std::time::Duration;

use gpuvitals_queue::{
    Consumer, ConsumerOptions, ContentType, Delivery, DeliveryId, Encoding, Frame, Nack, NackKind, Producer,
    Queue, QueueClock, QueueConfig, SettleError, Start,
};
use tokio::time::{Instant, timeout};

/// Time to acknowledge in these tests.
pub(crate) const ACK_TIMEOUT: Duration = Duration::from_secs(1);

/// Deliveries after the first.
pub(crate) const MAX_RETRIES: u32 = 2;

/// How long something that has to happen is waited for, and something that must not.
const SOON: Duration = Duration::from_secs(20);
const QUIET: Duration = Duration::from_millis(400);

/// Where queues are.
pub(crate) trait Place {
    type Producer: Producer;
    type Consumer: Consumer;

    fn producer(&self, topic: &str) -> Self::Producer;

    /// A member of a group that exists when this is done.
    fn consumer(
        &self,
        topic: &str,
        group: &str,
        options: &ConsumerOptions,
    ) -> impl Future<Output = Self::Consumer>;
}

/// The queue in this process.
pub(crate) struct InProcess(Queue);

impl InProcess {
    pub(crate) fn new() -> Self {
        let config = QueueConfig {
            ack_timeout: ACK_TIMEOUT,
            max_retries: MAX_RETRIES,
            backoff_base: Duration::from_millis(20),
            ..QueueConfig::default()
        };
        Self(Queue::in_process(config, QueueClock::system()))
    }
}

impl Place for InProcess {
    type Producer = gpuvitals_queue::InProcessProducer;
    type Consumer = gpuvitals_queue::InProcessConsumer;

    fn producer(&self, topic: &str) -> Self::Producer {
        self.0.producer(topic)
    }

    async fn consumer(&self, topic: &str, group: &str, options: &ConsumerOptions) -> Self::Consumer {
        self.0.subscribe(topic, group, options).await.unwrap()
    }
}

pub(crate) fn frame(count: u32) -> Frame {
    Frame::new(ContentType::Json, count, format!("{{\"count\":{count}}}"))
}

pub(crate) fn credits(max_in_flight: u32) -> ConsumerOptions {
    ConsumerOptions { max_in_flight: NonZeroU32::new(max_in_flight).unwrap(), ..ConsumerOptions::default() }
}

pub(crate) async fn receive(consumer: &mut impl Consumer) -> Vec<Delivery> {
    timeout(SOON, consumer.receive()).await.expect("something comes").unwrap()
}

pub(crate) async fn receive_one(consumer: &mut impl Consumer) -> Delivery {
    let mut deliveries = receive(consumer).await;
    assert_eq!(deliveries.len(), 1, "{deliveries:?}");
    deliveries.remove(0)
}

pub(crate) async fn is_quiet(consumer: &mut impl Consumer) -> bool {
    timeout(QUIET, consumer.receive()).await.is_err()
}

pub(crate) fn nack(id: DeliveryId, kind: NackKind) -> Nack {
    Nack { id, kind, reason: "because".into() }
}

pub(crate) async fn a_frame_arrives_as_it_was_sent(place: &impl Place) {
    let producer = place.producer("t");
    let mut consumer = place.consumer("t", "g", &ConsumerOptions::default()).await;
    let sent = Frame::new(ContentType::Batch, 7, vec![0, 159, 146, 150])
        .encoded(Encoding::Zstd)
        .stamped("ü\r\nX-Evil: 1%", 9);
    let receipt = producer.publish(sent.clone()).await.unwrap();
    let delivery = receive_one(&mut consumer).await;
    assert_eq!(*delivery.frame, sent);
    assert_eq!((delivery.attempt, &*delivery.topic), (1, "t"));
    assert_eq!(Some(delivery.id.offset), receipt.offset);
    assert_eq!(consumer.ack(&[delivery.id]).await, Ok(7));
    assert_eq!(consumer.ack(&[delivery.id]).await, Ok(0), "a repeated acknowledgement is fine");
    assert!(is_quiet(&mut consumer).await);
}

pub(crate) async fn a_repeat_is_recognised(place: &impl Place) {
    let producer = place.producer("t");
    let mut consumer = place.consumer("t", "g", &ConsumerOptions::default()).await;
    let first = producer.publish(frame(3).stamped("life", 1)).await.unwrap();
    let repeat = producer.publish(frame(3).stamped("life", 1)).await.unwrap();
    let next = producer.publish(frame(4).stamped("life", 2)).await.unwrap();
    assert!(!first.duplicate && repeat.duplicate && !next.duplicate);
    assert!(first.offset.is_some() && repeat.offset.is_none());
    let mut counts = Vec::new();
    while counts.len() < 2 {
        counts.extend(receive(&mut consumer).await.iter().map(|delivery| delivery.frame.count));
    }
    assert_eq!(counts, [3, 4]);
}

pub(crate) async fn every_group_sees_everything_and_one_member_each(place: &impl Place) {
    let producer = place.producer("t");
    let mut members = Vec::new();
    for group in ["a", "a", "b.c"] {
        members.push((group, BTreeSet::new(), place.consumer("t", group, &credits(30)).await));
    }
    for number in 0..60 {
        producer.publish(frame(10).stamped("p", number)).await.unwrap();
    }
    let deadline = Instant::now() + SOON;
    while members.iter().map(|(_, seen, _)| seen.len()).sum::<usize>() < 120 {
        assert!(Instant::now() < deadline);
        for (_, seen, consumer) in &mut members {
            let Ok(received) = timeout(Duration::from_millis(50), consumer.receive()).await else { continue };
            let received = received.unwrap();
            let rows: u32 = received.iter().map(|delivery| delivery.frame.count).sum();
            assert!(rows <= 30, "more than the credits: {rows}");
            for delivery in received {
                assert!(seen.insert(delivery.frame.producer.clone().unwrap().sequence), "once");
                assert_eq!(consumer.ack(&[delivery.id]).await, Ok(10));
            }
        }
    }
    let [(_, one, _), (_, other, _), (_, alone, _)] = &members[..] else { panic!() };
    assert!(one.is_disjoint(other) && one.len() + other.len() == 60 && alone.len() == 60);
}

pub(crate) async fn credits_are_respected(place: &impl Place) {
    let producer = place.producer("t");
    let mut consumer = place.consumer("t", "g", &credits(20)).await;
    for _ in 0..5 {
        producer.publish(frame(8)).await.unwrap();
    }
    let mut ids = Vec::new();
    while ids.len() < 2 {
        ids.extend(receive(&mut consumer).await.iter().map(|delivery| delivery.id));
    }
    assert_eq!(ids.len(), 2, "8 and 8; the third does not fit into 20");
    assert!(is_quiet(&mut consumer).await);
    assert_eq!(consumer.ack(&[ids[0]]).await, Ok(8));
    let third = receive_one(&mut consumer).await.id;
    producer.publish(frame(100)).await.unwrap();
    assert!(is_quiet(&mut consumer).await);
    assert_eq!(consumer.ack(&[ids[1], third]).await, Ok(16));
    let mut counts = Vec::new();
    while counts.len() < 3 {
        for delivery in receive(&mut consumer).await {
            counts.push(delivery.frame.count);
            consumer.ack(&[delivery.id]).await.unwrap();
        }
    }
    assert_eq!(counts, [8, 8, 100], "a frame beyond all credits comes alone");
}

pub(crate) async fn what_is_not_acknowledged_comes_again(place: &impl Place) {
    let producer = place.producer("t");
    let (mut dies, mut lives) = {
        let options = ConsumerOptions { ack_timeout: Some(ACK_TIMEOUT), ..credits(100) };
        (place.consumer("t", "g", &options).await, place.consumer("t", "g", &options).await)
    };
    producer.publish(frame(5)).await.unwrap();
    let first = receive_one(&mut dies).await;
    drop(dies);
    let again = receive_one(&mut lives).await;
    // NATS counts every delivery; a broker does not blame a message for its consumer.
    assert!(again.id.offset == first.id.offset && again.attempt <= 2, "{again:?}");
    assert_eq!(lives.ack(&[again.id]).await, Ok(5));
    assert!(is_quiet(&mut lives).await);
}

pub(crate) async fn a_lease_that_is_over_frees_its_credits_and_can_be_acknowledged(place: &impl Place) {
    let producer = place.producer("t");
    let options = ConsumerOptions { ack_timeout: Some(ACK_TIMEOUT), ..credits(5) };
    let mut consumer = place.consumer("t", "g", &options).await;
    producer.publish(frame(5)).await.unwrap();
    let first = receive_one(&mut consumer).await;
    let again = receive_one(&mut consumer).await;
    assert_eq!((again.id.offset, again.attempt), (first.id.offset, 2));
    for kind in [NackKind::Reject, NackKind::Retry, NackKind::Release] {
        assert_eq!(consumer.nack(&[nack(first.id, kind)]).await, Ok(0), "too late");
    }
    let over = SettleError::LeaseOver { id: first.id, more: 0 };
    assert_eq!(consumer.extend(&[first.id], ACK_TIMEOUT).await, Err(over));
    assert!(is_quiet(&mut consumer).await, "the second delivery is not refused");
    assert_eq!(consumer.ack(&[first.id]).await, Ok(5), "nobody has settled it in between");
    assert_eq!(consumer.ack(&[again.id]).await, Ok(0));
    assert!(timeout(ACK_TIMEOUT + QUIET, consumer.receive()).await.is_err(), "it does not come again");
}

pub(crate) async fn an_extended_lease_is_not_given_to_others(place: &impl Place) {
    let producer = place.producer("t");
    let mut busy = place.consumer("t", "g", &credits(100)).await;
    let mut other = place.consumer("t", "g", &credits(100)).await;
    producer.publish(frame(5)).await.unwrap();
    let delivery = receive_one(&mut busy).await;
    let end = Instant::now() + ACK_TIMEOUT * 3;
    while Instant::now() < end {
        busy.extend(&[delivery.id], ACK_TIMEOUT).await.unwrap();
        assert!(timeout(ACK_TIMEOUT / 4, other.receive()).await.is_err(), "it is extended");
    }
    assert_eq!(busy.ack(&[delivery.id]).await, Ok(5));
}

pub(crate) async fn a_refused_message_is_tried_again_and_then_dead(place: &impl Place) {
    let producer = place.producer("t");
    let mut consumer = place.consumer("t", "g", &credits(100)).await;
    producer.publish(frame(5)).await.unwrap();
    for attempt in 1..=MAX_RETRIES + 1 {
        let delivery = receive_one(&mut consumer).await;
        assert_eq!(delivery.attempt, attempt);
        assert_eq!(consumer.nack(&[nack(delivery.id, NackKind::Retry)]).await, Ok(5));
    }
    assert!(is_quiet(&mut consumer).await);
}

pub(crate) async fn who_leaves_gives_back_at_once(place: &impl Place) {
    let producer = place.producer("t");
    let mut leaving = place.consumer("t", "g", &credits(100)).await;
    let mut other = place.consumer("t", "g", &credits(100)).await;
    producer.publish(frame(5)).await.unwrap();
    let first = receive_one(&mut leaving).await;
    let start = Instant::now();
    leaving.leave().await;
    let again = receive_one(&mut other).await;
    assert_eq!(again.id.offset, first.id.offset);
    assert!(start.elapsed() < ACK_TIMEOUT, "{:?}", start.elapsed());
    assert_eq!(other.nack(&[nack(again.id, NackKind::Release)]).await, Ok(5));
    let again = receive_one(&mut other).await;
    assert_eq!(other.ack(&[again.id]).await, Ok(5));
}

pub(crate) async fn a_new_group_begins_where_it_says(place: &impl Place) {
    let producer = place.producer("t");
    producer.publish(frame(1)).await.unwrap();
    let mut oldest = place.consumer("t", "oldest", &credits(100)).await;
    let newest = ConsumerOptions { start: Start::Newest, ..credits(100) };
    let mut newest = place.consumer("t", "newest", &newest).await;
    assert_eq!(receive_one(&mut oldest).await.frame.count, 1, "held although nobody read");
    producer.publish(frame(2)).await.unwrap();
    assert_eq!(receive_one(&mut newest).await.frame.count, 2);
}

pub(crate) async fn what_was_never_delivered_cannot_be_settled(place: &impl Place) {
    let producer = place.producer("t");
    let mut consumer = place.consumer("t", "g", &credits(100)).await;
    producer.publish(frame(5)).await.unwrap();
    let delivery = receive_one(&mut consumer).await;
    let stranger = DeliveryId { offset: delivery.id.offset + 5, token: 1 };
    let unknown = SettleError::Unknown { id: stranger, more: 0 };
    assert_eq!(consumer.ack(&[stranger, delivery.id]).await, Err(unknown));
    assert_eq!(consumer.ack(&[delivery.id]).await, Ok(0), "the other one was acknowledged");
    assert_eq!(consumer.nack(&[nack(stranger, NackKind::Retry)]).await, Err(unknown));
    assert_eq!(consumer.extend(&[stranger], ACK_TIMEOUT).await, Err(unknown));
    let over = SettleError::LeaseOver { id: delivery.id, more: 0 };
    assert_eq!(consumer.extend(&[delivery.id], ACK_TIMEOUT).await, Err(over));
}
