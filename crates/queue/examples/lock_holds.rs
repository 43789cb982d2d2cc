//! How long a checkpoint, and a search for what keeps a segment, hold the broker's lock with a million frames of one row
//! held.
//!
//! ```text
//! lock_holds [FRAMES]
//! ```
#![expect(clippy::print_stdout, reason = "its report")]
#![expect(clippy::unwrap_used, reason = "an instrument that is broken has to say so")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gpuvitals_log::fault::FaultDisk;
use gpuvitals_log::{Durability, Log, LogConfig};
use gpuvitals_queue::broker::Reserved;
use gpuvitals_queue::{Broker, ConsumerOptions, ContentType, Frame, Millis, QueueConfig};

const TOPIC: &str = "telemetry";
const RUNS: usize = 9;

/// The fastest of some runs: what it takes when nothing else wants the core.
#[expect(clippy::disallowed_methods, reason = "an instrument asks the clock")]
fn time<T>(mut work: impl FnMut() -> T) -> Duration {
    let run = |_| {
        let begin = Instant::now();
        let made = black_box(work());
        let taken = begin.elapsed();
        drop(made);
        taken
    };
    (0..RUNS).map(run).min().unwrap()
}

fn main() {
    let frames: u64 = std::env::args().nth(1).map_or(1_000_000, |count| count.parse().unwrap());
    let (log, _) = Log::open(FaultDisk::new(), LogConfig::default()).unwrap();
    let place = log.append(0, Bytes::new(), Durability::Written).wait().unwrap().place;
    let config = QueueConfig { memory_max: 0, ..QueueConfig::default() };
    let mut broker = Broker::beside_log(config, Millis(0));
    broker.begin();
    let options = ConsumerOptions::default();
    for group in ["store", "archive"] {
        broker.subscribe(Millis(0), TOPIC, group, &options).unwrap();
    }
    let begin = time_once(|| {
        for number in 0..frames {
            let frame =
                Frame::new(ContentType::Json, 1, "{}").stamped(format!("p{}", number % 10_000), number);
            let reserved = broker.reserve(Millis(0), TOPIC, &Arc::new(frame)).unwrap();
            let Reserved::New { topic, offset, .. } = reserved else { panic!("{reserved:?}") };
            broker.land(topic, offset, place).unwrap();
        }
    });
    println!("{frames} frames of one row taken in {begin:.1?}");
    let (state, places) = (time(|| broker.state()), time(|| broker.frames_in(place.segment())));
    println!("state of a checkpoint {state:.1?}, places in a segment {places:.1?}");
}

#[expect(clippy::disallowed_methods, reason = "an instrument asks the clock")]
fn time_once(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}
