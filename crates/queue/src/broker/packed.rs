//! A small frame as bytes in a block of many: a head of fixed length, its trace, its payload.

use std::sync::Arc;

use bytes::Bytes;

use crate::frame::{ContentType, Encoding, Frame, ProducerStamp};

/// Longest payload that is packed. A longer one keeps the memory that it came in.
const PAYLOAD_LEN_MAX: usize = 4 << 10;
const TRACE_LEN_MAX: usize = 255;
/// Flags, number of the id, sequence, length of the trace, length of the payload.
const HEAD_LEN: usize = 13;

const IS_JSON: u8 = 1;
const IS_ZSTD: u8 = 2;
const HAS_STAMP: u8 = 4;

/// Whether a frame can be packed.
pub(super) fn fits(frame: &Frame) -> bool {
    let trace_fits = frame.trace.as_ref().is_none_or(|trace| (1..=TRACE_LEN_MAX).contains(&trace.len()));
    frame.dead.is_none() && trace_fits && frame.payload.len() <= PAYLOAD_LEN_MAX
}

/// Appends a frame that fits. The id of its stamp is kept elsewhere, under a number.
pub(super) fn pack(out: &mut Vec<u8>, frame: &Frame, id: u8) {
    let trace = frame.trace.as_deref().unwrap_or_default();
    let is_json = if frame.content_type == ContentType::Json { IS_JSON } else { 0 };
    let is_zstd = if frame.encoding == Encoding::Zstd { IS_ZSTD } else { 0 };
    let has_stamp = if frame.producer.is_some() { HAS_STAMP } else { 0 };
    let sequence = frame.producer.as_ref().map_or(0, |stamp| stamp.sequence);
    out.extend_from_slice(&[is_json | is_zstd | has_stamp, id]);
    out.extend_from_slice(&sequence.to_le_bytes());
    out.push(u8::try_from(trace.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(&u16::try_from(frame.payload.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(trace.as_bytes());
    out.extend_from_slice(&frame.payload);
}

/// A packed frame in the bytes of its block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packed<'a> {
    flags: u8,
    /// The number of its stamp's id.
    pub(super) id: Option<u8>,
    sequence: u64,
    trace: &'a [u8],
    payload: &'a [u8],
    /// All of it.
    pub(super) bytes: &'a [u8],
}

impl<'a> Packed<'a> {
    /// The frame at the front of `bytes`.
    pub(super) fn first_of(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>()?;
        let [flags, id, s0, s1, s2, s3, s4, s5, s6, s7, trace_len, len_low, len_high] = *head;
        let (trace, rest) = rest.split_at_checked(trace_len.into())?;
        let payload = rest.get(..u16::from_le_bytes([len_low, len_high]).into())?;
        Some(Self {
            flags,
            id: (flags & HAS_STAMP != 0).then_some(id),
            sequence: u64::from_le_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
            trace,
            payload,
            bytes: bytes.get(..HEAD_LEN + trace.len() + payload.len())?,
        })
    }

    /// Appends it to another block, where its id has this number.
    pub(super) fn pack(&self, out: &mut Vec<u8>, id: u8) {
        let number_at = out.len() + 1;
        out.extend_from_slice(self.bytes);
        if let Some(number) = out.get_mut(number_at) {
            *number = id;
        }
    }

    /// The frame, with the id that its number stands for.
    pub(super) fn frame(&self, count: u32, id: Option<&Arc<str>>) -> Frame {
        let is = |flag: u8| self.flags & flag != 0;
        let trace = std::str::from_utf8(self.trace).ok().filter(|trace| !trace.is_empty());
        Frame {
            content_type: if is(IS_JSON) { ContentType::Json } else { ContentType::Batch },
            encoding: if is(IS_ZSTD) { Encoding::Zstd } else { Encoding::Identity },
            count,
            producer: id.map(|id| ProducerStamp { id: Arc::clone(id), sequence: self.sequence }),
            dead: None,
            trace: trace.map(Arc::from),
            payload: Bytes::copy_from_slice(self.payload),
        }
    }
}
