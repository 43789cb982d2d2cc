//! Frames, deliveries and settlements, on the network and in the broker. Input from the network is checked
//! here and nowhere else.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gpuvitals_listener::trace::TRACEPARENT_LEN;

use super::v1;
use crate::broker::{ConsumerOptions, Delivery, DeliveryId, Nack, NackKind, Start};
use crate::frame::{ContentType, DeadFacts, Encoding, Frame, Millis, ProducerStamp, REASON_LEN_MAX};
use crate::name::NAME_LEN_MAX;

/// A well-formed protobuf message that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("{field} is missing")]
    Missing { field: &'static str },
    #[error("{field} is {number}, which this version does not know")]
    Unknown { field: &'static str, number: i32 },
    #[error("{field} is 0, at least 1 is needed")]
    Zero { field: &'static str },
    #[error("{field} has {len} bytes, at most {max} are allowed")]
    TooLong { field: &'static str, len: usize, max: usize },
}

/// A frame as the broker keeps it. Its payload is copied into memory of its own size: on arrival it is a
/// slice of the connection's buffer, and a small frame would keep all of that.
pub(crate) fn published(frame: Option<v1::Frame>) -> Result<Frame, Malformed> {
    let frame = frame.ok_or(Malformed::Missing { field: "frame" })?;
    let payload = Bytes::copy_from_slice(&frame.payload);
    Ok(Frame { payload, ..read_frame(frame)? })
}

/// A frame of the protocol, checked.
fn read_frame(frame: v1::Frame) -> Result<Frame, Malformed> {
    use v1::{ContentType as Content, Encoding as Coding};
    let content_type = match Content::try_from(frame.content_type) {
        Ok(Content::Batch) => ContentType::Batch,
        Ok(Content::Json) => ContentType::Json,
        Ok(Content::Unspecified) => return Err(Malformed::Missing { field: "frame.content_type" }),
        Err(_) => {
            return Err(Malformed::Unknown { field: "frame.content_type", number: frame.content_type });
        }
    };
    let encoding = match Coding::try_from(frame.encoding) {
        Ok(Coding::Identity) => Encoding::Identity,
        Ok(Coding::Zstd) => Encoding::Zstd,
        Err(_) => return Err(Malformed::Unknown { field: "frame.encoding", number: frame.encoding }),
    };
    if frame.count == 0 {
        return Err(Malformed::Zero { field: "frame.count" });
    }
    if frame.payload.is_empty() {
        return Err(Malformed::Missing { field: "frame.payload" });
    }
    let stamp =
        |producer: v1::Producer| ProducerStamp { id: producer.id.into(), sequence: producer.sequence };
    Ok(Frame {
        content_type,
        encoding,
        count: frame.count,
        producer: frame.producer.map(stamp),
        dead: frame.dead.map(read_dead).transpose()?.map(Box::new),
        // A trace that cannot be followed is no reason to refuse a frame.
        trace: Some(frame.traceparent).filter(|text| text.len() == TRACEPARENT_LEN).map(Arc::from),
        payload: frame.payload,
    })
}

fn read_dead(dead: v1::DeadFacts) -> Result<DeadFacts, Malformed> {
    for (field, text, max) in [
        ("frame.dead.topic", &dead.topic, NAME_LEN_MAX),
        ("frame.dead.group", &dead.group, NAME_LEN_MAX),
        ("frame.dead.reason", &dead.reason, REASON_LEN_MAX),
    ] {
        if text.len() > max {
            return Err(Malformed::TooLong { field, len: text.len(), max });
        }
    }
    Ok(DeadFacts {
        topic: dead.topic.into(),
        group: dead.group.into(),
        offset: dead.offset,
        attempts: dead.attempts,
        reason: dead.reason.into(),
        published_at: Millis(dead.published_at_ms),
    })
}

fn write_dead(dead: &DeadFacts) -> v1::DeadFacts {
    v1::DeadFacts {
        topic: dead.topic.to_string(),
        group: dead.group.to_string(),
        offset: dead.offset,
        attempts: dead.attempts,
        reason: dead.reason.to_string(),
        published_at_ms: dead.published_at.0,
    }
}

/// A frame in the protocol's form.
fn write_frame(frame: &Frame) -> v1::Frame {
    let content_type = match frame.content_type {
        ContentType::Batch => v1::ContentType::Batch,
        ContentType::Json => v1::ContentType::Json,
    };
    let encoding = match frame.encoding {
        Encoding::Identity => v1::Encoding::Identity,
        Encoding::Zstd => v1::Encoding::Zstd,
    };
    let stamp = |stamp: &ProducerStamp| v1::Producer { id: stamp.id.to_string(), sequence: stamp.sequence };
    v1::Frame {
        content_type: content_type.into(),
        encoding: encoding.into(),
        count: frame.count,
        producer: frame.producer.as_ref().map(stamp),
        dead: frame.dead.as_deref().map(write_dead),
        payload: frame.payload.clone(),
        traceparent: frame.trace.as_deref().unwrap_or_default().to_owned(),
    }
}

/// A publish request; an empty topic is that of the previous request.
pub(crate) fn publish_request(topic: &str, frame: &Frame) -> v1::PublishRequest {
    v1::PublishRequest { topic: topic.to_owned(), frame: Some(write_frame(frame)) }
}

/// The options of a consumer's join.
pub(crate) fn join_of(join: &v1::Join) -> Result<ConsumerOptions, Malformed> {
    let start = match v1::Start::try_from(join.start) {
        Ok(v1::Start::Oldest) => Start::Oldest,
        Ok(v1::Start::Newest) => Start::Newest,
        Err(_) => return Err(Malformed::Unknown { field: "join.start", number: join.start }),
    };
    let max_in_flight =
        NonZeroU32::new(join.max_in_flight).ok_or(Malformed::Zero { field: "join.max_in_flight" })?;
    let ack_timeout = Some(Duration::from_millis(join.ack_timeout_ms)).filter(|time| !time.is_zero());
    Ok(ConsumerOptions {
        start,
        group_ttl: join.group_ttl_ms.map(Duration::from_millis),
        max_in_flight,
        max_batch: NonZeroU32::new(join.max_batch),
        consumer: NonZeroU64::new(join.consumer),
        ack_timeout,
    })
}

/// The join of a consumer, as sent to a queue.
pub(crate) fn join(topic: &str, group: &str, options: &ConsumerOptions) -> v1::Join {
    let start = match options.start {
        Start::Oldest => v1::Start::Oldest,
        Start::Newest => v1::Start::Newest,
    };
    v1::Join {
        topic: topic.to_owned(),
        group: group.to_owned(),
        start: start.into(),
        group_ttl_ms: options.group_ttl.map(millis),
        max_in_flight: options.max_in_flight.get(),
        max_batch: options.max_batch.map_or(0, NonZeroU32::get),
        consumer: options.consumer.map_or(0, NonZeroU64::get),
        // 0 would be the queue's setting.
        ack_timeout_ms: options.ack_timeout.map_or(0, |time| millis(time).max(1)),
    }
}

/// A time as the protocol has it, in whole milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The id of a delivery, in the protocol's form.
pub(crate) fn delivery_id(id: DeliveryId) -> v1::DeliveryId {
    v1::DeliveryId { offset: id.offset, token: id.count() }
}

/// The delivery of an id.
pub(crate) fn delivery_id_of(id: Option<v1::DeliveryId>) -> Result<DeliveryId, Malformed> {
    id.map(read_id).ok_or(Malformed::Missing { field: "id" })
}

/// The deliveries of ids.
pub(crate) fn ids_of(ids: Vec<v1::DeliveryId>) -> Vec<DeliveryId> {
    ids.into_iter().map(read_id).collect()
}

fn read_id(id: v1::DeliveryId) -> DeliveryId {
    DeliveryId { offset: id.offset, token: id.token.into() }
}

/// A refusal of a delivery, as sent to a queue.
pub(crate) fn nack(nack: &Nack) -> v1::Refuse {
    let kind = match nack.kind {
        NackKind::Retry => v1::NackKind::Retry,
        NackKind::Reject => v1::NackKind::Reject,
        NackKind::Release => v1::NackKind::Release,
    };
    v1::Refuse { id: Some(delivery_id(nack.id)), kind: kind.into(), reason: nack.reason.to_string() }
}

/// The refusal of a delivery.
pub(crate) fn nack_of(refuse: v1::Refuse) -> Result<Nack, Malformed> {
    let kind = match v1::NackKind::try_from(refuse.kind) {
        Ok(v1::NackKind::Retry) => NackKind::Retry,
        Ok(v1::NackKind::Reject) => NackKind::Reject,
        Ok(v1::NackKind::Release) => NackKind::Release,
        Err(_) => return Err(Malformed::Unknown { field: "refusals.kind", number: refuse.kind }),
    };
    Ok(Nack { id: delivery_id_of(refuse.id)?, kind, reason: refuse.reason.into() })
}

/// A delivery as sent to a consumer.
pub(crate) fn delivery(delivery: &Delivery, now: Millis) -> v1::Delivery {
    v1::Delivery {
        id: Some(delivery_id(delivery.id)),
        frame: Some(write_frame(&delivery.frame)),
        attempt: delivery.attempt,
        published_at_ms: delivery.published_at.0,
        deadline_in_ms: millis(delivery.deadline.since(now)),
    }
}

/// A delivery received from a queue at `now`.
pub(crate) fn delivery_of(
    delivery: v1::Delivery,
    topic: &Arc<str>,
    now: Millis,
) -> Result<Delivery, Malformed> {
    let frame = read_frame(delivery.frame.ok_or(Malformed::Missing { field: "delivery.frame" })?)?;
    Ok(Delivery {
        id: delivery_id_of(delivery.id)?,
        topic: Arc::clone(topic),
        frame: Arc::new(frame),
        attempt: delivery.attempt,
        published_at: Millis(delivery.published_at_ms),
        deadline: now.after(Duration::from_millis(delivery.deadline_in_ms)),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let content = prop_oneof![Just(ContentType::Batch), Just(ContentType::Json)];
        let encoding = prop_oneof![Just(Encoding::Identity), Just(Encoding::Zstd)];
        let stamp = proptest::option::of(("[a-z]{1,8}", any::<u64>()));
        let dead = ("[a-z]{1,8}", "[a-z]{0,8}", any::<u64>(), any::<u32>(), ".{0,8}", any::<u64>());
        let dead = dead.prop_map(|(topic, group, offset, attempts, reason, at)| DeadFacts {
            topic: topic.into(),
            group: group.into(),
            offset,
            attempts,
            reason: reason.into(),
            published_at: Millis(at),
        });
        let payload = proptest::collection::vec(any::<u8>(), 1..64);
        let trace = proptest::option::of("[0-9a-f]{55}");
        (content, encoding, 1..u32::MAX, proptest::option::of(dead), stamp, payload, trace).prop_map(
            |(content, encoding, count, dead, stamp, payload, trace)| Frame {
                dead: dead.map(Box::new),
                trace: trace.map(Arc::from),
                producer: stamp.map(|(id, sequence)| ProducerStamp { id: id.into(), sequence }),
                ..Frame::new(content, count, payload).encoded(encoding)
            },
        )
    }

    proptest! {
        #[test]
        fn a_frame_is_the_same_at_the_other_end(frame in frames()) {
            let request = publish_request("t", &frame);
            prop_assert_eq!(published(request.frame), Ok(frame));
        }

        #[test]
        fn a_delivery_is_the_same_at_the_other_end(
            frame in frames(), attempt in 1_u32..9,
        ) {
            let id = DeliveryId { offset: 7, token: attempt.into() };
            let (published_at, deadline) = (Millis(5), Millis(1_030));
            let topic: Arc<str> = "t".into();
            let sent = Delivery { id, topic: topic.clone(), frame: frame.into(), attempt, published_at, deadline };
            // Two clocks: the time left is sent, not the deadline.
            let came = delivery_of(delivery(&sent, Millis(1_000)), &topic, Millis(50_000)).unwrap();
            prop_assert_eq!((came.id, came.attempt, came.published_at), (sent.id, sent.attempt, Millis(5)));
            prop_assert_eq!((came.frame, came.deadline), (sent.frame, Millis(50_030)));
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused_by_the_name_of_its_field() {
        let good = || write_frame(&Frame::new(ContentType::Json, 1, "{}"));
        let check = |change: fn(&mut v1::Frame), expected: &str| {
            let mut frame = good();
            change(&mut frame);
            assert_eq!(published(Some(frame)).unwrap_err().to_string(), expected);
        };
        assert!(published(Some(good())).is_ok());
        assert_eq!(published(None).unwrap_err().to_string(), "frame is missing");
        check(|frame| frame.content_type = 0, "frame.content_type is missing");
        check(|frame| frame.content_type = 9, "frame.content_type is 9, which this version does not know");
        check(|frame| frame.encoding = -1, "frame.encoding is -1, which this version does not know");
        check(|frame| frame.count = 0, "frame.count is 0, at least 1 is needed");
        check(|frame| frame.payload = Bytes::new(), "frame.payload is missing");
        check(
            |frame| frame.dead = Some(v1::DeadFacts { reason: "r".repeat(513), ..v1::DeadFacts::default() }),
            "frame.dead.reason has 513 bytes, at most 512 are allowed",
        );
        let joined = join_of(&v1::Join { topic: "t".into(), group: "g".into(), ..v1::Join::default() });
        assert_eq!(joined.unwrap_err().to_string(), "join.max_in_flight is 0, at least 1 is needed");
    }
}
