//! A frame as a record: a head of fixed length, three names, the payload as it came.
//!
//! | bytes | field |
//! |---|---|
//! | 0 | version, 1 |
//! | 1 | content type: 1 batch, 2 JSON |
//! | 2 | encoding: 0 identity, 1 zstd |
//! | 3 | flags: 1 has a key, 2 has a stamp |
//! | 4..8 | count of messages, u32 |
//! | 8..16 | offset in the topic, u64 |
//! | 16..24 | publish time, milliseconds since 1970, u64 |
//! | 24..32 | sequence of the stamp, u64; 0 without |
//! | 32..36 | length of the key, u32 |
//! | 36 | length of the topic's name, u8 |
//! | 37 | length of the stamp's id, u8 |
//! | 38.. | topic, id, key, payload |
//!
//! Integers of the head are little-endian and of fixed length, so that offset and time can be set last.

use std::sync::Arc;

use bytes::Bytes;

use super::bytes::{Malformed, Reader};
use crate::frame::{ContentType, Encoding, Frame, Millis, ProducerStamp};
use crate::name::NAME_LEN_MAX;

const VERSION: u8 = 1;
const HEAD_LEN: usize = 38;
const OFFSET_AT: usize = 8;
const TIME_AT: usize = 16;
const HAS_KEY: u8 = 1;
const HAS_STAMP: u8 = 2;

/// A frame's record in the making.
#[derive(Debug)]
pub(crate) struct Draft {
    bytes: Vec<u8>,
    payload_at: usize,
}

impl Draft {
    /// All of a frame's record but its offset and time. `None` for what no topic would take: a name that is too long.
    pub(crate) fn new(topic: &str, frame: &Frame) -> Option<Self> {
        let stamp = frame.producer.as_ref();
        let (id, key) = (stamp.map_or("", |stamp| &*stamp.id), frame.key.as_deref().unwrap_or(""));
        let name_len = |name: &str| u8::try_from(name.len()).ok().filter(|_| name.len() <= NAME_LEN_MAX);
        let (topic_len, id_len) = (name_len(topic)?, name_len(id)?);
        let key_len = u32::try_from(key.len()).ok()?;
        let payload_at = HEAD_LEN + topic.len() + id.len() + key.len();
        let mut bytes = Vec::with_capacity(payload_at + frame.payload.len());
        let content_type = match frame.content_type {
            ContentType::Batch => 1,
            ContentType::Json => 2,
        };
        let encoding = match frame.encoding {
            Encoding::Identity => 0,
            Encoding::Zstd => 1,
        };
        let has_key = if frame.key.is_some() { HAS_KEY } else { 0 };
        let has_stamp = if stamp.is_some() { HAS_STAMP } else { 0 };
        bytes.extend_from_slice(&[VERSION, content_type, encoding, has_key | has_stamp]);
        bytes.extend_from_slice(&frame.count.to_le_bytes());
        bytes.extend_from_slice(&[0; 16]);
        bytes.extend_from_slice(&stamp.map_or(0, |stamp| stamp.sequence).to_le_bytes());
        bytes.extend_from_slice(&key_len.to_le_bytes());
        bytes.extend_from_slice(&[topic_len, id_len]);
        for name in [topic, id, key] {
            bytes.extend_from_slice(name.as_bytes());
        }
        bytes.extend_from_slice(&frame.payload);
        Some(Self { bytes, payload_at })
    }

    /// The record, and the payload as a part of it.
    pub(crate) fn finish(mut self, offset: u64, at: Millis) -> (Bytes, Bytes) {
        for (start, number) in [(OFFSET_AT, offset), (TIME_AT, at.0)] {
            if let Some(field) = self.bytes.get_mut(start..start + 8) {
                field.copy_from_slice(&number.to_le_bytes());
            }
        }
        let record = Bytes::from(self.bytes);
        let payload = record.slice(self.payload_at..);
        (record, payload)
    }
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
    key: Option<&'a str>,
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
        let key_len = usize::try_from(u32::from_le_bytes(reader.fixed()?)).unwrap_or(usize::MAX);
        let (topic_len, id_len) = (usize::from(reader.byte()?), usize::from(reader.byte()?));
        let topic = reader.text_of(topic_len)?;
        let id = reader.text_of(id_len)?;
        let key = reader.text_of(key_len)?;
        if count == 0 || flags & !(HAS_KEY | HAS_STAMP) != 0 {
            return Err(Malformed::Content);
        }
        Ok(Self {
            topic,
            offset,
            at,
            stamp: (flags & HAS_STAMP != 0).then_some((id, sequence)),
            count,
            content_type,
            encoding,
            key: (flags & HAS_KEY != 0).then_some(key),
            payload_at: HEAD_LEN + topic_len + id_len + key_len,
        })
    }

    /// What the frame counts against bounds, of a record of `len` bytes.
    pub(super) fn cost_bytes(&self, len: usize) -> u64 {
        let payload = len.saturating_sub(self.payload_at);
        let key = self.key.map_or(0, str::len);
        Frame::OVERHEAD_BYTES.saturating_add(u64::try_from(payload + key).unwrap_or(u64::MAX))
    }

    /// The frame, its payload sharing the memory of `bytes`, which this was read from.
    pub(super) fn frame(&self, bytes: &Bytes) -> Frame {
        Frame {
            content_type: self.content_type,
            encoding: self.encoding,
            count: self.count,
            key: self.key.map(Arc::from),
            producer: self.stamp.map(|(id, sequence)| ProducerStamp { id: id.into(), sequence }),
            payload: bytes.slice(self.payload_at.min(bytes.len())..),
        }
    }
}
