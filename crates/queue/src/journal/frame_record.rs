//! A frame as a record: what it is, two names, the facts of a dead letter, the payload as it came.
//!
//! | field | |
//! |---|---|
//! | version | a byte, 3 |
//! | flags | a byte: 1 has a stamp, 2 is a dead letter, 4 has a trace, 8 is JSON and no batch, 16 is compressed with zstd |
//! | count of messages, offset in the topic, publish time in milliseconds since 1970 | numbers |
//! | topic | a text |
//! | stamp | if there is one: its sequence, a number, and its id: the number of bytes that its beginning is in hexadecimal digits, these bytes, the rest as a text |
//! | dead letter | if it is one: its origin's topic, group, offset, attempts, reason and publish time |
//! | trace | if there is one: `traceparent`, a text |
//! | payload | the rest |

use std::sync::Arc;

use bytes::Bytes;

use super::bytes::{Malformed, Reader, put_hex, put_number, put_text};
use crate::frame::{ContentType, DeadFacts, Encoding, Frame, Millis, ProducerStamp};

const VERSION: u8 = 3;
const HAS_STAMP: u8 = 1;
const IS_DEAD: u8 = 2;
const HAS_TRACE: u8 = 4;
const IS_JSON: u8 = 8;
const IS_ZSTD: u8 = 16;
const FLAGS: u8 = HAS_STAMP | IS_DEAD | HAS_TRACE | IS_JSON | IS_ZSTD;

/// Bytes of the head without its texts, at most.
const HEAD_LEN: usize = 48;

/// All of a frame's record but its payload, which follows.
pub(crate) fn encode_head(topic: &str, frame: &Frame, offset: u64, at: Millis) -> Vec<u8> {
    let id_len = frame.producer.as_ref().map_or(0, |stamp| stamp.id.len());
    let flags = [
        (HAS_STAMP, frame.producer.is_some()),
        (IS_DEAD, frame.dead.is_some()),
        (HAS_TRACE, frame.trace.is_some()),
        (IS_JSON, frame.content_type == ContentType::Json),
        (IS_ZSTD, frame.encoding == Encoding::Zstd),
    ];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set).fold(0, |flags, (flag, _)| flags | flag);
    let mut bytes = Vec::with_capacity(HEAD_LEN + topic.len() + id_len);
    bytes.extend_from_slice(&[VERSION, flags]);
    for number in [frame.count.into(), offset, at.0] {
        put_number(&mut bytes, number);
    }
    put_text(&mut bytes, topic);
    if let Some(stamp) = &frame.producer {
        put_number(&mut bytes, stamp.sequence);
        put_hex(&mut bytes, &stamp.id);
    }
    if let Some(dead) = &frame.dead {
        put_dead(&mut bytes, dead);
    }
    if let Some(trace) = &frame.trace {
        put_text(&mut bytes, trace);
    }
    bytes
}

/// A frame's record, its topic and payload still in the record's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FrameRecord<'a> {
    /// The topic's name.
    pub(super) topic: &'a str,
    /// The frame's offset there.
    pub(super) offset: u64,
    /// When it was published.
    pub(super) at: Millis,
    /// Who sent it, and as which of its frames.
    pub(super) stamp: Option<ProducerStamp>,
    /// Messages in it.
    pub(super) count: u32,
    content_type: ContentType,
    encoding: Encoding,
    dead: Option<Box<DeadFacts>>,
    trace: Option<Arc<str>>,
    payload_at: usize,
}

impl<'a> FrameRecord<'a> {
    /// Reads a record.
    ///
    /// # Errors
    ///
    /// If it is not of this version, or not what this version writes.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        reader.version(VERSION)?;
        let flags = reader.byte()?;
        let has = |flag: u8| flags & flag != 0;
        let (count, offset, at) = (reader.number_u32()?, reader.number()?, reader.millis()?);
        if count == 0 || flags & !FLAGS != 0 {
            return Err(Malformed::Content);
        }
        let topic_len = reader.len()?;
        let topic = reader.text_of(topic_len)?;
        let stamp = if has(HAS_STAMP) {
            let sequence = reader.number()?;
            Some(ProducerStamp { sequence, id: reader.hex()? })
        } else {
            None
        };
        let dead = if has(IS_DEAD) { Some(Box::new(dead(&mut reader)?)) } else { None };
        let trace = if has(HAS_TRACE) { Some(reader.text()?) } else { None };
        Ok(Self {
            topic,
            offset,
            at,
            stamp,
            count,
            content_type: if has(IS_JSON) { ContentType::Json } else { ContentType::Batch },
            encoding: if has(IS_ZSTD) { Encoding::Zstd } else { Encoding::Identity },
            dead,
            trace,
            payload_at: bytes.len() - reader.len_left(),
        })
    }

    /// What the frame counts against bounds, of a record of `len` bytes.
    pub(super) fn cost_bytes(&self, len: usize) -> u64 {
        Frame::cost_of(len.saturating_sub(self.payload_at), self.trace.as_deref(), self.dead.as_deref())
    }

    /// The frame, its payload sharing the memory of `bytes`, which this was read from.
    pub(super) fn frame(self, bytes: &Bytes) -> Frame {
        Frame {
            content_type: self.content_type,
            encoding: self.encoding,
            count: self.count,
            dead: self.dead,
            trace: self.trace,
            producer: self.stamp,
            payload: bytes.slice(self.payload_at.min(bytes.len())..),
        }
    }
}

fn put_dead(out: &mut Vec<u8>, dead: &DeadFacts) {
    put_text(out, &dead.topic);
    put_text(out, &dead.group);
    put_number(out, dead.offset);
    put_number(out, u64::from(dead.attempts));
    put_text(out, &dead.reason);
    put_number(out, dead.published_at.0);
}

fn dead(reader: &mut Reader<'_>) -> Result<DeadFacts, Malformed> {
    Ok(DeadFacts {
        topic: reader.text()?,
        group: reader.text()?,
        offset: reader.number()?,
        attempts: reader.number_u32()?,
        reason: reader.text()?,
        published_at: reader.millis()?,
    })
}
