//! A frame as a record: what it is, two names, the facts of a dead letter, the payload as it came.
//!
//! | field | |
//! |---|---|
//! | version | a byte, 3 |
//! | flags | a byte: 1 has a stamp, 2 is a dead letter, 4 has a trace, 8 is JSON and no batch, 16 is compressed with zstd, 32 refers to another record |
//! | reference | if it has one: where the header of a frame's record stands in this segment, and the length of its payload, two numbers |
//! | count of messages, offset in the topic, publish time in milliseconds since 1970 | numbers; with a reference the latter two are beyond those of that record |
//! | topic | without a reference: a text |
//! | stamp | if there is one: its sequence, a number; with a reference it is beyond that of the record. Without a reference its id: the number of bytes that its beginning is in hexadecimal digits, these bytes, the rest as a text |
//! | dead letter | if it is one: its origin's topic, group, offset, attempts, reason and publish time |
//! | trace | if there is one: `traceparent`, a text |
//! | payload | the rest |
//!
//! A record with a reference has the topic and the id of the one that it refers to, which has none. So the frames that a
//! producer sends one after the other have their names once in a while and not each time.

use std::sync::Arc;

use bytes::Bytes;
use gpuvitals_log::Place;

use super::bytes::{Malformed, Reader, put_hex, put_number, put_text};
use crate::frame::{ContentType, DeadFacts, Encoding, Frame, Millis, ProducerStamp};

const VERSION: u8 = 3;
const HAS_STAMP: u8 = 1;
const IS_DEAD: u8 = 2;
const HAS_TRACE: u8 = 4;
const IS_JSON: u8 = 8;
const IS_ZSTD: u8 = 16;
const REFERS: u8 = 32;
const FLAGS: u8 = HAS_STAMP | IS_DEAD | HAS_TRACE | IS_JSON | IS_ZSTD | REFERS;

/// Bytes of the head without its texts, at most.
const HEAD_LEN: usize = 48;

/// What a record has that others may refer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Defined<T = Arc<str>> {
    pub(crate) topic: T,
    /// The frame's offset there.
    pub(crate) offset: u64,
    /// When it was published.
    pub(crate) at: Millis,
    /// The producer, and the number of this frame among its own.
    pub(crate) stamp: Option<ProducerStamp>,
}

/// All of a frame's record but its payload, which follows.
pub(crate) fn encode_head(topic: &str, frame: &Frame, offset: u64, at: Millis) -> Vec<u8> {
    let id_len = frame.producer.as_ref().map_or(0, |stamp| stamp.id.len());
    let mut bytes = Vec::with_capacity(HEAD_LEN + topic.len() + id_len);
    bytes.extend_from_slice(&[VERSION, flags(frame)]);
    for number in [frame.count.into(), offset, at.0] {
        put_number(&mut bytes, number);
    }
    put_text(&mut bytes, topic);
    if let Some(stamp) = &frame.producer {
        put_number(&mut bytes, stamp.sequence);
        put_hex(&mut bytes, &stamp.id);
    }
    put_rest(&mut bytes, frame);
    bytes
}

/// The same with a reference to the record at `place`, which has the same topic and id. None if the frame is before that one.
pub(super) fn encode_reference<T>(
    frame: &Frame,
    offset: u64,
    at: Millis,
    (place, defined): (Place, &Defined<T>),
) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(HEAD_LEN);
    bytes.extend_from_slice(&[VERSION, flags(frame) | REFERS]);
    put_number(&mut bytes, place.offset());
    put_number(&mut bytes, u64::try_from(place.payload_len()).ok()?);
    put_number(&mut bytes, frame.count.into());
    put_number(&mut bytes, offset.checked_sub(defined.offset)?);
    put_number(&mut bytes, at.0.checked_sub(defined.at.0)?);
    if let Some(stamp) = &frame.producer {
        put_number(&mut bytes, stamp.sequence.checked_sub(defined.stamp.as_ref()?.sequence)?);
    }
    put_rest(&mut bytes, frame);
    Some(bytes)
}

fn flags(frame: &Frame) -> u8 {
    let flags = [
        (HAS_STAMP, frame.producer.is_some()),
        (IS_DEAD, frame.dead.is_some()),
        (HAS_TRACE, frame.trace.is_some()),
        (IS_JSON, frame.content_type == ContentType::Json),
        (IS_ZSTD, frame.encoding == Encoding::Zstd),
    ];
    flags.into_iter().filter(|(_, is_set)| *is_set).fold(0, |flags, (flag, _)| flags | flag)
}

fn put_rest(bytes: &mut Vec<u8>, frame: &Frame) {
    if let Some(dead) = &frame.dead {
        put_dead(bytes, dead);
    }
    if let Some(trace) = &frame.trace {
        put_text(bytes, trace);
    }
}

/// A frame's record, its payload still in the record's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FrameRecord<'a> {
    /// Its names and numbers.
    pub(super) defined: Defined<&'a str>,
    /// Messages in it.
    pub(super) count: u32,
    content_type: ContentType,
    encoding: Encoding,
    dead: Option<Box<DeadFacts>>,
    trace: Option<Arc<str>>,
    payload_at: usize,
}

impl<'a> FrameRecord<'a> {
    /// The record that this one refers to: where it stands in the segment, and its length. None if it has its own names.
    ///
    /// # Errors
    ///
    /// If it is not of this version, or not what this version writes.
    pub(super) fn refers_to(bytes: &[u8]) -> Result<Option<(u32, u32)>, Malformed> {
        let mut reader = Reader::new(bytes);
        reader.version(VERSION)?;
        let refers = reader.byte()? & REFERS != 0;
        Ok(if refers { Some((reader.number_u32()?, reader.number_u32()?)) } else { None })
    }

    /// Reads a record. `of` is what the record defines to which it refers, if it refers to one.
    ///
    /// # Errors
    ///
    /// If it is not of this version, or not what this version writes.
    pub(super) fn decode(bytes: &'a [u8], of: Option<&'a Defined>) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        reader.version(VERSION)?;
        let flags = reader.byte()?;
        let has = |flag: u8| flags & flag != 0;
        if has(REFERS) {
            let _place = (reader.number_u32()?, reader.number_u32()?);
        }
        let of = of.filter(|_| has(REFERS));
        let (count, offset, at) = (reader.number_u32()?, reader.number()?, reader.number()?);
        if count == 0 || flags & !FLAGS != 0 || has(REFERS) != of.is_some() {
            return Err(Malformed::Content);
        }
        let beyond = |number: u64, base: Option<u64>| {
            number.checked_add(base.unwrap_or_default()).ok_or(Malformed::Content)
        };
        let topic = if let Some(of) = of {
            &*of.topic
        } else {
            let len = reader.len()?;
            reader.text_of(len)?
        };
        let stamp = match (has(HAS_STAMP), of) {
            (false, _) => None,
            (true, None) => {
                let sequence = reader.number()?;
                Some(ProducerStamp { sequence, id: reader.hex()? })
            }
            (true, Some(of)) => {
                let base = of.stamp.as_ref().ok_or(Malformed::Content)?;
                let sequence = beyond(reader.number()?, Some(base.sequence))?;
                Some(ProducerStamp { sequence, id: Arc::clone(&base.id) })
            }
        };
        let (offset, at) =
            (beyond(offset, of.map(|of| of.offset))?, Millis(beyond(at, of.map(|of| of.at.0))?));
        let dead = if has(IS_DEAD) { Some(Box::new(dead(&mut reader)?)) } else { None };
        let trace = if has(HAS_TRACE) { Some(reader.text()?) } else { None };
        Ok(Self {
            defined: Defined { topic, offset, at, stamp },
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
            producer: self.defined.stamp,
            payload: bytes.slice(self.payload_at.min(bytes.len())..),
        }
    }
}

impl Defined<&str> {
    /// The same, for longer than the record's bytes.
    pub(super) fn kept(&self) -> Defined {
        Defined { topic: self.topic.into(), offset: self.offset, at: self.at, stamp: self.stamp.clone() }
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
