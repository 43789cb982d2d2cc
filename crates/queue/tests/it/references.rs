//! Frames that refer to another one's names: what a small frame takes on disk, and that it is whole wherever it lies.

#![expect(clippy::cast_precision_loss, reason = "a measurement prints what it found")]

use std::collections::BTreeMap;
use std::time::Duration;

use gpuvitals_log::fault::FaultDisk;
use gpuvitals_log::{Log, LogConfig, Record};
use gpuvitals_queue::{
    Consumer as _, ConsumerOptions, ContentType, Delivery, Frame, InProcessConsumer, Opened, Queue,
    QueueClock, QueueConfig,
};
use tokio::time::timeout;

const TOPIC: &str = "gpu-telemetry";
const LIMIT: Duration = Duration::from_mins(1);
/// The payload of one row, as `stream` sends it.
const PAYLOAD_LEN: usize = 181;
/// Bytes beside it on disk, at most.
const OURS_MAX: f64 = 48.0;
const PRODUCERS: u64 = 8;
/// Frames that are handed over before the first of them is awaited.
const UNDER_WAY: usize = 64;

/// A queue that reads every frame back from the disk.
async fn open(disk: &FaultDisk, segment_len: u32) -> (Queue, Opened) {
    let config = QueueConfig {
        segment_len,
        spare_segments: 0,
        sync_every: Duration::from_millis(1),
        backoff_base: Duration::ZERO,
        drain_timeout: Duration::ZERO,
        memory_max: 0,
        ..QueueConfig::default()
    };
    Queue::open_on(disk.clone(), config, QueueClock::system()).await.unwrap()
}

fn frame(number: u64) -> Frame {
    let payload: Vec<u8> = number.to_le_bytes().into_iter().cycle().take(PAYLOAD_LEN).collect();
    let frame = Frame::new(ContentType::Batch, 1, payload);
    // One in eight has no stamp, as curl sends it.
    match number % PRODUCERS {
        0 => frame,
        producer => frame.stamped(format!("0af7651916cd43dd8448eb211c80319{producer}"), number / PRODUCERS),
    }
}

fn number(delivery: &Delivery) -> u64 {
    let number = u64::from_le_bytes(*delivery.frame.payload.first_chunk().unwrap());
    assert_eq!(*delivery.frame, frame(number), "the frame as it was published");
    number
}

/// Publishes them, some under way at once.
async fn publish(queue: &Queue, numbers: std::ops::Range<u64>) {
    let numbers: Vec<u64> = numbers.collect();
    for some in numbers.chunks(UNDER_WAY) {
        let publishing: Vec<_> = some.iter().map(|number| queue.publish(TOPIC, frame(*number))).collect();
        for publishing in publishing {
            publishing.await.unwrap();
        }
    }
}

async fn join(queue: &Queue) -> InProcessConsumer {
    queue.subscribe(TOPIC, "g", &ConsumerOptions::default()).await.unwrap()
}

/// Receives until so many came, and acknowledges what `chosen` says of them.
async fn receive(consumer: &mut InProcessConsumer, count: usize, chosen: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let some = timeout(LIMIT, consumer.receive()).await.expect("something to receive").unwrap();
        for delivery in some {
            let number = number(&delivery);
            if chosen(number) {
                consumer.ack(&[delivery.id]).await.unwrap();
            }
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    numbers
}

fn records(disk: &FaultDisk) -> Vec<Record> {
    let (_log, recovery) =
        Log::open(disk.crashed(0), LogConfig { spares: 0, ..LogConfig::default() }).unwrap();
    recovery.map(Result::unwrap).filter(|record| record.kind == 1).collect()
}

/// Where the record stands that this one refers to, if it refers to one: a number in LEB128 behind version and flags.
fn refers_to(record: &Record) -> Option<u64> {
    let mut bytes = record.payload.iter().copied().skip(1);
    let refers = bytes.next().is_some_and(|flags| flags & 32 != 0);
    let (mut offset, mut shift) = (0, 0);
    for byte in bytes {
        offset |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    refers.then_some(offset)
}

#[tokio::test]
async fn a_frame_of_a_row_takes_48_bytes_on_disk_beside_its_payload_at_most() {
    const FRAMES: u64 = 20_000;
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, 16 << 20).await;
    publish(&queue, 0..FRAMES).await;
    queue.shutdown().await;
    drop(queue);
    let (queue, opened) = open(&disk, 16 << 20).await;
    assert_eq!((opened.frames, &opened.damage), (FRAMES, &Vec::new()));
    let ours = opened.bytes as f64 / FRAMES as f64 - PAYLOAD_LEN as f64;
    println!("{ours:.1} bytes a frame beside the payload");
    assert!(ours <= OURS_MAX, "{ours}");
    let mut consumer = join(&queue).await;
    let all = receive(&mut consumer, usize::try_from(FRAMES).unwrap(), |_| true).await;
    assert_eq!(all, (0..FRAMES).collect::<Vec<_>>());
}

#[tokio::test]
async fn frames_are_whole_though_the_segments_before_theirs_are_gone_or_they_were_moved() {
    const FRAMES: u64 = 4_000;
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, 32 << 10).await;
    let mut consumer = join(&queue).await;
    let is_kept = |number: u64| number.is_multiple_of(97);
    for from in (0..FRAMES).step_by(500) {
        publish(&queue, from..from + 500).await;
        receive(&mut consumer, 500, |number| !is_kept(number)).await;
    }
    let first = records(&disk)[0].sequence;
    assert!(first > 1, "the first segments are gone");
    drop(consumer);
    queue.shutdown().await;
    drop(queue);
    let (queue, opened) = open(&disk, 32 << 10).await;
    let kept: Vec<u64> = (0..FRAMES).filter(|number| is_kept(*number)).collect();
    assert_eq!((opened.frames, &opened.damage), (kept.len() as u64, &Vec::new()));
    let mut consumer = join(&queue).await;
    assert_eq!(receive(&mut consumer, kept.len(), |_| true).await, kept);
}

#[tokio::test]
async fn of_a_damaged_record_only_those_that_refer_to_it_are_lost_and_that_is_said() {
    const FRAMES: u64 = 8_000;
    let disk = FaultDisk::new();
    let (queue, _) = open(&disk, 16 << 20).await;
    publish(&queue, 0..FRAMES).await;
    queue.shutdown().await;
    drop(queue);
    let all = records(&disk);
    let mut references: BTreeMap<u64, u64> = BTreeMap::new();
    for offset in all.iter().filter_map(refers_to) {
        *references.entry(offset).or_default() += 1;
    }
    let (offset, count) = references.iter().max_by_key(|(_, count)| **count).unwrap();
    assert!((100..=512).contains(count), "{count}");
    let harmed = all.iter().find(|record| record.place.offset() == *offset).unwrap();
    let name = format!("{:016x}.wal", harmed.place.segment());
    let bytes = disk.contents(&name).unwrap();
    let at = bytes.windows(harmed.payload.len()).position(|window| window == harmed.payload).unwrap();
    disk.flip_on_read(&name, at + 40, 1);

    let (queue, opened) = open(&disk, 16 << 20).await;
    let said = opened.damage.join("; ");
    let lost = FRAMES - opened.frames;
    println!("{lost} of {FRAMES} frames are lost with one record");
    assert_eq!(lost, count + 1);
    assert!(said.contains(&format!("of {count} records stood in one that cannot be read")), "{said}");
    assert!(opened.damage.len() < 5, "{said}");
    let mut consumer = join(&queue).await;
    let read = receive(&mut consumer, usize::try_from(opened.frames).unwrap(), |_| true).await;
    assert_eq!(read.len() as u64, opened.frames);
}
