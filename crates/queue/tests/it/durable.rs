//! A queue in a directory: what was answered is there after a restart, and what happens when the disk fails.

use std::io::ErrorKind;
use std::time::Duration;

use futures_util::FutureExt as _;
use gpuvitals_core::Status;
use gpuvitals_log::FsDisk;
use gpuvitals_log::fault::{FaultDisk, Op};
use gpuvitals_queue::{
    Consumer, ConsumerOptions, ContentType, Delivery, Encoding, Frame, FrameDurability, InProcessConsumer,
    Nack, NackKind, OpenError, Opened, PublishError, Queue, QueueClock, QueueConfig, ReceiveError,
    SettleError, Start, SubscribeError,
};
use gpuvitals_rig::waiting::{retried, watched};
use tokio::time::{Instant, timeout};

const TOPIC: &str = "gpu-telemetry";
const LIMIT: Duration = Duration::from_secs(30);

fn config(change: impl FnOnce(&mut QueueConfig)) -> QueueConfig {
    let mut config = QueueConfig {
        segment_len: 64 << 10,
        spare_segments: 0,
        sync_every: Duration::from_millis(1),
        backoff_base: Duration::ZERO,
        drain_timeout: Duration::ZERO,
        ..QueueConfig::default()
    };
    change(&mut config);
    config
}

async fn open(disk: &FaultDisk, change: impl FnOnce(&mut QueueConfig)) -> (Queue, Opened) {
    Queue::open_on(disk.clone(), config(change), QueueClock::system()).await.unwrap()
}

fn frame(number: u32) -> Frame {
    Frame::new(ContentType::Batch, 1, number.to_le_bytes().repeat(50)).stamped("p", u64::from(number))
}

fn number(delivery: &Delivery) -> u32 {
    let number = u32::from_le_bytes(*delivery.frame.payload.first_chunk().unwrap());
    assert_eq!(*delivery.frame, frame(number), "the frame as it was published");
    number
}

async fn join(queue: &Queue, group: &str) -> InProcessConsumer {
    queue.subscribe(TOPIC, group, &ConsumerOptions::default()).await.unwrap()
}

async fn receive(consumer: &mut InProcessConsumer) -> Vec<Delivery> {
    timeout(LIMIT, consumer.receive()).await.expect("something to receive").unwrap()
}

/// Receives and acknowledges `count` frames.
async fn settle(consumer: &mut InProcessConsumer, count: usize) -> Vec<u32> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        for delivery in receive(consumer).await {
            consumer.ack(&[delivery.id]).await.unwrap();
            numbers.push(number(&delivery));
        }
    }
    numbers
}

fn segments(disk: &FaultDisk) -> Vec<String> {
    use gpuvitals_log::Disk;
    disk.list().unwrap().into_iter().filter(|name| name.contains(".wal")).collect()
}

#[tokio::test]
async fn what_was_published_and_settled_survives_a_restart_in_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mq");
    let open = || Queue::open(path.clone(), config(|_| {}), QueueClock::system());
    let (queue, opened) = open().await.unwrap();
    assert_eq!(opened, Opened::default());
    let refused = open().await.unwrap_err();
    assert!(matches!(&refused, OpenError::Locked { path: locked } if *locked == path), "{refused}");
    let mut consumer = join(&queue, "g").await;
    for number in 0..3 {
        let receipt = queue.publish(TOPIC, frame(number)).await.unwrap();
        let told = (receipt.durability, receipt.offset, receipt.duplicate);
        assert_eq!(told, (FrameDurability::Synced, Some(number.into()), false));
    }
    let deliveries = receive(&mut consumer).await;
    assert_eq!(deliveries.iter().map(number).collect::<Vec<_>>(), [0, 1, 2]);
    consumer.ack(&[deliveries[1].id]).await.unwrap();
    let report = queue.shutdown().await;
    assert_eq!((report.unacknowledged, report.left), (2, vec![(TOPIC.to_owned(), 2)]));
    drop((consumer, queue));

    let (queue, opened) = open().await.unwrap();
    assert_eq!((opened.frames, opened.messages, opened.torn, opened.damage.len()), (2, 2, None, 0));
    let repeat = queue.publish(TOPIC, frame(1)).await.unwrap();
    assert!(repeat.duplicate, "a repeat is recognised over a restart");
    let again = queue.publish(TOPIC, frame(3)).await.unwrap();
    assert!(again.offset.unwrap() > 2, "offsets do not come again");
    let mut consumer = join(&queue, "g").await;
    let mut numbers = settle(&mut consumer, 3).await;
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 2, 3]);
    queue.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_delivers_nothing_more_and_waits_for_acknowledgements() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, |config| config.drain_timeout = LIMIT).await;
    let mut consumer = join(&queue, "g").await;
    queue.publish(TOPIC, frame(0)).await.unwrap();
    let held = receive(&mut consumer).await;
    queue.publish(TOPIC, frame(1)).await.unwrap();
    let acknowledges = async {
        let received = consumer.receive().await;
        assert_eq!(received.unwrap_err(), ReceiveError::Closed);
        consumer.ack(&[held[0].id]).await.unwrap();
    };
    let (report, ()) = tokio::join!(queue.shutdown(), acknowledges);
    assert_eq!((report.unacknowledged, report.left), (0, vec![(TOPIC.to_owned(), 1)]));
    drop((consumer, queue));

    let (queue, opened) = open(&disk, |_| {}).await;
    assert_eq!(opened.messages, 1);
    assert_eq!(settle(&mut join(&queue, "g").await, 1).await, [1]);
    queue.shutdown().await;
}

#[tokio::test]
async fn an_id_from_before_a_restart_settles_nothing_after_it() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, |_| {}).await;
    let mut consumer = join(&queue, "g").await;
    let taken = Frame::new(ContentType::Batch, 3, "three rows");
    for _ in 0..2 {
        queue.publish(TOPIC, taken.clone()).await.unwrap();
    }
    let [leased, refused] = &receive(&mut consumer).await[..] else { panic!("two frames") };
    let nack = Nack { id: refused.id, kind: NackKind::Retry, reason: "bad".into() };
    consumer.nack(&[nack]).await.unwrap();
    let again = receive(&mut consumer).await.remove(0);
    let old = [leased.id, refused.id, again.id];
    drop(consumer);
    queue.shutdown().await;

    let (queue, _) = open(&disk.crashed(0), |_| {}).await;
    let mut consumer = join(&queue, "g").await;
    let mut new = Vec::new();
    while new.iter().map(|delivery: &Delivery| delivery.frame.count).sum::<u32>() < 6 {
        new.extend(receive(&mut consumer).await);
    }
    for id in old {
        let refused = consumer.ack(&[id]).await.unwrap_err();
        assert!(matches!(refused, SettleError::Unknown { .. }), "{refused}");
    }
    assert_eq!(queue.stats().topics[TOPIC].groups["g"].lag, 6);
    for delivery in &new {
        assert_eq!(consumer.ack(&[delivery.id]).await.unwrap(), 3);
        assert_eq!(consumer.ack(&[delivery.id]).await.unwrap(), 0, "again");
    }
    assert_eq!(consumer.ack(&old).await.unwrap(), 0, "all is settled");
}

#[tokio::test]
async fn a_queue_that_was_dropped_has_all_that_was_answered() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, |_| {}).await;
    let newest = ConsumerOptions { start: Start::Newest, ..ConsumerOptions::default() };
    queue.publish(TOPIC, frame(0)).await.unwrap();
    drop(join(&queue, "early").await);
    drop(queue.subscribe(TOPIC, "late", &newest).await.unwrap());
    let publishing: Vec<_> = (1..5).map(|number| queue.publish(TOPIC, frame(number))).collect();
    for publishing in publishing {
        publishing.await.unwrap();
    }
    let disk = disk.crashed(0);
    let (queue, opened) = open(&disk, |_| {}).await;
    assert_eq!((opened.frames, opened.damage), (5, Vec::new()));
    assert_eq!(
        settle(&mut join(&queue, "late").await, 4).await,
        [1, 2, 3, 4],
        "groups keep where they began"
    );
    assert_eq!(settle(&mut join(&queue, "early").await, 5).await, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn a_queue_is_as_durable_as_it_is_set() {
    for (durability, frames) in [(FrameDurability::Memory, 0), (FrameDurability::Written, 1)] {
        let disk = FaultDisk::new();
        let set = |config: &mut QueueConfig| {
            (config.sync_every, config.durability) = (Duration::from_hours(1), durability);
        };
        let (queue, _) = open(&disk, set).await;
        drop(join(&queue, "g").await);
        queue.shutdown().await;
        drop(queue);
        // A queue that knows a group makes its checkpoint, which syncs, as it is opened and not behind its first frame.
        let (queue, _) = open(&disk, set).await;
        assert_eq!(queue.publish(TOPIC, frame(0)).await.unwrap().durability, durability);
        // Seeds that are multiples of four forget all that was not synced.
        let (_, opened) = open(&disk.crashed(0), set).await;
        assert_eq!(opened.frames, 0);
        queue.shutdown().await;
        drop(queue);
        let (_, opened) = open(&disk, set).await;
        assert_eq!(opened.frames, frames, "an orderly end syncs what was written");
    }
}

#[tokio::test]
async fn what_was_written_is_synced_soon_and_outlives_a_power_cut_then() {
    let disk = FaultDisk::new();
    let set = |config: &mut QueueConfig| config.durability = FrameDurability::Written;
    let (queue, _) = open(&disk, set).await;
    let mut consumer = join(&queue, "g").await;
    queue.publish(TOPIC, frame(0)).await.unwrap();
    assert_eq!(settle(&mut consumer, 1).await, [0]);
    queue.publish(TOPIC, frame(1)).await.unwrap();
    let is_synced = || {
        let after = disk.crashed(0);
        disk.names().iter().all(|name| disk.contents(name) == after.contents(name))
    };
    watched("all of it is synced", is_synced).await;
    let (queue, opened) = open(&disk.crashed(0), set).await;
    assert_eq!((opened.frames, opened.damage), (1, Vec::new()));
    assert_eq!(settle(&mut join(&queue, "g").await, 1).await, [1]);
}

#[tokio::test]
async fn a_topic_that_is_set_to_memory_keeps_what_it_had() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, |_| {}).await;
    queue.publish(TOPIC, frame(0)).await.unwrap();
    queue.shutdown().await;
    for _ in 0..2 {
        let (queue, opened) = open(&disk, |config| config.durability = FrameDurability::Memory).await;
        assert_eq!((opened.frames, opened.damage), (1, Vec::new()));
        assert_eq!(queue.publish(TOPIC, frame(1)).await.unwrap().durability, FrameDurability::Memory);
        assert_eq!(queue.stats().topics[TOPIC].frames, 2);
        drop(join(&queue, "g").await);
        queue.shutdown().await;
    }
}

#[tokio::test]
async fn dead_letters_survive_with_their_reason_and_their_bytes() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, |_| {}).await;
    let mut consumer = join(&queue, "g").await;
    let sent = Frame { producer: None, ..frame(7).encoded(Encoding::Zstd) };
    queue.publish(TOPIC, sent.clone()).await.unwrap();
    let id = receive(&mut consumer).await[0].id;
    let nack = Nack { id, kind: NackKind::Reject, reason: "no such GPU".into() };
    consumer.nack(&[nack]).await.unwrap();
    watched("its dead letter is stored", || queue.stats().topics[TOPIC].messages == 0).await;
    let before = queue.dead_letters(TOPIC, 0, 10).await.unwrap();
    assert_eq!(*before[0].frame, sent);
    queue.shutdown().await;
    drop((consumer, queue));

    let (queue, opened) = open(&disk, |_| {}).await;
    assert_eq!((opened.frames, opened.dead_letters), (0, 1));
    let after = queue.dead_letters(TOPIC, 0, 10).await.unwrap();
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
    assert_eq!(queue.replay_dead(TOPIC, &[after[0].id]).await.unwrap().letters, 1);
    queue.shutdown().await;
    drop(queue);

    let (queue, opened) = open(&disk, |_| {}).await;
    assert_eq!((opened.frames, opened.dead_letters), (1, 0));
    let mut consumer = join(&queue, "g").await;
    let again = receive(&mut consumer).await;
    assert_eq!((&*again[0].frame, again[0].attempt), (&sent, 1));
    consumer.ack(&[again[0].id]).await.unwrap();
    assert_eq!(queue.stats().topics[TOPIC].messages, 0);
}

#[tokio::test]
async fn a_full_disk_refuses_publishers_serves_consumers_and_goes_on_by_itself() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, |config| config.segment_len = 8 << 10).await;
    let mut consumer = join(&queue, "g").await;
    disk.set_capacity(Some(64 << 10));
    let mut taken = 0;
    let refused = loop {
        match queue.publish(TOPIC, frame(taken)).await {
            Ok(_) => taken += 1,
            Err(refused) => break refused,
        }
        assert!(taken < 100_000, "a full disk refuses nothing");
    };
    assert!(taken > 100, "{taken}");
    assert!(
        matches!(&refused, PublishError::Storage { passes: true, .. }) && refused.is_retryable(),
        "{refused}"
    );
    let health = queue.health();
    assert_eq!(health.status, Status::Degraded);
    assert!(health.reasons.iter().any(|reason| reason.contains("cannot store")), "{health:?}");
    let count = usize::try_from(taken).unwrap();
    assert_eq!(settle(&mut consumer, count).await, (0..taken).collect::<Vec<_>>());
    let again = async || match queue.publish(TOPIC, frame(taken)).await {
        Err(refused) => {
            assert!(refused.is_retryable(), "{refused}");
            None
        }
        Ok(receipt) => Some(receipt),
    };
    retried("room after what was settled is gone", again).await;
    assert_eq!(settle(&mut consumer, 1).await, [taken]);
}

#[tokio::test]
async fn a_failed_sync_ends_taking_but_not_giving() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, |_| {}).await;
    let mut consumer = join(&queue, "g").await;
    queue.publish(TOPIC, frame(0)).await.unwrap();
    assert!(queue.failed().now_or_never().is_none());
    disk.fail_all(Op::SyncData, Some(ErrorKind::Other));
    for number in 1..3 {
        let refused = queue.publish(TOPIC, frame(number)).await.unwrap_err();
        assert!(matches!(&refused, PublishError::Storage { passes: false, .. }), "{refused}");
        assert!(refused.is_retryable(), "the queue is restarted");
    }
    disk.fail_all(Op::SyncData, None);
    let reason = timeout(LIMIT, queue.failed()).await.expect("it is told");
    assert!(reason.contains("poisoned"), "{reason}");
    assert_eq!(queue.health().status, Status::Unhealthy);
    assert!(queue.health().reasons[0].contains("poisoned"), "{:?}", queue.health());
    assert_eq!(settle(&mut consumer, 1).await, [0], "what is held is served");
    queue.shutdown().await;
    drop((consumer, queue));
    let (queue, opened) = open(&disk.crashed(0), |_| {}).await;
    assert_eq!(opened.frames, 1, "its acknowledgement could not be kept");
    assert!(!queue.publish(TOPIC, frame(1)).await.unwrap().duplicate);
}

#[tokio::test]
async fn a_receive_ends_after_some_megabytes_whatever_the_credits() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, |config| config.segment_len = 8 << 20).await;
    let mut consumer = join(&queue, "g").await;
    for _ in 0..12 {
        queue.publish(TOPIC, Frame::new(ContentType::Batch, 1, vec![7; 1 << 20])).await.unwrap();
    }
    let mut received = Vec::new();
    while received.iter().sum::<usize>() < 12 {
        received.push(timeout(LIMIT, consumer.receive()).await.unwrap().unwrap().len());
    }
    assert_eq!(received, [4, 4, 4]);
}

#[tokio::test]
async fn a_deep_queue_is_delivered_from_disk() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, |config| config.memory_max = 10_000).await;
    for number in 0..500 {
        queue.publish(TOPIC, frame(number)).await.unwrap();
    }
    assert_eq!(settle(&mut join(&queue, "g").await, 500).await, (0..500).collect::<Vec<_>>());
    watched("segments go", || segments(&disk).len() <= 3).await;
}

#[tokio::test]
async fn an_old_letter_does_not_keep_the_log() {
    let disk = FaultDisk::new();
    let tiny = |config: &mut QueueConfig| config.segment_len = 8 << 10;
    let (queue, _) = open(&disk, tiny).await;
    let mut consumer = join(&queue, "g").await;
    queue.publish(TOPIC, frame(0)).await.unwrap();
    let id = receive(&mut consumer).await[0].id;
    let nack = Nack { id, kind: NackKind::Reject, reason: "bad".into() };
    consumer.nack(&[nack]).await.unwrap();
    watched("its dead letter is stored", || queue.stats().topics[TOPIC].messages == 0).await;
    let first = segments(&disk)[0].clone();
    for number in 1..1_000 {
        queue.publish(TOPIC, frame(number)).await.unwrap();
        assert_eq!(settle(&mut consumer, 1).await, [number]);
    }
    watched("the first segment goes", || !segments(&disk).contains(&first)).await;
    assert!(segments(&disk).len() < 12, "{:?}", segments(&disk));
    let letters = queue.dead_letters(TOPIC, 0, 10).await.unwrap();
    assert_eq!(letters[0].frame.payload, frame(0).payload);
    let (queue, opened) = open(&disk.crashed(0), tiny).await;
    assert_eq!((opened.dead_letters, opened.damage), (1, Vec::new()));
    assert_eq!(queue.dead_letters(TOPIC, 0, 10).await.unwrap()[0].frame.payload, frame(0).payload);
}

#[tokio::test]
async fn the_log_shrinks_to_its_bound_though_nothing_more_is_published() {
    let disk = FaultDisk::new();
    // Little is moved while frames are published.
    let slow = |config: &mut QueueConfig| {
        (config.segment_len, config.sync_every) = (8 << 10, Duration::from_millis(100));
    };
    let (queue, _) = open(&disk, slow).await;
    let mut consumer = join(&queue, "g").await;
    for number in 0..2_000 {
        queue.publish(TOPIC, frame(number)).await.unwrap();
        let id = receive(&mut consumer).await[0].id;
        if number % 40 > 0 {
            consumer.ack(&[id]).await.unwrap();
        }
    }
    assert_eq!(queue.stats().topics[TOPIC].messages, 50, "one in nearly every segment");
    disk.fail_all(Op::Read, Some(ErrorKind::Other));
    let (tries, since) = (disk.calls(Op::Read), Instant::now());
    watched("what cannot be read is tried again", || disk.calls(Op::Read) > tries + 12).await;
    assert!(since.elapsed() > Duration::from_millis(200), "{:?}", since.elapsed());
    disk.fail_all(Op::Read, None);
    watched("what is held lies in a few segments", || segments(&disk).len() < 12).await;
}

#[tokio::test]
async fn damage_is_told_and_the_rest_is_served() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, |_| {}).await;
    for number in 0..10 {
        queue.publish(TOPIC, frame(number)).await.unwrap();
    }
    queue.shutdown().await;
    drop(queue);
    let name = segments(&disk)[0].clone();
    let needle = 4_u32.to_le_bytes().repeat(50);
    let bytes = disk.contents(&name).unwrap();
    let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    disk.flip_on_read(&name, at + 9, 1);
    let (queue, opened) = open(&disk, |_| {}).await;
    assert_eq!((opened.frames, opened.damage.is_empty()), (9, false));
    let health = queue.health();
    assert_eq!((health.status, &health.reasons), (Status::Degraded, &opened.damage));
    let left = settle(&mut join(&queue, "g").await, 9).await;
    assert_eq!(left, [0, 1, 2, 3, 5, 6, 7, 8, 9]);
}

#[tokio::test]
async fn what_cannot_be_read_back_becomes_a_dead_letter() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, |config| (config.memory_max, config.max_retries) = (0, 1)).await;
    queue.publish(TOPIC, frame(0)).await.unwrap();
    queue.publish(TOPIC, frame(1)).await.unwrap();
    let name = segments(&disk).pop().unwrap();
    let needle = 1_u32.to_le_bytes().repeat(50);
    let bytes = disk.contents(&name).unwrap();
    let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    disk.flip_on_read(&name, at + 150, 1);
    let mut consumer = join(&queue, "g").await;
    assert_eq!(settle(&mut consumer, 1).await, [0]);
    let reading = async { drop(consumer.receive().await) };
    let dead = watched("a dead letter", || queue.stats().topics[TOPIC].dead_letters == 1);
    tokio::select! { () = reading => {}, () = dead => {} }
    let letters = queue.dead_letters(TOPIC, 0, 1).await.unwrap();
    assert!(letters[0].facts.reason.contains("cannot be read back"), "{}", letters[0].facts.reason);
    assert_eq!((letters[0].frame.count, letters[0].frame.payload.len()), (1, 0), "its messages are gone");
    let replayed = queue.replay_dead(TOPIC, &[letters[0].id]).await.unwrap();
    assert_eq!((replayed.letters, replayed.unreadable), (0, 1));
}

#[tokio::test]
async fn what_cannot_be_read_for_now_is_held_against_no_message() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, |config| (config.memory_max, config.max_retries) = (0, 0)).await;
    for number in 0..3 {
        queue.publish(TOPIC, frame(number)).await.unwrap();
    }
    let mut consumer = join(&queue, "g").await;
    disk.fail_all(Op::Read, Some(ErrorKind::Other));
    let reading = async { drop(consumer.receive().await) };
    let told = |reason: &String| reason.starts_with("queue cannot read back");
    let shown = watched("health says so", || queue.health().reasons.iter().any(told));
    tokio::select! { () = reading => panic!("there is nothing to read"), () = shown => {} }
    assert_eq!(queue.health().status, Status::Degraded);
    disk.fail_all(Op::Read, None);
    let mut numbers = settle(&mut consumer, 3).await;
    numbers.sort_unstable();
    assert_eq!((numbers, queue.stats().topics[TOPIC].dead_letters), (vec![0, 1, 2], 0));
}

#[tokio::test]
async fn a_receive_that_is_given_up_again_and_again_still_gets_what_lies_on_disk() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, |config| config.memory_max = 0).await;
    queue.publish(TOPIC, frame(0)).await.unwrap();
    let mut consumer = join(&queue, "g").await;
    let before = disk.calls(Op::Read);
    let received = async {
        loop {
            // One look, and it is given up: as a server does that is asked something else.
            let looked = tokio::select! {
                biased;
                received = consumer.receive() => Some(received),
                () = std::future::ready(()) => None,
            };
            match looked {
                Some(received) => return received.unwrap(),
                None => tokio::task::yield_now().await,
            }
        }
    };
    let received = timeout(LIMIT, received).await.expect("it is read in the end");
    assert_eq!((number(&received[0]), received[0].attempt), (0, 1));
    assert!(disk.calls(Op::Read) - before <= 2, "the header and the record are read once");
}

#[tokio::test]
async fn repeats_of_a_frame_under_way_share_its_outcome() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, |_| {}).await;
    disk.hold_syncs();
    let first = queue.publish(TOPIC, frame(5));
    let second = queue.publish(TOPIC, frame(5));
    disk.release_syncs();
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!((first.duplicate, second.duplicate, second.offset), (false, true, None));
    assert_eq!((queue.stats().topics[TOPIC].messages, queue.stats().topics[TOPIC].duplicates), (1, 1));
    disk.fail_all(Op::Write, Some(ErrorKind::StorageFull));
    let both = [queue.publish(TOPIC, frame(6)), queue.publish(TOPIC, frame(6))];
    for publishing in both {
        assert!(matches!(publishing.await, Err(PublishError::Storage { passes: true, .. })));
    }
    let joined = queue.subscribe(TOPIC, "g", &ConsumerOptions::default()).await;
    let refused = joined.map(drop).unwrap_err();
    assert!(matches!(refused, SubscribeError::Storage { .. }), "{refused}");
    assert!(queue.stats().topics[TOPIC].groups.is_empty(), "a group that is not on disk is none");
    disk.fail_all(Op::Write, None);
    assert!(!queue.publish(TOPIC, frame(6)).await.unwrap().duplicate);
}

#[tokio::test]
async fn a_directory_that_cannot_be_used_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, "x").unwrap();
    let refused = Queue::open(path.clone(), config(|_| {}), QueueClock::system()).await.unwrap_err();
    assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
    assert!(FsDisk::open(&path).is_err());
}
