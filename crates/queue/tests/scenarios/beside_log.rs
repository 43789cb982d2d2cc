//! A broker beside a log: what is on disk gives its memory back, what is under way counts.

#![expect(clippy::unwrap_used, reason = "a test that goes astray fails")]

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use gpuvitals_log::fault::FaultDisk;
use gpuvitals_log::{Durability, Log, LogConfig, Place};
use gpuvitals_queue::broker::Reserved;
use gpuvitals_queue::{
    Broker, ConsumerOptions, ContentType, Frame, Millis, PublishError, QueueConfig, WhenFull,
};

use crate::story::TOPIC;

/// A broker whose log was empty, and a place in some log.
fn broker(change: impl FnOnce(&mut QueueConfig)) -> (Broker, Place) {
    let (log, _) = Log::open(FaultDisk::new(), LogConfig::default()).unwrap();
    let place = log.append(1, Bytes::new(), Durability::Written).wait().unwrap().place;
    let mut config = QueueConfig::default();
    change(&mut config);
    let mut broker = Broker::beside_log(config, Millis(0));
    broker.begin();
    (broker, place)
}

fn frame(number: u32) -> Frame {
    Frame::new(ContentType::Batch, 1, number.to_le_bytes().repeat(50))
}

#[test]
fn memory_for_frames_that_are_on_disk_is_bounded_and_the_newest_have_it() {
    let cost = frame(0).cost_bytes();
    let (mut broker, place) = broker(|config| config.memory_max = 3 * cost);
    for number in 0..5_000 {
        let frame = Arc::new(frame(number));
        let Ok(Reserved::New { topic, offset, .. }) = broker.reserve(Millis(0), TOPIC, &frame) else {
            panic!("there is room")
        };
        broker.land(topic, offset, place).unwrap();
        assert_eq!(broker.cached_bytes(), cost * u64::from(number + 1).min(3));
    }
    let options = ConsumerOptions { max_in_flight: NonZeroU32::MAX, ..ConsumerOptions::default() };
    let who = broker.subscribe(Millis(0), TOPIC, "g", &options).unwrap();
    let lent = broker.receive(Millis(0), who).unwrap();
    let in_memory = lent.iter().filter(|lent| lent.place.is_none());
    assert_eq!(in_memory.map(|lent| lent.item.id.offset).collect::<Vec<_>>(), [4_997, 4_998, 4_999]);
    let ids: Vec<_> = lent.iter().map(|lent| lent.item.id).collect();
    broker.ack(Millis(0), who, &ids).unwrap();
    assert_eq!((broker.cached_bytes(), broker.kept_bytes()), (0, 0));
}

#[test]
fn what_is_under_way_alone_fills_a_topic_and_costs_no_frame() {
    let (mut broker, place) =
        broker(|config| (config.max_messages, config.when_full) = (10, WhenFull::DropOldest));
    let reserve = |broker: &mut Broker, count| {
        let frame = Arc::new(Frame::new(ContentType::Batch, count, vec![7; 10]));
        broker.reserve(Millis(0), TOPIC, &frame)
    };
    for _ in 0..4 {
        let Ok(Reserved::New { topic, offset, .. }) = reserve(&mut broker, 1) else {
            panic!("there is room")
        };
        broker.land(topic, offset, place).unwrap();
    }
    assert!(matches!(reserve(&mut broker, 5), Ok(Reserved::New { .. })));
    assert!(matches!(reserve(&mut broker, 6), Err(PublishError::Full { .. })));
    let stats = broker.topic_stats(Millis(0), TOPIC).unwrap();
    assert_eq!((stats.messages, stats.dropped), (4, 0));
}
