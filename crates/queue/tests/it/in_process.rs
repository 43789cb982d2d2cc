//! The queue within one process. Tokio's time is paused: it jumps to the next timer when all tasks wait.

use std::num::NonZeroU32;
use std::time::Duration;

use gpuvitals_core::Status;
use gpuvitals_queue::{
    Consumer, ConsumerOptions, ContentType, DeadSelection, Drain, DrainReport, Frame, FrameDurability,
    InProcessConsumer, Millis, Nack, NackKind, Producer, PublishError, Queue, QueueClock, QueueConfig,
    ReceiveError,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const TOPIC: &str = "gpu-telemetry";
const LONG: Duration = Duration::from_hours(1);

fn queue(change: impl FnOnce(&mut QueueConfig)) -> Queue {
    let mut config = QueueConfig::default();
    change(&mut config);
    Queue::in_process(config, QueueClock::starting_at(Millis(0)))
}

fn frame(count: u32) -> Frame {
    Frame::new(ContentType::Batch, count, vec![1, 2, 3])
}

async fn join(queue: &Queue, group: &str) -> InProcessConsumer {
    queue.subscribe(TOPIC, group, &ConsumerOptions::default()).await.unwrap()
}

/// Receives, acknowledges and counts until the queue closes.
async fn consume(mut consumer: InProcessConsumer) -> u64 {
    let mut rows = 0;
    while let Ok(deliveries) = consumer.receive().await {
        let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.id).collect();
        rows += consumer.ack(&ids).await.unwrap();
    }
    rows
}

#[tokio::test(start_paused = true)]
async fn a_receipt_says_how_safe_the_frame_is_and_whether_it_is_new() {
    let queue = queue(|_| {});
    let producer = queue.producer(TOPIC);
    let first = producer.publish(frame(2).stamped("p", 1)).await.unwrap();
    let repeat = producer.publish(frame(2).stamped("p", 1)).await.unwrap();
    assert_eq!((first.durability, first.offset, first.duplicate), (FrameDurability::Memory, Some(0), false));
    assert_eq!((repeat.offset, repeat.duplicate), (None, true));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_receiver_is_woken_by_a_publish() {
    let queue = queue(|_| {});
    let mut consumer = join(&queue, "g").await;
    let (received, published) =
        tokio::join!(consumer.receive(), async { queue.publish(TOPIC, frame(5)).await });
    published.unwrap();
    let [delivery] = &received.unwrap()[..] else { panic!("one delivery expected") };
    assert_eq!((delivery.frame.count, &delivery.frame.payload[..]), (5, &[1, 2, 3][..]));
}

#[tokio::test(start_paused = true)]
async fn a_waiting_receiver_is_woken_when_a_lease_runs_out() {
    let queue = queue(|config| config.backoff_base = Duration::ZERO);
    let (mut slow, mut other) = (join(&queue, "g").await, join(&queue, "g").await);
    queue.publish(TOPIC, frame(1)).await.unwrap();
    slow.receive().await.unwrap();
    let start = Instant::now();
    let again = other.receive().await.unwrap();
    assert_eq!(again[0].attempt, 2);
    let waited = start.elapsed();
    assert!((5_000..=5_002).contains(&waited.as_millis()), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_receiver_is_woken_after_the_backoff() {
    let queue = queue(|_| {});
    let mut consumer = join(&queue, "g").await;
    queue.publish(TOPIC, frame(1)).await.unwrap();
    let id = consumer.receive().await.unwrap()[0].id;
    consumer.nack(&[Nack { id, kind: NackKind::Retry, reason: "busy".into() }]).await.unwrap();
    let start = Instant::now();
    consumer.receive().await.unwrap();
    assert!(start.elapsed() <= Duration::from_millis(502), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_a_dropped_consumer_had_comes_again_after_the_backoff_and_counts_as_no_attempt() {
    let queue = queue(|_| {});
    let (mut dying, mut other) = (join(&queue, "g").await, join(&queue, "g").await);
    queue.publish(TOPIC, frame(1)).await.unwrap();
    dying.receive().await.unwrap();
    let start = Instant::now();
    let (again, ()) = tokio::join!(other.receive(), async move { drop(dying) });
    assert_eq!(again.unwrap()[0].attempt, 1);
    let waited = start.elapsed();
    assert!(waited > Duration::ZERO && waited <= Duration::from_millis(502), "{waited:?}");
    let leaving = other;
    leaving.leave().await;
    let start = Instant::now();
    assert_eq!(join(&queue, "g").await.receive().await.unwrap()[0].attempt, 1, "leaving does not count");
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_group_says_how_long_its_oldest_message_has_waited() {
    let queue = queue(|config| config.ack_timeout = LONG);
    let mut consumer = join(&queue, "g").await;
    let oldest = || queue.topic_stats(TOPIC).unwrap().groups["g"].oldest_age_s;
    assert_eq!(oldest(), None);
    queue.publish(TOPIC, frame(1)).await.unwrap();
    tokio::time::advance(Duration::from_secs(7)).await;
    queue.publish(TOPIC, frame(1)).await.unwrap();
    assert_eq!(oldest(), Some(7), "not delivered yet");
    let deliveries = consumer.receive().await.unwrap();
    tokio::time::advance(Duration::from_secs(3)).await;
    assert_eq!(oldest(), Some(10), "not acknowledged yet");
    // The first is done with, the second is not.
    consumer.ack(&[deliveries[0].id]).await.unwrap();
    assert_eq!(oldest(), Some(3));
    let rest = if deliveries.len() > 1 { deliveries[1].id } else { consumer.receive().await.unwrap()[0].id };
    consumer.ack(&[rest]).await.unwrap();
    assert_eq!(oldest(), None);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_without_credits_goes_on_when_it_has_acknowledged() {
    let queue = queue(|_| {});
    let options = ConsumerOptions { max_in_flight: NonZeroU32::MIN, ..ConsumerOptions::default() };
    let mut consumer = queue.subscribe(TOPIC, "g", &options).await.unwrap();
    for _ in 0..2 {
        queue.publish(TOPIC, frame(1)).await.unwrap();
    }
    let id = consumer.receive().await.unwrap()[0].id;
    let early = timeout(Duration::from_secs(1), consumer.receive()).await;
    assert!(early.is_err(), "no credits");
    consumer.ack(&[id]).await.unwrap();
    assert_eq!(consumer.receive().await.unwrap()[0].id.offset, 1);
}

#[tokio::test(start_paused = true)]
async fn a_publisher_at_the_bound_waits_for_room() {
    let queue = queue(|config| config.max_messages = 10);
    let mut consumer = join(&queue, "g").await;
    let producer = queue.producer(TOPIC);
    producer.publish(frame(10)).await.unwrap();
    assert!(matches!(queue.publish(TOPIC, frame(1)).await, Err(PublishError::Full { .. })));
    assert_eq!(queue.health().status, Status::Degraded);
    let mut waiting = std::pin::pin!(producer.publish(frame(10)));
    assert!(timeout(Duration::from_secs(3), waiting.as_mut()).await.is_err());
    let acknowledges = async {
        let id = consumer.receive().await.unwrap()[0].id;
        consumer.ack(&[id]).await.unwrap();
    };
    let (published, ()) = tokio::join!(waiting, acknowledges);
    assert_eq!(published.unwrap().offset, Some(1));
    assert_eq!(queue.topic_stats(TOPIC).unwrap().refused, 1, "waiting is no refusal");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_publisher_can_give_up_and_learns_of_the_end() {
    let queue = queue(|config| config.max_messages = 1);
    queue.publish(TOPIC, frame(1)).await.unwrap();
    let given_up = timeout(Duration::from_secs(1), queue.publish_wait(TOPIC, frame(1))).await;
    assert!(given_up.is_err(), "there is no room");
    let (answer, report) = tokio::join!(queue.publish_wait(TOPIC, frame(1)), queue.shutdown());
    assert_eq!(answer, Err(PublishError::Closed));
    assert_eq!(report.left, [(TOPIC.to_owned(), 1)], "a topic without a group keeps what it has");
}

#[tokio::test(start_paused = true)]
async fn backpressure_lets_everything_through_once() {
    let queue = queue(|config| config.max_messages = 64);
    let mut consumers = JoinSet::new();
    for group in ["a", "a", "a", "b"] {
        let consumer = join(&queue, group).await;
        consumers.spawn(async move { (group, consume(consumer).await) });
    }
    let mut producers = JoinSet::new();
    for number in 0..4 {
        let producer = queue.producer(TOPIC);
        producers.spawn(async move {
            for sequence in 0..500 {
                producer.publish(frame(1 + number).stamped(format!("p{number}"), sequence)).await.unwrap();
            }
        });
    }
    timeout(Duration::from_mins(1), producers.join_all()).await.expect("publishers go on");
    let report = queue.shutdown().await;
    assert_eq!(report, DrainReport::default());
    let done = timeout(Duration::from_mins(1), consumers.join_all()).await.expect("consumers come to an end");
    let of = |name| done.iter().filter(|(group, _)| *group == name).map(|(_, rows)| rows).sum::<u64>();
    assert_eq!((of("a"), of("b")), (5_000, 5_000));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_well_shows_in_the_health_with_its_count_until_it_is_over() {
    let queue = queue(|config| config.max_messages = 5);
    let mut consumer = join(&queue, "g").await;
    queue.publish(TOPIC, frame(5)).await.unwrap();
    for _ in 0..3 {
        assert!(queue.publish(TOPIC, frame(2)).await.is_err());
    }
    let health = queue.health();
    assert_eq!(health.status, Status::Degraded);
    assert!(health.reasons[0].contains("is full (5 messages)"), "{health:?}");
    assert!(health.reasons[0].contains("6 messages refused"), "{health:?}");
    assert!(
        health.reasons[0].ends_with("broker.messages_max and broker.bytes_max raise the bound"),
        "{health:?}"
    );
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(queue.health().status, Status::Healthy, "nobody was refused lately");

    let reject = async |consumer: &mut InProcessConsumer| {
        let id = consumer.receive().await.unwrap()[0].id;
        let nack = Nack { id, kind: NackKind::Reject, reason: "bad".into() };
        consumer.nack(&[nack]).await.unwrap();
    };
    for ends in ["replay", "purge"] {
        reject(&mut consumer).await;
        tokio::time::advance(LONG).await;
        let health = queue.health();
        assert_eq!(health.status, Status::Degraded, "before the {ends}");
        assert!(health.reasons[0].contains("has dead letters: 5 messages"), "{health:?}");
        match ends {
            "replay" => {
                let ids = queue.select_dead(TOPIC, &DeadSelection::Oldest(9)).unwrap();
                assert_eq!(queue.replay_dead(TOPIC, &[ids[0].0]).await.unwrap().letters, 1);
            }
            _ => assert_eq!(queue.purge_dead(TOPIC, &DeadSelection::Oldest(9)), Ok(1)),
        }
        assert_eq!(queue.health().status, Status::Healthy, "after the {ends}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_delivers_what_is_left() {
    let queue = queue(|_| {});
    let consumer = join(&queue, "g").await;
    for _ in 0..50 {
        queue.publish(TOPIC, frame(100)).await.unwrap();
    }
    let (report, rows) = tokio::join!(queue.shutdown(), consume(consumer));
    assert_eq!((report, rows), (DrainReport::default(), 5_000));
    assert_eq!(queue.publish(TOPIC, frame(1)).await, Err(PublishError::Closed));
    assert_eq!(queue.health().status, Status::Unhealthy);
    assert_eq!(queue.shutdown().await, DrainReport::default(), "a second shutdown finds nothing to do");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_acknowledgements_and_not_for_ever() {
    let queue = queue(|config| {
        config.drain = Drain::Return;
        config.ack_timeout = LONG;
    });
    let mut consumer = join(&queue, "g").await;
    queue.publish(TOPIC, frame(3)).await.unwrap();
    consumer.receive().await.unwrap();
    queue.publish(TOPIC, frame(4)).await.unwrap();
    let start = Instant::now();
    let (report, received) = tokio::join!(queue.shutdown(), consumer.receive());
    assert_eq!(received.unwrap_err(), ReceiveError::Closed);
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    assert_eq!(report, DrainReport { unacknowledged: 3, left: vec![(TOPIC.to_owned(), 7)] });
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_a_group_nobody_reads() {
    let queue = queue(|_| {});
    drop(join(&queue, "gone").await);
    queue.publish(TOPIC, frame(3)).await.unwrap();
    let start = Instant::now();
    let report = queue.shutdown().await;
    assert_eq!((report.left, start.elapsed()), (vec![(TOPIC.to_owned(), 3)], Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn removing_a_group_ends_its_receivers() {
    let queue = queue(|_| {});
    let mut consumer = join(&queue, "g").await;
    let (received, removed) = tokio::join!(consumer.receive(), async { queue.remove_group(TOPIC, "g") });
    assert_eq!((received.unwrap_err(), removed), (ReceiveError::NotSubscribed, Ok(())));
}

#[tokio::test(start_paused = true)]
async fn an_extended_lease_is_not_given_to_others() {
    let queue = queue(|config| config.backoff_base = Duration::ZERO);
    let (mut busy, mut other) = (join(&queue, "g").await, join(&queue, "g").await);
    queue.publish(TOPIC, frame(1)).await.unwrap();
    let id = busy.receive().await.unwrap()[0].id;
    for _ in 0..5 {
        let waits = timeout(Duration::from_secs(4), other.receive()).await;
        assert!(waits.is_err());
        busy.extend(&[id], Duration::from_secs(5)).await.unwrap();
    }
    assert_eq!(busy.ack(&[id]).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn stats_have_the_shape_of_the_admin_api() {
    let queue = queue(|_| {});
    let mut consumer = join(&queue, "g").await;
    for _ in 0..20 {
        queue.publish(TOPIC, frame(50)).await.unwrap();
        tokio::time::advance(Duration::from_millis(500)).await;
    }
    let ids: Vec<_> = consumer.receive().await.unwrap().iter().map(|delivery| delivery.id).collect();
    consumer.ack(&ids[..4]).await.unwrap();
    let stats = serde_json::to_value(queue.stats()).unwrap();
    assert_eq!(stats["total_processed"], 200);
    assert_eq!(stats["uptime_seconds"], 10);
    let topic = &stats["topics"][TOPIC];
    assert_eq!((&topic["messages"], &topic["subscribers"]), (&800.into(), &1.into()));
    let rate = topic["throughput_msg_per_sec"].as_f64().unwrap();
    assert!((90.0..=110.0).contains(&rate), "{rate}");
    let group = &topic["groups"]["g"];
    assert_eq!((&group["lag"], &group["in_flight"]), (&800.into(), &800.into()));
    assert_eq!(serde_json::to_value(queue.health()).unwrap()["status"], "healthy");
    assert_eq!(queue.topics(), [TOPIC.into()]);
}

/// On real threads and in real time: a wake-up that is lost hangs, and the limit says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost_between_threads() {
    let queue = queue(|config| config.max_messages = 8);
    let mut consumers = JoinSet::new();
    for group in ["a", "a", "a", "b"] {
        let options = ConsumerOptions { max_in_flight: NonZeroU32::MIN, ..ConsumerOptions::default() };
        let consumer = queue.subscribe(TOPIC, group, &options).await.unwrap();
        consumers.spawn(async move { (group, consume(consumer).await) });
    }
    let mut producers = JoinSet::new();
    for _ in 0..4 {
        let producer = queue.producer(TOPIC);
        producers.spawn(async move {
            for _ in 0..1_000 {
                producer.publish(frame(1)).await.unwrap();
            }
        });
    }
    timeout(Duration::from_mins(1), producers.join_all()).await.expect("publishers go on");
    assert_eq!(queue.shutdown().await, DrainReport::default());
    let done = timeout(Duration::from_mins(1), consumers.join_all()).await.expect("consumers come to an end");
    let of = |name| done.iter().filter(|(group, _)| *group == name).map(|(_, rows)| rows).sum::<u64>();
    assert_eq!((of("a"), of("b")), (4_000, 4_000));
}
