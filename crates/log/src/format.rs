//! The bytes of a segment: header and record. The layout stands in the doc of the crate.

use std::hash::{BuildHasher, Hasher, RandomState};

use crc32c::{crc32c, crc32c_append};

/// Largest payload of a record, in bytes.
pub const RECORD_LEN_MAX: usize = 16 << 20;
/// Bytes before the first record.
pub(crate) const HEADER_LEN: usize = 1024;
/// Distance of the header's two copies.
const HEADER_COPY: usize = 512;
/// Bytes before a record's payload.
pub(crate) const RECORD_HEADER_LEN: usize = 24;
/// Records start at multiples of this.
pub(crate) const RECORD_ALIGN: usize = 8;
/// No sequence gets this far: a million records a second take 292,000 years.
const SEQUENCE_END: u64 = 1 << 63;
const MAGIC: [u8; 8] = *b"gpuvlog\n";
const VERSION: u32 = 1;

const _: () = assert!(HEADER_LEN.is_multiple_of(RECORD_ALIGN), "the first record is aligned");
const _: () = assert!(RECORD_HEADER_LEN.is_multiple_of(RECORD_ALIGN), "an empty record keeps the alignment");

/// What the header of a segment says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) generation: u64,
    pub(crate) base: u64,
    pub(crate) follows: u64,
}

/// The first bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opening {
    Good(Header),
    UnknownVersion(u32),
    Bad,
}

impl Header {
    /// A header with a new random generation.
    pub(crate) fn new(base: u64, follows: u64) -> Self {
        Self { generation: RandomState::new().build_hasher().finish(), base, follows }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(HEADER_LEN);
        copy.extend_from_slice(&MAGIC);
        copy.extend_from_slice(&VERSION.to_le_bytes());
        copy.extend_from_slice(&0_u32.to_le_bytes());
        copy.extend_from_slice(&self.generation.to_le_bytes());
        copy.extend_from_slice(&self.base.to_le_bytes());
        copy.extend_from_slice(&self.follows.to_le_bytes());
        copy.extend_from_slice(&crc32c(&copy).to_le_bytes());
        copy.resize(HEADER_COPY, 0);
        copy.extend_from_within(..);
        copy.resize(HEADER_LEN, 0);
        copy
    }

    pub(crate) fn decode(bytes: &[u8]) -> Opening {
        let first = Self::decode_copy(bytes);
        if matches!(first, Opening::Good(_)) {
            return first;
        }
        let second = Self::decode_copy(bytes.get(HEADER_COPY..).unwrap_or_default());
        if second == Opening::Bad { first } else { second }
    }

    fn decode_copy(bytes: &[u8]) -> Opening {
        let (Some(covered), Some(crc)) = (bytes.get(..40), u32_at(bytes, 40)) else { return Opening::Bad };
        if crc32c(covered) != crc || !covered.starts_with(&MAGIC) {
            return Opening::Bad;
        }
        match (u32_at(bytes, 8), u64_at(bytes, 16), u64_at(bytes, 24), u64_at(bytes, 32)) {
            (Some(VERSION), Some(generation), Some(base), Some(follows))
                if is_base(base) && follows <= base =>
            {
                Opening::Good(Self { generation, base, follows })
            }
            (Some(version), ..) if version != VERSION => Opening::UnknownVersion(version),
            _ => Opening::Bad,
        }
    }

    /// The start value of every record's checksum in this segment.
    pub(crate) fn seed(&self) -> u32 {
        crc32c(&self.generation.to_le_bytes())
    }
}

/// A record found in a segment's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Located {
    /// Where its header begins.
    pub(crate) offset: usize,
    /// Bytes of payload.
    pub(crate) len: usize,
    pub(crate) kind: u8,
    pub(crate) sequence: u64,
    /// First sequence that was not known to be synced when this record was written.
    pub(crate) durable: u64,
}

impl Located {
    pub(crate) fn end(&self) -> usize {
        self.offset + record_size(self.len)
    }

    pub(crate) fn payload(&self) -> std::ops::Range<usize> {
        let start = self.offset + RECORD_HEADER_LEN;
        start..start + self.len
    }
}

/// Bytes that a record with this payload takes in a segment.
pub(crate) fn record_size(payload_len: usize) -> usize {
    (RECORD_HEADER_LEN + payload_len).next_multiple_of(RECORD_ALIGN)
}

/// What a record says of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordFacts {
    pub(crate) kind: u8,
    pub(crate) sequence: u64,
    /// First sequence that is not known to be synced as it is written.
    pub(crate) durable: u64,
}

/// Appends a record to `buffer`, its payload in two parts. The caller has checked them against [`RECORD_LEN_MAX`].
pub(crate) fn encode_record(buffer: &mut Vec<u8>, seed: u32, facts: RecordFacts, payload: [&[u8]; 2]) {
    let RecordFacts { kind, sequence, durable } = facts;
    let [first, second] = payload;
    let payload_len = first.len() + second.len();
    let len = u32::try_from(payload_len).unwrap_or(u32::MAX);
    // A segment holds fewer records than a u32 counts, and is synced when it is left.
    let unsynced = u32::try_from(sequence - durable).unwrap_or(u32::MAX);
    let mut covered = [0; RECORD_HEADER_LEN - 8];
    let (head, tail) = covered.split_at_mut(8);
    head.copy_from_slice(&(u64::from(unsynced) << 32 | u64::from(kind)).to_le_bytes());
    tail.copy_from_slice(&sequence.to_le_bytes());
    let crc = crc32c_append(checksum(seed, len, &covered, first), second);
    let start = buffer.len();
    buffer.extend_from_slice(&len.to_le_bytes());
    buffer.extend_from_slice(&crc.to_le_bytes());
    buffer.extend_from_slice(&covered);
    buffer.extend_from_slice(first);
    buffer.extend_from_slice(second);
    buffer.resize(start + record_size(payload_len), 0);
}

/// The record at `offset`, if there is one whose checksum holds.
pub(crate) fn decode_record(bytes: &[u8], offset: usize, seed: u32) -> Option<Located> {
    let record = bytes.get(offset..)?;
    let len = u32_at(record, 0)?;
    let payload_len = len as usize;
    let sequence = u64_at(record, 16)?;
    // Version 1 writes zeros for flags and reserved: other values are of a later version.
    if payload_len > RECORD_LEN_MAX || sequence >= SEQUENCE_END || record.get(9..12)? != [0, 0, 0] {
        return None;
    }
    let covered = record.get(8..RECORD_HEADER_LEN)?;
    let payload = record.get(RECORD_HEADER_LEN..RECORD_HEADER_LEN + payload_len)?;
    if checksum(seed, len, covered, payload) != u32_at(record, 4)? {
        return None;
    }
    let durable = sequence.checked_sub(u64::from(u32_at(record, 12)?))?;
    Some(Located { offset, len: payload_len, kind: *record.get(8)?, sequence, durable })
}

/// The sequence that a record at `offset` would have, checksum or not: a cheap first filter.
pub(crate) fn sequence_at(bytes: &[u8], offset: usize) -> Option<u64> {
    u64_at(bytes, offset + 16)
}

fn checksum(seed: u32, len: u32, covered: &[u8], payload: &[u8]) -> u32 {
    crc32c_append(crc32c_append(crc32c_append(seed, &len.to_le_bytes()), covered), payload)
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}

/// Sequences start at 1 and stay far from overflow, whatever a file claims.
fn is_base(base: u64) -> bool {
    base > 0 && base < SEQUENCE_END
}

/// A segment; before it, its base.
pub(crate) const SEGMENT_EXTENSION: &str = ".wal";
/// A segment under construction, or interrupted by a power cut; before it, its base.
pub(crate) const NEW_EXTENSION: &str = ".new";
/// A segment that was due for removal, but is damaged; before it, its base.
pub(crate) const DAMAGED_EXTENSION: &str = ".damaged";
/// A file of zeros, ready to become a segment; before it, a random number.
pub(crate) const SPARE_EXTENSION: &str = ".spare";
/// A file that is becoming a spare; before it, a random number.
pub(crate) const ZEROING_EXTENSION: &str = ".zeroing";

/// Name of the segment that begins with `base`.
pub(crate) fn segment_name(base: u64) -> String {
    format!("{base:016x}{SEGMENT_EXTENSION}")
}

/// The base in a name such as `00000000000000a1.wal`.
pub(crate) fn base_in_name(name: &str) -> Option<u64> {
    number_in_name(name, SEGMENT_EXTENSION).filter(|base| is_base(*base))
}

/// The number in a name such as `00000000000000a1.spare`, for the given extension.
pub(crate) fn number_in_name(name: &str, extension: &str) -> Option<u64> {
    let digits = name.strip_suffix(extension)?;
    let lower_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if digits.len() == 16 && lower_hex { u64::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_copy_of_the_header_suffices() {
        let header = Header::new(42, 40);
        for broken in [0, HEADER_COPY] {
            let mut bytes = header.encode();
            bytes[broken..broken + 64].fill(0);
            assert_eq!(Header::decode(&bytes), Opening::Good(header));
        }
        assert_eq!(Header::decode(&[0; HEADER_LEN]), Opening::Bad);
        assert_eq!(Header::decode(&[]), Opening::Bad);
    }

    #[test]
    fn a_record_of_another_generation_is_no_record() {
        let (old, new) = (Header::new(1, 1), Header::new(1, 1));
        assert_ne!(old.generation, new.generation);
        let mut bytes = Vec::new();
        let facts = RecordFacts { kind: 3, sequence: 1, durable: 1 };
        encode_record(&mut bytes, old.seed(), facts, [b"pay", b"load"]);
        assert_eq!(bytes.len(), 32);
        assert!(decode_record(&bytes, 0, old.seed()).is_some());
        assert_eq!(decode_record(&bytes, 0, new.seed()), None);
    }

    #[test]
    fn only_whole_names_are_segments() {
        let check = |name, expected| assert_eq!(base_in_name(name), expected, "{name}");
        check("00000000000000a1.wal", Some(0xa1));
        check("00000000000000A1.wal", None);
        check("0000000000000000.wal", None);
        check("0a1.wal", None);
        check("+0000000000000a1.wal", None);
        check("00000000000000a1.new", None);
    }
}
