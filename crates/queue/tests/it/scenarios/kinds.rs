//! Frames of all kinds, packed with others or not, come as they were published.

use std::num::NonZeroU32;
use std::sync::Arc;

use gpuvitals_queue::{
    Broker, ConsumerId, ConsumerOptions, ContentType, Delivery, Encoding, Frame, Millis, QueueConfig,
};

use super::story::TOPIC;

/// Every kind in turn.
fn turn<T: Clone>(kinds: &[T], number: u64) -> T {
    kinds.iter().cycle().nth(usize::try_from(number).unwrap() % kinds.len()).unwrap().clone()
}

fn frame(number: u64) -> Frame {
    let content_type = turn(&[ContentType::Batch, ContentType::Json], number);
    let encoding = turn(&[Encoding::Identity, Encoding::Identity, Encoding::Zstd], number);
    let payload_len = turn(&[1, 181, 4_096, 4_097, 300, 10_000, 0], number);
    let payload = number.to_le_bytes().into_iter().cycle().take(payload_len).collect::<Vec<_>>();
    let span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned();
    let traces = [None, Some(span), Some(String::new()), Some("t".repeat(256)), Some("t".repeat(255))];
    let frame = Frame::new(content_type, 1 + u32::try_from(number % 3).unwrap(), payload);
    let frame = frame.encoded(encoding);
    let frame = Frame { trace: turn(&traces, number).map(Arc::from), ..frame };
    // More producers than frames have in a block, and one of most of them.
    let producer = if number.is_multiple_of(4) { number } else { 0 };
    if number.is_multiple_of(11) { frame } else { frame.stamped(format!("p{producer}"), number) }
}

fn receive(broker: &mut Broker) -> (ConsumerId, Vec<Delivery>) {
    let options = ConsumerOptions { max_in_flight: NonZeroU32::MAX, ..ConsumerOptions::default() };
    let who = broker.subscribe(Millis(0), TOPIC, "g", &options).unwrap();
    let mut deliveries = Vec::new();
    loop {
        let lent = broker.receive(Millis(0), who).unwrap();
        if lent.is_empty() {
            return (who, deliveries);
        }
        deliveries.extend(lent.into_iter().map(|lent| lent.item));
    }
}

#[test]
fn frames_of_all_kinds_come_as_they_were_published_whoever_has_left_between_them() {
    let mut broker = Broker::new(QueueConfig::default(), Millis(0));
    for number in 0..1_000 {
        let receipt = broker.publish(Millis(0), TOPIC, &Arc::new(frame(number))).unwrap();
        assert_eq!(receipt.offset, Some(number));
    }
    let mut left: Vec<u64> = (0..1_000).collect();
    for gone in [2, 3, 5, 7, 1] {
        let (who, deliveries) = receive(&mut broker);
        assert_eq!(deliveries.iter().map(|delivery| delivery.id.offset).collect::<Vec<_>>(), left);
        for delivery in deliveries {
            assert_eq!(*delivery.frame, frame(delivery.id.offset));
            if delivery.id.offset.is_multiple_of(gone) {
                broker.ack(Millis(0), who, &[delivery.id]).unwrap();
            }
        }
        left.retain(|number| !number.is_multiple_of(gone));
        let cost: u64 = left.iter().map(|number| frame(*number).cost_bytes()).sum();
        let stats = broker.topic_stats(Millis(0), TOPIC).unwrap();
        assert_eq!((stats.frames, stats.bytes), (left.len() as u64, cost));
        broker.leave(Millis(0), who);
    }
}
