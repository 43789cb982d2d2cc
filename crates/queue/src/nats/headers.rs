//! The head of a frame as headers of a NATS message. The payload is the message's body as it is.
//!
//! | header | meaning |
//! |---|---|
//! | `Content-Type` | `application/vnd.gpuvitals.batch`, or `application/json`, the default |
//! | `Content-Encoding` | `zstd` if the payload is compressed |
//! | `Gpuvitals-Count` | messages (rows) in the payload |
//! | `Gpuvitals-Producer`, `Gpuvitals-Sequence` | the producer's stamp; the id as a JSON string |
//! | `traceparent` | W3C trace context of the span that published it; one of another length is left out |
//! | `Gpuvitals-Dead` | of a dead letter: origin and reason, as a JSON object |
//!
//! JSON keeps line breaks out of headers. A message without any of these headers is JSON: one message, or an array of
//! them.

use std::borrow::Cow;
use std::sync::Arc;

use async_nats::HeaderMap;
use bytes::Bytes;
use gpuvitals_listener::trace::TRACEPARENT_LEN;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::frame::{ContentType, DeadFacts, Encoding, Frame, Millis, ProducerStamp};
use crate::server::headers::{BATCH, JSON};

const CONTENT_TYPE: &str = "Content-Type";
const CONTENT_ENCODING: &str = "Content-Encoding";
const ZSTD: &str = "zstd";
const COUNT: &str = "Gpuvitals-Count";
const PRODUCER: &str = "Gpuvitals-Producer";
const SEQUENCE: &str = "Gpuvitals-Sequence";
const TRACE: &str = "traceparent";
const DEAD: &str = "Gpuvitals-Dead";

/// Bytes that a message's headers can take as a dead letter. The largest frame is that much smaller than the server's
/// largest message, so that every frame can become a dead letter.
pub(super) const LEN_MAX: usize = 6 << 10;

/// A header that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("header {name}: {text:?} is not {wanted}")]
pub(super) struct Unreadable {
    name: &'static str,
    text: String,
    wanted: &'static str,
}

/// The headers of a frame.
pub(super) fn of_frame(frame: &Frame) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let content_type = match frame.content_type {
        ContentType::Batch => BATCH,
        ContentType::Json => JSON,
    };
    headers.insert(CONTENT_TYPE, content_type);
    if frame.encoding == Encoding::Zstd {
        headers.insert(CONTENT_ENCODING, ZSTD);
    }
    headers.insert(COUNT, frame.count.to_string());
    if let Some(stamp) = &frame.producer {
        headers.insert(PRODUCER, quoted(&stamp.id));
        headers.insert(SEQUENCE, stamp.sequence.to_string());
    }
    if let Some(trace) = &frame.trace {
        headers.insert(TRACE, &**trace);
    }
    if let Some(dead) = &frame.dead {
        headers.insert(DEAD, dead_text(dead));
    }
    headers
}

/// The `Nats-Msg-Id` of a producer's frame: repeats carry the same one.
pub(super) fn message_id(stamp: &ProducerStamp) -> String {
    format!("{}-{}", quoted(&stamp.id), stamp.sequence)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The frame of a message.
pub(super) fn frame(headers: Option<&HeaderMap>, payload: &Bytes) -> Result<Frame, Unreadable> {
    let head = Head(headers);
    let content_type = match head.text(CONTENT_TYPE).map(|text| text.split(';').next().unwrap_or(text).trim())
    {
        None | Some(JSON) => ContentType::Json,
        Some(BATCH) => ContentType::Batch,
        Some(other) => {
            let wanted = "application/json or application/vnd.gpuvitals.batch";
            return Err(unreadable(CONTENT_TYPE, other, wanted));
        }
    };
    let encoding = match head.text(CONTENT_ENCODING) {
        None | Some("" | "identity") => Encoding::Identity,
        Some(ZSTD) => Encoding::Zstd,
        Some(other) => return Err(unreadable(CONTENT_ENCODING, other, "zstd")),
    };
    let count = match head.number::<u32>(COUNT)? {
        Some(0) => return Err(unreadable(COUNT, "0", "at least 1")),
        Some(count) => count,
        None => foreign_count(payload),
    };
    let mut frame = Frame::new(content_type, count, payload.clone()).encoded(encoding);
    if let Some(text) = head.text(PRODUCER) {
        let id: String =
            serde_json::from_str(text).map_err(|_| unreadable(PRODUCER, text, "a JSON string"))?;
        let sequence = head.number(SEQUENCE)?;
        frame = frame.stamped(id, sequence.ok_or_else(|| unreadable(SEQUENCE, "", "a number"))?);
    }
    frame.trace = head.text(TRACE).filter(|text| text.len() == TRACEPARENT_LEN).map(Arc::from);
    if let Some(text) = head.text(DEAD) {
        let dead =
            dead_of(text.as_bytes()).map_err(|_| unreadable(DEAD, text, "the facts of a dead letter"))?;
        frame.dead = Some(Box::new(dead));
    }
    Ok(frame)
}

/// Messages in a payload without a count: the elements of a JSON array, otherwise one.
fn foreign_count(payload: &Bytes) -> u32 {
    let elements = serde_json::from_slice::<Vec<IgnoredAny>>(payload).map_or(1, |elements| elements.len());
    u32::try_from(elements).unwrap_or(u32::MAX).max(1)
}

struct Head<'a>(Option<&'a HeaderMap>);

impl<'a> Head<'a> {
    fn text(&self, name: &'static str) -> Option<&'a str> {
        self.0?.get(name).map(async_nats::HeaderValue::as_str)
    }

    fn number<T: std::str::FromStr>(&self, name: &'static str) -> Result<Option<T>, Unreadable> {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| unreadable(name, text, "a number that fits"))
    }
}

fn unreadable(name: &'static str, text: &str, wanted: &'static str) -> Unreadable {
    Unreadable { name, text: text.chars().take(64).collect(), wanted }
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct DeadFactsHeader<'a> {
    topic: Cow<'a, str>,
    group: Cow<'a, str>,
    offset: u64,
    attempts: u32,
    reason: Cow<'a, str>,
    published_at_ms: u64,
}

/// The facts of a dead letter as a header's value.
fn dead_text(dead: &DeadFacts) -> String {
    let facts = DeadFactsHeader {
        topic: (*dead.topic).into(),
        group: (*dead.group).into(),
        offset: dead.offset,
        attempts: dead.attempts,
        reason: (*dead.reason).into(),
        published_at_ms: dead.published_at.0,
    };
    // Texts and numbers can always be written.
    serde_json::to_string(&facts).unwrap_or_default()
}

/// The facts in a header's value.
fn dead_of(text: &[u8]) -> serde_json::Result<DeadFacts> {
    let facts: DeadFactsHeader<'_> = serde_json::from_slice(text)?;
    Ok(DeadFacts {
        topic: facts.topic.into(),
        group: facts.group.into(),
        offset: facts.offset,
        attempts: facts.attempts,
        reason: DeadFacts::shortened(&facts.reason),
        published_at: Millis(facts.published_at_ms),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn facts() -> impl Strategy<Value = DeadFacts> {
        let texts = (".{1,20}", ".{0,20}", ".{0,200}");
        (texts, any::<u64>(), any::<u32>(), any::<u64>()).prop_map(|(texts, offset, attempts, published)| {
            let (topic, group, reason) = (texts.0.into(), texts.1.into(), DeadFacts::shortened(&texts.2));
            DeadFacts { topic, group, offset, attempts, reason, published_at: Millis(published) }
        })
    }

    fn frames() -> impl Strategy<Value = Frame> {
        let stamp = proptest::option::of((".{1,40}", any::<u64>()));
        let trace = proptest::option::of("00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]");
        (any::<bool>(), any::<bool>(), 1_u32.., proptest::option::of(facts()), stamp, trace).prop_map(
            |(batch, zstd, count, dead, stamp, trace)| {
                let content_type = if batch { ContentType::Batch } else { ContentType::Json };
                let mut frame = Frame::new(content_type, count, "payload");
                frame.encoding = if zstd { Encoding::Zstd } else { Encoding::Identity };
                frame.dead = dead.map(Box::new);
                frame.trace = trace.map(Arc::from);
                match stamp {
                    Some((id, sequence)) => frame.stamped(id, sequence),
                    None => frame,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn a_frame_survives_its_headers(wanted in frames()) {
            let headers = of_frame(&wanted);
            prop_assert_eq!(frame(Some(&headers), &wanted.payload), Ok(wanted));
        }

        #[test]
        fn foreign_headers_are_read_or_refused(name in 0..7_usize, value in "[ -~]{0,30}") {
            let names = [CONTENT_TYPE, CONTENT_ENCODING, COUNT, PRODUCER, SEQUENCE, TRACE, DEAD];
            let mut headers = HeaderMap::new();
            headers.insert(names[name], value);
            if let Ok(frame) = frame(Some(&headers), &Bytes::from_static(b"{}")) {
                prop_assert!(frame.count >= 1);
            }
        }
    }

    #[test]
    fn a_message_without_headers_is_json() {
        for (payload, count) in [("{\"fields\":{}}", 1), ("[{},{},{}]", 3), ("[]", 1), ("not json", 1)] {
            let read = frame(None, &Bytes::from_static(payload.as_bytes())).unwrap();
            assert_eq!((read.content_type, read.count), (ContentType::Json, count), "{payload}");
        }
    }

    #[test]
    fn unreadable_headers_are_named() {
        let read = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value);
            frame(Some(&headers), &Bytes::new()).unwrap_err().to_string()
        };
        assert_eq!(read(COUNT, "0"), "header Gpuvitals-Count: \"0\" is not at least 1");
        assert_eq!(read(COUNT, "many"), "header Gpuvitals-Count: \"many\" is not a number that fits");
        assert_eq!(read(CONTENT_ENCODING, "gzip"), "header Content-Encoding: \"gzip\" is not zstd");
        assert_eq!(read(PRODUCER, "me"), "header Gpuvitals-Producer: \"me\" is not a JSON string");
        assert_eq!(read(PRODUCER, "\"me\""), "header Gpuvitals-Sequence: \"\" is not a number");
        assert_eq!(read(DEAD, "{}"), "header Gpuvitals-Dead: \"{}\" is not the facts of a dead letter");
        assert!(read(CONTENT_TYPE, "text/plain").starts_with("header Content-Type: \"text/plain\" is not"));
    }

    #[test]
    fn the_longest_headers_stay_within_their_bound() {
        let longest: Arc<str> = "\u{1}".repeat(128).into();
        let dead = DeadFacts {
            topic: "t".repeat(128).into(),
            group: "g".repeat(128).into(),
            offset: u64::MAX,
            attempts: u32::MAX,
            reason: DeadFacts::shortened(&"\u{1}".repeat(600)),
            published_at: Millis(u64::MAX),
        };
        let mut frame =
            Frame::new(ContentType::Batch, u32::MAX, "").encoded(Encoding::Zstd).stamped(longest, u64::MAX);
        frame.dead = Some(Box::new(dead));
        let headers = of_frame(&frame);
        let len: usize =
            headers.iter().map(|(name, values)| name.to_string().len() + values[0].as_str().len() + 4).sum();
        let id_len = message_id(frame.producer.as_ref().unwrap()).len();
        assert!(len + id_len + 64 < LEN_MAX, "{len} {id_len}");
    }
}
