//! What a frame that is held takes in memory beside its payload.

#![expect(clippy::unwrap_used, reason = "a test that goes astray fails")]
#![expect(clippy::cast_precision_loss, clippy::print_stdout, reason = "a measurement prints what it found")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use bytes::Bytes;
use gpuvitals_log::fault::FaultDisk;
use gpuvitals_log::{Durability, Log, LogConfig, Place};
use gpuvitals_queue::broker::Reserved;
use gpuvitals_queue::{Broker, ConsumerId, ConsumerOptions, ContentType, Frame, Millis, QueueConfig};
use gpuvitals_rig::waiting::received;

const TOPIC: &str = "gpu-telemetry";
/// The payload of one row, as `stream` sends it.
const PAYLOAD_LEN: usize = 181;
/// Bytes beside the payload of a frame.
const OURS_MAX: f64 = 64.0;
/// When others have left between them, in no order.
const OURS_BETWEEN_GAPS_MAX: f64 = 80.0;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Counts the bytes that are in use.
struct Counting;

#[expect(unsafe_code, reason = "the one way to count bytes; all is passed on to the system's allocator")]
// SAFETY: every call goes to `System` unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as it came.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

fn payload(number: u64) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(PAYLOAD_LEN).collect()
}

/// A frame as it comes from the wire: nothing of it is shared with another.
fn frame(number: u64) -> Arc<Frame> {
    let producer = format!("0af7651916cd43dd8448eb211c80319c-{}", number % 8);
    Arc::new(Frame::new(ContentType::Batch, 1, payload(number)).stamped(producer, number / 8))
}

fn publish(broker: &mut Broker, place: Place, number: u64) {
    match broker.reserve(Millis(number), TOPIC, &frame(number)).unwrap() {
        Reserved::Taken(_) => {}
        Reserved::New { topic, offset, .. } => drop(broker.land(topic, offset, place).unwrap()),
        Reserved::UnderWay { .. } => panic!("no frame is published twice"),
    }
}

/// Settles all that `chosen` says of what is held, the last first, and ends the group.
fn settle(broker: &mut Broker, group: &str, chosen: impl Fn(u64) -> bool) -> u64 {
    let options = ConsumerOptions { max_in_flight: NonZeroU32::MAX, ..ConsumerOptions::default() };
    let who: ConsumerId = broker.subscribe(Millis(0), TOPIC, group, &options).unwrap();
    let (mut ids, mut read) = (Vec::new(), 0);
    loop {
        let lent = broker.receive(Millis(0), who).unwrap();
        if lent.is_empty() {
            break;
        }
        for lent in lent {
            let delivery = lent.item;
            read += 1;
            let number = delivery.id.offset;
            if lent.place.is_none() {
                assert_eq!(*delivery.frame, *frame(number));
            }
            ids.extend(Some(delivery.id).filter(|_| chosen(number)));
        }
    }
    // In an order that is none.
    ids.sort_by_key(|id| id.offset.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for id in ids {
        broker.ack(Millis(0), who, &[id]).unwrap();
        broker.take_facts();
    }
    broker.remove_group(Millis(0), TOPIC, group).unwrap();
    broker.take_facts();
    broker.take_wakes();
    read
}

/// `payload_len` of each frame's bytes stay in memory.
fn measure(name: &str, mut broker: Broker, place: Place, frames: u64, payload_len: usize) {
    let before = in_use();
    for number in 0..frames {
        publish(&mut broker, place, number);
    }
    let held = usize::try_from(frames).unwrap();
    let ours = |held: usize| (in_use() - before) as f64 / held as f64 - payload_len as f64;
    let of_all = ours(held);
    let half = |number: u64| number.wrapping_mul(0xd134_2543_de82_ef95) >> 63 == 0;
    let left = (0..frames).filter(|number| !half(*number)).count();
    assert_eq!(settle(&mut broker, "g", half), frames);
    let of_half = ours(left);
    println!("{name}: {of_all:.1} bytes a frame beside the payload; {of_half:.1} after half of them left");
    assert!(of_all <= OURS_MAX, "{name}: {of_all}");
    assert!(of_half <= OURS_BETWEEN_GAPS_MAX, "{name}, when half of them has left: {of_half}");
    assert_eq!(settle(&mut broker, "h", |_| true), left as u64);
    assert!(in_use() - before < 100_000, "{name}: {} bytes for nothing", in_use() - before);
}

fn measure_all(frames: u64) {
    let (log, _) = Log::open(FaultDisk::new(), LogConfig::default()).unwrap();
    // No thread of the test's own, which would give memory back while that is counted.
    let (done, outcome) = sync_channel(1);
    log.append_with(1, Bytes::new(), Durability::Written, Box::new(move |result| drop(done.send(result))));
    let place = received("the outcome of an append", &outcome).unwrap().place;
    let config = |memory_max| QueueConfig { memory_max, max_bytes: 1 << 30, ..QueueConfig::default() };
    measure("memory", Broker::new(config(0), Millis(0)), place, frames, PAYLOAD_LEN);
    for (name, memory_max, payload_len) in [("beside a log", 1 << 30, PAYLOAD_LEN), ("on disk", 0, 0)] {
        let mut broker = Broker::beside_log(config(memory_max), Millis(0));
        broker.begin();
        measure(name, broker, place, frames, payload_len);
    }
}

#[test]
fn a_frame_of_a_row_takes_64_bytes_beside_its_payload_at_most() {
    measure_all(100_000);
}

#[test]
#[ignore = "a million frames: run it alone, with --nocapture, for the figures"]
fn a_million_of_them_do_too() {
    measure_all(1_000_000);
}
