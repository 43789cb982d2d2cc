//! What a queue's log keeps, and what it lets go of, where parts of it fail.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use gpuvitals_core::Status;
use gpuvitals_log::fault::{Fault, FaultDisk, Op};
use gpuvitals_queue::{
    Consumer, ConsumerOptions, ContentType, DeadSelection, Delivery, Frame, InProcessConsumer, Nack,
    NackKind, Opened, Queue, QueueClock, QueueConfig,
};
use gpuvitals_rig::waiting::watched;
use tokio::time::timeout;

use crate::records::{CHECKPOINT, records, turn_a_bit};

const TOPIC: &str = "gpu-telemetry";
const LIMIT: Duration = Duration::from_secs(30);

async fn open(disk: &FaultDisk, segment_len: u32, unwritten_max: u32) -> (Queue, Opened) {
    let config = QueueConfig {
        segment_len,
        unwritten_max,
        spare_segments: 0,
        sync_every: Duration::from_millis(1),
        ..QueueConfig::default()
    };
    Queue::open_on(disk.clone(), config, QueueClock::system()).await.unwrap()
}

fn frame(number: u32) -> Frame {
    Frame::new(ContentType::Batch, 1, number.to_le_bytes().repeat(50))
}

async fn join(queue: &Queue, group: &str) -> InProcessConsumer {
    queue.subscribe(TOPIC, group, &ConsumerOptions::default()).await.unwrap()
}

async fn receive(consumer: &mut InProcessConsumer) -> Vec<Delivery> {
    timeout(LIMIT, consumer.receive()).await.expect("something to receive").unwrap()
}

async fn settle(consumer: &mut InProcessConsumer, count: usize) {
    let mut settled = 0;
    while settled < count {
        for delivery in receive(consumer).await {
            consumer.ack(&[delivery.id]).await.unwrap();
            settled += 1;
        }
    }
}

async fn reject(queue: &Queue, consumer: &mut InProcessConsumer, number: u32) {
    queue.publish(TOPIC, frame(number)).await.unwrap();
    let id = receive(consumer).await[0].id;
    let nack = Nack { id, kind: NackKind::Reject, reason: "bad".into() };
    consumer.nack(&[nack]).await.unwrap();
    watched("its dead letter is stored", || queue.stats().topics[TOPIC].messages == 0).await;
}

fn segments(disk: &FaultDisk) -> Vec<String> {
    disk.names().into_iter().filter(|name| name.contains(".wal")).collect()
}

#[tokio::test]
async fn a_checkpoint_of_many_records_is_made_where_the_log_has_no_room_for_two() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, 32 << 10, 1_000).await;
    let mut consumer = join(&queue, "g").await;
    let first = segments(&disk)[0].clone();
    for number in 0..800 {
        let stamped = frame(number).stamped(format!("{number}-{}", "producer".repeat(8)), 1);
        // While a checkpoint is written, publishers wait.
        queue.publish_wait(TOPIC, stamped).await.unwrap();
        settle(&mut consumer, 1).await;
    }
    watched("the first segment goes", || !segments(&disk).contains(&first)).await;
    let repeat = frame(3).stamped(format!("3-{}", "producer".repeat(8)), 1);
    let (queue, opened) = open(&disk.crashed(0), 32 << 10, 1_000).await;
    assert_eq!(opened.damage, Vec::<String>::new());
    let receipt = queue.publish_wait(TOPIC, repeat).await.unwrap();
    assert!(receipt.duplicate, "all of it is there");
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_publisher_that_waits_for_the_log_does_not_try_again_and_again() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, 32 << 10, 1_000).await;
    disk.hold_syncs();
    let under_way: Vec<_> = (0..20).map(|number| queue.publish(TOPIC, frame(number))).collect();
    let mut waiting = std::pin::pin!(queue.publish_wait(TOPIC, frame(20)));
    let wakes = Arc::new(Wakes::default());
    for _ in 0..100 {
        // A task that never waits is stopped after some steps, and woken to go on.
        let mut polled = |_: &mut Context<'_>| {
            Poll::Ready(waiting.as_mut().poll(&mut Context::from_waker(&Arc::clone(&wakes).into())))
        };
        let outcome = std::future::poll_fn(&mut polled).await;
        assert!(outcome.is_pending(), "{outcome:?} while the log is full");
        tokio::task::yield_now().await;
    }
    let woken = wakes.0.load(Ordering::Relaxed);
    assert!(woken < 10, "woken {woken} times, although there was no room");
    disk.release_syncs();
    timeout(LIMIT, waiting).await.expect("there is room").unwrap();
    let mut refused = 0;
    for publishing in under_way {
        refused += usize::from(publishing.await.is_err());
    }
    assert!((1..20).contains(&refused), "{refused} refused: the log was full");
}

#[tokio::test]
async fn a_bit_that_turns_in_the_newest_checkpoint_loses_nothing() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, 8 << 10, 16 << 20).await;
    let mut consumer = join(&queue, "g").await;
    reject(&queue, &mut consumer, 0).await;
    for number in 1..300 {
        queue.publish(TOPIC, frame(number)).await.unwrap();
        settle(&mut consumer, 1).await;
    }
    // Damage to what was synced last looks like a write that was cut short. So a frame is synced after the checkpoint.
    let newest = |disk: &FaultDisk| records(disk).into_iter().rev().find(|record| record.kind == CHECKPOINT);
    let mut held = 0;
    let (disk, checkpoint) = loop {
        let before = newest(&disk).unwrap();
        queue.publish(TOPIC, frame(300 + held)).await.unwrap();
        held += 1;
        assert!(held < 1_000, "what is synced last is always a checkpoint");
        let crashed = disk.crashed(0);
        if newest(&crashed).unwrap().place == before.place {
            break (crashed, before);
        }
    };
    queue.shutdown().await;
    turn_a_bit(&disk, &checkpoint, 160);
    let (queue, opened) = open(&disk, 8 << 10, 16 << 20).await;
    assert_eq!((opened.torn, opened.frames, opened.dead_letters), (None, u64::from(held), 1));
    let letters = queue.dead_letters(TOPIC, 0, 10).await.unwrap();
    assert_eq!(*letters[0].frame, frame(0));
    assert_eq!(*receive(&mut join(&queue, "g").await).await[0].frame, frame(300));
}

#[tokio::test]
async fn a_damaged_record_does_not_keep_the_log() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, 8 << 10, 16 << 20).await;
    let mut consumer = join(&queue, "g").await;
    reject(&queue, &mut consumer, 0).await;
    reject(&queue, &mut consumer, 1).await;
    let first = segments(&disk)[0].clone();
    let bytes = disk.contents(&first).unwrap();
    let damaged = bytes.windows(200).rposition(|window| window == frame(1).payload).unwrap();
    disk.flip_on_read(&first, damaged + 9, 1);
    for number in 2..1_000 {
        queue.publish(TOPIC, frame(number)).await.unwrap();
        settle(&mut consumer, 1).await;
    }
    watched("the first segment goes", || !segments(&disk).contains(&first)).await;
    let letters = queue.dead_letters(TOPIC, 0, 10).await.unwrap();
    assert_eq!((letters.len(), &*letters[0].frame), (2, &frame(0)), "the other is still read");
    let health = queue.health();
    assert!(health.reasons.iter().any(|reason| reason.contains("damaged")), "{health:?}");
}

#[tokio::test]
async fn where_facts_were_lost_a_group_that_joined_has_all_that_it_wants() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, 64 << 10, 16 << 20).await;
    let mut consumer = join(&queue, "g").await;
    queue.publish(TOPIC, frame(0)).await.unwrap();
    let id = receive(&mut consumer).await[0].id;
    drop(join(&queue, "late").await);
    queue.publish(TOPIC, frame(1)).await.unwrap();
    disk.fail_call(Some(Op::Write), 0, Fault::Error(ErrorKind::StorageFull));
    queue.remove_group(TOPIC, "late").unwrap();
    watched("a write fails", || !queue.health().reasons.is_empty()).await;
    drop(join(&queue, "late").await);
    consumer.ack(&[id]).await.unwrap();
    queue.publish(TOPIC, frame(2)).await.unwrap();
    // The end of the first group of that name is not on disk; the making of the second is.
    let (queue, opened) = open(&disk.crashed(0), 64 << 10, 16 << 20).await;
    assert_eq!((opened.frames, opened.damage), (3, Vec::new()));
    assert_eq!(queue.stats().topics[TOPIC].groups["late"].lag, 3);
}

#[tokio::test]
async fn a_group_that_is_made_anew_stores_its_dead_letters_anew() {
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, 64 << 10, 16 << 20).await;
    let mut stays = join(&queue, "stays").await;
    queue.publish(TOPIC, frame(0)).await.unwrap();
    let held = receive(&mut stays).await[0].id;
    for _ in 0..2 {
        let mut consumer = join(&queue, "g").await;
        let id = receive(&mut consumer).await[0].id;
        let nack = Nack { id, kind: NackKind::Reject, reason: "bad".into() };
        consumer.nack(&[nack]).await.unwrap();
        watched("its dead letter is stored", || queue.stats().topics[TOPIC].dead_letters == 1).await;
        assert_eq!(queue.purge_dead(TOPIC, &DeadSelection::Oldest(9)).unwrap(), 1);
        queue.remove_group(TOPIC, "g").unwrap();
    }
    stays.ack(&[held]).await.unwrap();
    assert_eq!(queue.stats().topics[TOPIC].messages, 0);
}

/// The files of the log in a directory.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|end| end == "wal"));
    files.sort();
    files
}

#[tokio::test]
async fn a_queue_whose_newest_segment_is_removed_or_cut_answers_nothing_as_stored() {
    let cases: [fn(&Path); 2] =
        [|file| std::fs::remove_file(file).unwrap(), |file| std::fs::write(file, b"").unwrap()];
    for (case, loses) in cases.into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let (queue, _) = Queue::open(
            directory.path(),
            QueueConfig { spare_segments: 0, ..QueueConfig::default() },
            QueueClock::system(),
        )
        .await
        .unwrap();
        queue.publish(TOPIC, frame(0)).await.unwrap();
        loses(files(directory.path()).last().unwrap());
        let refused = queue.publish(TOPIC, frame(1)).await.unwrap_err();
        assert!(refused.to_string().contains("was removed, moved or replaced"), "{case}: {refused}");
        assert!(matches!(queue.health().status, Status::Unhealthy | Status::Degraded), "{case}");
    }
}

#[tokio::test]
async fn a_segment_that_goes_while_nothing_runs_is_missed_however_young_it_was() {
    let cases: [fn(&Path); 3] = [
        |file| std::fs::remove_file(file).unwrap(),
        |file| std::fs::write(file, b"").unwrap(),
        |file| {
            std::fs::remove_file(file).unwrap();
            std::fs::create_dir(file).unwrap();
        },
    ];
    for (case, loses) in cases.into_iter().enumerate() {
        let directory = tempfile::tempdir().unwrap();
        let slow = || QueueConfig {
            spare_segments: 0,
            sync_every: Duration::from_hours(1),
            ..QueueConfig::default()
        };
        let (queue, _) = Queue::open(directory.path(), slow(), QueueClock::system()).await.unwrap();
        queue.publish(TOPIC, frame(0)).await.unwrap();
        // As a kill leaves it.
        let killed = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path()) {
            std::fs::copy(&file, killed.path().join(file.file_name().unwrap())).unwrap();
        }
        loses(files(killed.path()).last().unwrap());
        let (queue, opened) = Queue::open(killed.path(), slow(), QueueClock::system()).await.unwrap();
        assert_eq!(opened.damage.len(), 1, "{case}: {opened:?}");
        assert_eq!(queue.health().status, Status::Degraded, "{case}");
    }
}
