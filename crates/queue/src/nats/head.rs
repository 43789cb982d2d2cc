//! The head of a frame as headers of a NATS message. The payload is the message's body as it is.
//!
//! | header | meaning |
//! |---|---|
//! | `Content-Type` | `application/vnd.gpuvitals.batch`, or `application/json`, which is also what its absence means |
//! | `Content-Encoding` | `zstd`, where the payload is compressed |
//! | `Gpuvitals-Count` | messages (rows) in the payload |
//! | `Gpuvitals-Producer`, `Gpuvitals-Sequence` | the producer's stamp |
//! | `Gpuvitals-Group`, `-Attempts`, `-Offset`, `-Published` | see [`Remnant`] |
//! | `Gpuvitals-Due` | not before this time (ms since 1970) |
//! | `Gpuvitals-Failure`, `Gpuvitals-Reason`, `Gpuvitals-Died` | a dead letter: what kind of failure, its text, when |
//!
//! Texts of others (ids, reasons) are percent-encoded, so that no line break gets into a header. A message
//! without any of these is a foreign publisher's JSON: one message, or an array of them.

use std::fmt::Write;
use std::sync::Arc;

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::broker::Failure;
use crate::frame::{ContentType, Encoding, Frame, Millis};

const CONTENT_TYPE: &str = "Content-Type";
const CONTENT_ENCODING: &str = "Content-Encoding";
const BATCH: &str = "application/vnd.gpuvitals.batch";
const JSON: &str = "application/json";
const ZSTD: &str = "zstd";
const COUNT: &str = "Gpuvitals-Count";
const PRODUCER: &str = "Gpuvitals-Producer";
const SEQUENCE: &str = "Gpuvitals-Sequence";
const GROUP: &str = "Gpuvitals-Group";
const ATTEMPTS: &str = "Gpuvitals-Attempts";
const OFFSET: &str = "Gpuvitals-Offset";
const PUBLISHED: &str = "Gpuvitals-Published";
const DUE: &str = "Gpuvitals-Due";
const FAILURE: &str = "Gpuvitals-Failure";
const REASON: &str = "Gpuvitals-Reason";
const DIED: &str = "Gpuvitals-Died";

/// What a message's headers may grow by between its first publish and the dead letters, bytes: the largest frame is so
/// much smaller than the server's largest message.
pub(super) const GROWTH_LEN_MAX: usize = 12 << 10;

/// Longest reason that is kept, bytes.
const REASON_LEN_MAX: usize = 512;

/// Headers that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    /// A header that has no such value.
    #[error("header {name}: {text:?} is not {wanted}")]
    Header { name: &'static str, text: String, wanted: &'static str },
    /// A header that belongs to another one.
    #[error("header {0} is missing")]
    Missing(&'static str),
}

/// A frame that one group still has to do with: published anew for it alone, or its dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remnant {
    /// The group.
    pub(super) group: Arc<str>,
    /// How often it was tried before.
    pub(super) attempts: u32,
    /// Place of the frame in the stream when it was published first.
    pub(super) offset: u64,
    /// When that was.
    pub(super) published_at: Millis,
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
        headers.insert(PRODUCER, escaped(&stamp.id));
        headers.insert(SEQUENCE, stamp.sequence.to_string());
    }
    headers
}

/// What a repeat of this frame is recognised by.
pub(super) fn message_id(frame: &Frame) -> Option<String> {
    frame.producer.as_ref().map(|stamp| format!("{}-{}", escaped(&stamp.id), stamp.sequence))
}

/// Headers of a frame that is published anew for one group, not to be delivered before `due`.
pub(super) fn of_again(frame: &Frame, remnant: &Remnant, due: Millis) -> HeaderMap {
    let mut headers = of_remnant(frame, remnant);
    headers.insert(DUE, due.0.to_string());
    headers
}

/// Headers of a dead letter.
pub(super) fn of_dead(frame: &Frame, remnant: &Remnant, reason: &Failure, died_at: Millis) -> HeaderMap {
    let mut headers = of_remnant(frame, remnant);
    let (kind, text) = match reason {
        Failure::AckTimeout => ("ack-timeout", ""),
        Failure::ConsumerGone => ("consumer-gone", ""),
        Failure::Released => ("released", ""),
        Failure::Refused(text) => ("refused", &**text),
        Failure::Rejected(text) => ("rejected", &**text),
    };
    headers.insert(FAILURE, kind);
    let end = text.floor_char_boundary(REASON_LEN_MAX);
    headers.insert(REASON, escaped(text.get(..end).unwrap_or_default()));
    headers.insert(DIED, died_at.0.to_string());
    headers
}

fn of_remnant(frame: &Frame, remnant: &Remnant) -> HeaderMap {
    let mut headers = of_frame(frame);
    headers.insert(GROUP, &*remnant.group);
    headers.insert(ATTEMPTS, remnant.attempts.to_string());
    headers.insert(OFFSET, remnant.offset.to_string());
    headers.insert(PUBLISHED, remnant.published_at.0.to_string());
    headers
}

/// The frame of a message.
pub(super) fn frame(headers: Option<&HeaderMap>, payload: &Bytes) -> Result<Frame, Unreadable> {
    let head = Head(headers);
    let content_type = match head.text(CONTENT_TYPE).map(|text| text.split(';').next().unwrap_or(text).trim())
    {
        None | Some(JSON) => ContentType::Json,
        Some(BATCH) => ContentType::Batch,
        Some(other) => {
            return Err(unreadable(
                CONTENT_TYPE,
                other,
                "application/json or application/vnd.gpuvitals.batch",
            ));
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
    if let Some(id) = head.unescaped(PRODUCER)? {
        frame = frame.stamped(id, head.number(SEQUENCE)?.ok_or(Unreadable::Missing(SEQUENCE))?);
    }
    Ok(frame)
}

/// Whom a message is for, if not everybody; and when.
pub(super) fn again(headers: Option<&HeaderMap>) -> Result<Option<(Remnant, Millis)>, Unreadable> {
    let head = Head(headers);
    let Some(remnant) = remnant(&head)? else { return Ok(None) };
    Ok(Some((remnant, Millis(head.number(DUE)?.unwrap_or_default()))))
}

/// What a dead letter tells beside its frame.
pub(super) fn dead(headers: Option<&HeaderMap>) -> Result<(Remnant, Failure, Millis), Unreadable> {
    let head = Head(headers);
    let remnant = remnant(&head)?.ok_or(Unreadable::Missing(GROUP))?;
    let text = head.unescaped(REASON)?.unwrap_or_default();
    let reason = match head.text(FAILURE).ok_or(Unreadable::Missing(FAILURE))? {
        "ack-timeout" => Failure::AckTimeout,
        "consumer-gone" => Failure::ConsumerGone,
        "released" => Failure::Released,
        "refused" => Failure::Refused(text),
        "rejected" => Failure::Rejected(text),
        other => return Err(unreadable(FAILURE, other, "a known kind of failure")),
    };
    Ok((remnant, reason, Millis(head.number(DIED)?.unwrap_or_default())))
}

fn remnant(head: &Head<'_>) -> Result<Option<Remnant>, Unreadable> {
    let Some(group) = head.text(GROUP) else { return Ok(None) };
    Ok(Some(Remnant {
        group: group.into(),
        attempts: head.number(ATTEMPTS)?.ok_or(Unreadable::Missing(ATTEMPTS))?,
        offset: head.number(OFFSET)?.ok_or(Unreadable::Missing(OFFSET))?,
        published_at: Millis(head.number(PUBLISHED)?.ok_or(Unreadable::Missing(PUBLISHED))?),
    }))
}

/// Messages in a payload that does not say how many: the elements of a JSON array, otherwise one.
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

    fn unescaped(&self, name: &'static str) -> Result<Option<Arc<str>>, Unreadable> {
        let Some(text) = self.text(name) else { return Ok(None) };
        unescaped(text)
            .map(|text| Some(text.into()))
            .ok_or_else(|| unreadable(name, text, "percent-encoded text"))
    }
}

fn unreadable(name: &'static str, text: &str, wanted: &'static str) -> Unreadable {
    Unreadable::Header { name, text: text.chars().take(64).collect(), wanted }
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && byte != b'%' {
            escaped.push(char::from(byte));
        } else {
            let written = write!(escaped, "%{byte:02X}");
            debug_assert!(written.is_ok(), "a string takes every text");
        }
    }
    escaped
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let (hex, after) = after.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?);
            rest = after;
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let stamp = proptest::option::of((".{1,40}", any::<u64>()));
        (any::<bool>(), any::<bool>(), 1_u32.., stamp).prop_map(|(batch, zstd, count, stamp)| {
            let content_type = if batch { ContentType::Batch } else { ContentType::Json };
            let mut frame = Frame::new(content_type, count, "payload");
            frame.encoding = if zstd { Encoding::Zstd } else { Encoding::Identity };
            match stamp {
                Some((id, sequence)) => frame.stamped(id, sequence),
                None => frame,
            }
        })
    }

    fn remnants() -> impl Strategy<Value = Remnant> {
        ("[a-zA-Z0-9._-]{1,20}", any::<u32>(), any::<u64>(), any::<u64>()).prop_map(
            |(group, attempts, offset, published)| {
                let published_at = Millis(published);
                Remnant { group: group.into(), attempts, offset, published_at }
            },
        )
    }

    proptest! {
        #[test]
        fn a_frame_comes_back_as_it_went(wanted in frames()) {
            let headers = of_frame(&wanted);
            prop_assert_eq!(frame(Some(&headers), &wanted.payload), Ok(wanted));
        }

        #[test]
        fn what_is_for_one_group_comes_back_as_it_went(wanted in remnants(), due in any::<u64>(), text in ".{0,600}") {
            let frame = Frame::new(ContentType::Json, 1, "[]");
            let headers = of_again(&frame, &wanted, Millis(due));
            prop_assert_eq!(again(Some(&headers)), Ok(Some((wanted.clone(), Millis(due)))));
            let headers = of_dead(&frame, &wanted, &Failure::Rejected(text.as_str().into()), Millis(due));
            let (remnant, reason, died_at) = dead(Some(&headers)).unwrap();
            prop_assert_eq!((remnant, died_at), (wanted, Millis(due)));
            let Failure::Rejected(kept) = reason else { panic!("{reason:?}") };
            prop_assert!(text.starts_with(&*kept) && (kept.len() > 508 || kept.len() == text.len()));
        }

        #[test]
        fn foreign_headers_are_read_or_refused(name in 0..8_usize, value in "[ -~]{0,30}") {
            let names = [CONTENT_TYPE, CONTENT_ENCODING, COUNT, PRODUCER, SEQUENCE, GROUP, DUE, ATTEMPTS];
            let mut headers = HeaderMap::new();
            headers.insert(names[name], value);
            if let Ok(frame) = frame(Some(&headers), &Bytes::from_static(b"{}")) {
                prop_assert!(frame.count >= 1);
                prop_assert!(again(Some(&headers)).map_or(true, |again| again.is_none()));
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
    fn headers_that_cannot_be_are_named() {
        let read = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value);
            frame(Some(&headers), &Bytes::new()).unwrap_err().to_string()
        };
        assert_eq!(read(COUNT, "0"), "header Gpuvitals-Count: \"0\" is not at least 1");
        assert_eq!(read(COUNT, "many"), "header Gpuvitals-Count: \"many\" is not a number that fits");
        assert_eq!(read(CONTENT_ENCODING, "gzip"), "header Content-Encoding: \"gzip\" is not zstd");
        assert_eq!(read(PRODUCER, "me"), "header Gpuvitals-Sequence is missing");
        assert!(read(CONTENT_TYPE, "text/plain").starts_with("header Content-Type: \"text/plain\" is not"));
    }
}
