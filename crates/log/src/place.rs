//! Places of records, and statistics of segments.

use std::num::NonZeroU64;

/// The place of a record, for [`Log::read`](crate::Log::read) of the log that returned it. Places grow as
/// sequences do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    segment: NonZeroU64,
    offset: u32,
    len: u32,
}

const _: () = assert!(size_of::<Option<Place>>() == 16, "who holds many records keeps many places");

impl Place {
    /// The caller has checked that the record is within a segment's length. No segment has the base 0.
    pub(crate) fn new(segment: u64, offset: u64, payload_len: usize) -> Self {
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let segment = NonZeroU64::new(segment).unwrap_or(NonZeroU64::MIN);
        Self { segment, offset: narrow(offset), len: narrow(payload_len as u64) }
    }

    /// The base of the segment that holds the record: [`SegmentStats::base`].
    pub fn segment(self) -> u64 {
        self.segment.get()
    }

    /// The place of another record of the same segment, by its [offset](Place::offset) and length.
    pub fn beside(self, offset: u32, payload_len: u32) -> Self {
        Self { segment: self.segment, offset, len: payload_len }
    }

    /// Where the record's header begins, in bytes from the segment's start.
    pub fn offset(self) -> u64 {
        u64::from(self.offset)
    }

    /// Bytes of the record's payload.
    pub fn payload_len(self) -> usize {
        self.len as usize
    }
}

/// Number and place of a record that was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Number of the record: one more than the one before it.
    pub sequence: u64,
    /// Where it can be read back.
    pub place: Place,
}

/// A segment as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentStats {
    /// The sequence that its first record has, or would have.
    pub base: u64,
    /// First sequence after it. [`Log::truncate_before`](crate::Log::truncate_before) this or more removes
    /// it, if all before it are removed and it is not the last.
    pub end: u64,
    /// Bytes up to its last record (zero-filled space is not counted).
    pub bytes: u64,
    /// Records in it.
    pub records: u64,
}
