//! Rows a second through publish → receive → acknowledge within one process, and the memory of a million
//! rows that wait.
//!
//! ```text
//! cargo run --release -p gpuvitals-queue --example throughput [frames]
//! ```
//!
//! Expected, by napkin: a frame costs about ten operations on small ordered maps, ten small allocations and
//! three turns of an uncontended mutex, 3 µs in all; so 30 M rows/s in frames of 100.

use std::time::Instant;

use gpuvitals_queue::{
    Consumer, ConsumerOptions, ContentType, Frame, InProcessConsumer, Producer, Queue, QueueClock,
    QueueConfig,
};

const TOPIC: &str = "throughput";

/// Acknowledges until it has seen `rows`.
async fn consume(mut consumer: InProcessConsumer, rows: u64) {
    let mut seen = 0;
    while seen < rows {
        let Ok(deliveries) = consumer.receive().await else { return };
        let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.id).collect();
        seen += consumer.ack(&ids).await.unwrap_or_default();
    }
}

async fn publish(queue: Queue, frames: u64, count: u32) {
    let producer = queue.producer(TOPIC);
    // As many bytes as a compressed frame of that many rows may have.
    let payload = bytes::Bytes::from(vec![0x5a; 60 * usize::try_from(count).unwrap_or(0)]);
    for sequence in 0..frames {
        let frame = Frame::new(ContentType::Batch, count, payload.clone()).stamped("bench", sequence);
        if producer.publish(frame).await.is_err() {
            return;
        }
    }
}

/// Resident memory of this process in bytes (`/proc/self/status`, `VmRSS`); 0 where that does not exist.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1_024
}

/// Holds a million rows in frames of 100 with 26 bytes a row (what compressed rows were measured to take).
#[expect(clippy::print_stdout, reason = "a measurement prints what it found")]
async fn hold() {
    let queue = Queue::in_process(QueueConfig::default(), QueueClock::system());
    let before = resident_bytes();
    for _ in 0..10_000 {
        if queue.publish(TOPIC, Frame::new(ContentType::Batch, 100, vec![0x5a; 2_600])).await.is_err() {
            return;
        }
    }
    let mib = (resident_bytes().saturating_sub(before)) >> 20;
    println!("1,000,000 rows held in frames of 100 (26 MB of payload): {mib} MiB");
}

#[expect(clippy::disallowed_methods, reason = "a measurement asks the clock")]
#[expect(clippy::print_stdout, clippy::cast_precision_loss, reason = "a measurement prints what it found")]
#[tokio::main]
async fn main() {
    let frames = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(200_000);
    hold().await;
    println!("rows a frame  frames     seconds  rows/s       frames/s");
    for count in [1_u32, 100, 500] {
        let queue = Queue::in_process(QueueConfig::default(), QueueClock::system());
        let options = ConsumerOptions {
            max_in_flight: std::num::NonZeroU32::MIN.saturating_add(20 * count - 1),
            ..ConsumerOptions::default()
        };
        let Ok(consumer) = queue.subscribe(TOPIC, "bench", &options).await else { return };
        let rows = frames * u64::from(count);
        let start = Instant::now();
        let publisher = tokio::spawn(publish(queue.clone(), frames, count));
        consume(consumer, rows).await;
        let seconds = start.elapsed().as_secs_f64();
        if publisher.await.is_err() {
            return;
        }
        let (rows_s, frames_s) = (rows as f64 / seconds, frames as f64 / seconds);
        println!("{count:>12}  {frames:>9}  {seconds:>7.3}  {rows_s:>11.0}  {frames_s:>9.0}");
        queue.shutdown().await;
    }
}
