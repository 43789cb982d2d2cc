//! A frame as a record: a head of fixed length, two names, the facts of a dead letter, the payload as it came.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | version, 2 |
//! | 1 | content type: 1 batch, 2 JSON |
//! | 2 | encoding: 0 identity, 1 zstd |
//! | 3 | flags: 1 has a stamp, 2 is a dead letter, 4 has a trace |
//! | 4..8 | count of messages, u32 |
//! | 8..16 | offset in the topic, u64 |
//! | 16..24 | publish time, milliseconds since 1970, u64 |
//! | 24..32 | sequence of the stamp, u64; 0 without |
//! | 32 | length of the topic's name, u8 |
//! | 33 | length of the stamp's id, u8 |
//! | 34.. | topic, id; of a dead letter its origin's topic, group, offset, attempts, reason and publish time; of one with a trace
//! its `traceparent`; payload |
//!
//! Integers of the head are little-endian and of fixed length.

use std::sync::Arc;

use bytes::Bytes;

use super::bytes::{Malformed, Reader, put_number, put_text};
use crate::frame::{ContentType, DeadFacts, Encoding, Frame, Millis, ProducerStamp};

const VERSION: u8 = 2;
const HEAD_LEN: usize = 34;
const HAS_STAMP: u8 = 1;
const IS_DEAD: u8 = 2;
const HAS_TRACE: u8 = 4;

/// All of a frame's record but its payload, which follows.
pub(crate) fn encode_head(topic: &str, frame: &Frame, offset: u64, at: Millis) -> Vec<u8> {
    let stamp = frame.producer.as_ref();
    let id = stamp.map_or("", |stamp| &*stamp.id);
    // Longer names are refused before.
    let name_len = |name: &str| u8::try_from(name.len()).unwrap_or(u8::MAX);
    let content_type = match frame.content_type {
        ContentType::Batch => 1,
        ContentType::Json => 2,
    };
    let encoding = match frame.encoding {
        Encoding::Identity => 0,
        Encoding::Zstd => 1,
    };
    let is_dead = if frame.dead.is_some() { IS_DEAD } else { 0 };
    let has_stamp = if stamp.is_some() { HAS_STAMP } else { 0 };
    let has_trace = if frame.trace.is_some() { HAS_TRACE } else { 0 };
    let mut bytes = Vec::with_capacity(HEAD_LEN + topic.len() + id.len());
    bytes.extend_from_slice(&[VERSION, content_type, encoding, has_stamp | is_dead | has_trace]);
    bytes.extend_from_slice(&frame.count.to_le_bytes());
    for number in [offset, at.0, stamp.map_or(0, |stamp| stamp.sequence)] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&[name_len(topic), name_len(id)]);
    bytes.extend_from_slice(topic.as_bytes());
    bytes.extend_from_slice(id.as_bytes());
    if let Some(dead) = &frame.dead {
        put_dead(&mut bytes, dead);
    }
    if let Some(trace) = &frame.trace {
        put_text(&mut bytes, trace);
    }
    bytes
}

/// A frame's record, its names and payload still in the record's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FrameRecord<'a> {
    /// The topic's name.
    pub(super) topic: &'a str,
    /// The frame's offset there.
    pub(super) offset: u64,
    /// When it was published.
    pub(super) at: Millis,
    /// Who sent it, and as which of its frames.
    pub(super) stamp: Option<(&'a str, u64)>,
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
        let content_type = match reader.byte()? {
            1 => ContentType::Batch,
            2 => ContentType::Json,
            _ => return Err(Malformed::Content),
        };
        let encoding = match reader.byte()? {
            0 => Encoding::Identity,
            1 => Encoding::Zstd,
            _ => return Err(Malformed::Content),
        };
        let flags = reader.byte()?;
        let count = u32::from_le_bytes(reader.fixed()?);
        let offset = u64::from_le_bytes(reader.fixed()?);
        let at = Millis(u64::from_le_bytes(reader.fixed()?));
        let sequence = u64::from_le_bytes(reader.fixed()?);
        let (topic_len, id_len) = (usize::from(reader.byte()?), usize::from(reader.byte()?));
        let topic = reader.text_of(topic_len)?;
        let id = reader.text_of(id_len)?;
        if count == 0 || flags & !(HAS_STAMP | IS_DEAD | HAS_TRACE) != 0 {
            return Err(Malformed::Content);
        }
        let dead = if flags & IS_DEAD == 0 { None } else { Some(Box::new(dead(&mut reader)?)) };
        let trace = if flags & HAS_TRACE == 0 { None } else { Some(reader.text()?) };
        Ok(Self {
            topic,
            offset,
            at,
            stamp: (flags & HAS_STAMP != 0).then_some((id, sequence)),
            count,
            content_type,
            encoding,
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
    pub(super) fn frame(&self, bytes: &Bytes) -> Frame {
        Frame {
            content_type: self.content_type,
            encoding: self.encoding,
            count: self.count,
            dead: self.dead.clone(),
            trace: self.trace.clone(),
            producer: self.stamp.map(|(id, sequence)| ProducerStamp { id: id.into(), sequence }),
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
