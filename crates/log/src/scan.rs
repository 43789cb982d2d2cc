//! Scans a segment's bytes for records, damage, and its end.

use std::ops::Range;

use bytes::Bytes;

use crate::format::{
    HEADER_LEN, Header, Located, RECORD_ALIGN, RECORD_HEADER_LEN, decode_record, sequence_at,
};

/// A [`Scanner`]'s findings, in the order of the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Record(Located),
    /// These bytes held these sequences, were durable once, and are lost.
    Gap {
        bytes: Range<usize>,
        sequences: Range<u64>,
    },
    End(Tail),
}

/// How a segment ends. `offset` is the end of the last valid record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) offset: usize,
    /// First sequence that the segment does not have.
    pub(crate) sequence: u64,
    /// Bytes from `offset` to the last non-zero one.
    pub(crate) remains: usize,
    /// Whole records among the remains, which do not count.
    pub(crate) intact: u64,
    /// One more than the highest sequence among them; `sequence` if there are none.
    pub(crate) beyond: u64,
}

/// The bytes of a segment, and which of them the disk does not read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Contents {
    pub(crate) bytes: Bytes,
    /// Unreadable ranges. Their bytes here are neither records nor an end.
    pub(crate) unreadable: Vec<Range<usize>>,
}

/// Scans one segment.
#[derive(Debug)]
pub(crate) struct Scanner {
    bytes: Bytes,
    unreadable: Vec<Range<usize>>,
    seed: u32,
    /// Sequence at which the next segment says that this one ended; `None` for the last.
    limit: Option<u64>,
    /// End of the last byte that is not zero.
    extent: usize,
    at: usize,
    expected: u64,
    done: bool,
}

impl Scanner {
    pub(crate) fn new(contents: Contents, header: &Header, limit: Option<u64>) -> Self {
        let Contents { bytes, unreadable } = contents;
        let (seed, extent, expected) = (header.seed(), extent(&bytes), header.base);
        Self { bytes, unreadable, seed, limit, extent, at: HEADER_LEN, expected, done: false }
    }

    /// The payload of a record found by this scanner; shares the segment's memory.
    pub(crate) fn payload(&self, record: &Located) -> Bytes {
        self.bytes.slice(record.payload())
    }

    /// The first whole record at or after `from` that is not older than the next expected one.
    fn whole_from(&self, from: usize) -> Option<Located> {
        (from..self.extent).step_by(RECORD_ALIGN).find_map(|offset| {
            // Every sequence takes a header's bytes: a sequence further on than that is impossible.
            let reach = (offset - self.at.min(offset)) / RECORD_HEADER_LEN;
            let sequence = sequence_at(&self.bytes, offset)?;
            if sequence < self.expected || sequence - self.expected > reach as u64 {
                return None;
            }
            decode_record(&self.bytes, offset, self.seed)
        })
    }

    /// Whether any bytes from here to `end` could not be read: a crash leaves no such bytes.
    fn is_unreadable(&self, end: usize) -> bool {
        self.unreadable.iter().any(|bytes| bytes.start < end && self.at < bytes.end)
    }

    /// Whether a record at or after `first` was written when the one expected here was already synced; true
    /// if unknown.
    fn is_proven(&self, first: &Located) -> bool {
        if self.limit.is_some() || self.is_unreadable(first.offset) {
            return true; // a later segment is made only when this one is synced
        }
        let mut record = Some(*first);
        while let Some(found) = record {
            if found.durable > self.expected {
                return true;
            }
            record = self.whole_from(found.end());
        }
        false
    }

    fn step(&mut self) -> Step {
        if self.limit.is_some_and(|limit| self.expected >= limit) {
            return self.end();
        }
        if let Some(record) = decode_record(&self.bytes, self.at, self.seed)
            && record.sequence == self.expected
        {
            self.at = record.end();
            self.expected += 1;
            return Step::Record(record);
        }
        let next =
            self.whole_from(self.at).filter(|next| self.limit.is_none_or(|limit| next.sequence < limit));
        let (end, sequence) = match (next, self.limit) {
            (Some(next), _) if self.is_proven(&next) => (next.offset, next.sequence),
            (None, Some(limit)) => (self.extent.max(self.at), limit),
            (None, None) if self.is_unreadable(self.extent) => {
                let borne = (self.extent - self.at) / RECORD_HEADER_LEN;
                (self.extent, self.expected + borne as u64 + 1)
            }
            _ => return self.end(),
        };
        let gap = Step::Gap { bytes: self.at..end, sequences: self.expected..sequence };
        self.at = end;
        self.expected = sequence;
        gap
    }

    fn end(&mut self) -> Step {
        self.done = true;
        let mut tail = Tail {
            offset: self.at,
            sequence: self.expected,
            remains: self.extent.saturating_sub(self.at),
            intact: 0,
            beyond: self.expected,
        };
        let mut record = self.whole_from(self.at);
        while let Some(found) = record {
            tail.intact += 1;
            tail.beyond = tail.beyond.max(found.sequence + 1);
            record = self.whole_from(found.end());
        }
        Step::End(tail)
    }
}

impl Iterator for Scanner {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.done { None } else { Some(self.step()) }
    }
}

/// End of the last byte that is not zero.
pub(crate) fn extent(bytes: &[u8]) -> usize {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut end = bytes.len();
    for chunk in bytes.rchunks(ZEROS.len()) {
        if ZEROS.get(..chunk.len()).is_some_and(|zeros| zeros == chunk) {
            end -= chunk.len();
        } else {
            return end - chunk.iter().rev().take_while(|byte| **byte == 0).count();
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{RecordFacts, encode_record};

    /// Records 1..=n of 16-byte payloads; each says that all before `durable(sequence)` was synced.
    fn segment(count: u64, durable: impl Fn(u64) -> u64) -> (Header, Vec<u8>) {
        let header = Header::new(1, 1);
        let mut bytes = header.encode();
        for sequence in 1..=count {
            let payload = [sequence.to_le_bytes(), [0xee; 8]].concat();
            let facts = RecordFacts { kind: 1, sequence, durable: durable(sequence) };
            encode_record(&mut bytes, header.seed(), facts, [&payload, &[]]);
        }
        (header, bytes)
    }

    fn sequences(steps: &[Step]) -> Vec<u64> {
        steps
            .iter()
            .filter_map(|step| if let Step::Record(r) = step { Some(r.sequence) } else { None })
            .collect()
    }

    fn scan(header: &Header, bytes: Vec<u8>, limit: Option<u64>) -> Vec<Step> {
        let contents = Contents { bytes: bytes.into(), unreadable: Vec::new() };
        Scanner::new(contents, header, limit).collect()
    }

    #[test]
    fn zeros_are_a_clean_end() {
        let (header, mut bytes) = segment(3, |sequence| sequence);
        let end = bytes.len();
        bytes.resize(end + 10_000, 0);
        let steps = scan(&header, bytes, None);
        assert_eq!(sequences(&steps), [1, 2, 3]);
        assert_eq!(
            steps.last(),
            Some(&Step::End(Tail { offset: end, sequence: 4, remains: 0, intact: 0, beyond: 4 }))
        );
    }

    #[test]
    fn a_gap_in_an_unsynced_group_is_a_torn_tail() {
        let (header, mut bytes) = segment(4, |sequence| sequence.min(2));
        bytes[HEADER_LEN + 40 + 30] ^= 1;
        let steps = scan(&header, bytes, None);
        assert_eq!(sequences(&steps), [1]);
        let Some(Step::End(tail)) = steps.last() else { panic!("{steps:?}") };
        assert_eq!((tail.sequence, tail.remains, tail.intact, tail.beyond), (2, 120, 2, 5));
    }

    #[test]
    fn a_gap_that_was_synced_is_damage_and_the_rest_is_served() {
        let (header, mut bytes) = segment(4, |sequence| sequence);
        bytes[HEADER_LEN + 40 + 30] ^= 1;
        let steps = scan(&header, bytes, None);
        assert_eq!(sequences(&steps), [1, 3, 4]);
        assert_eq!(steps[1], Step::Gap { bytes: HEADER_LEN + 40..HEADER_LEN + 80, sequences: 2..3 });
    }

    #[test]
    fn a_sealed_segment_that_ends_early_is_damage() {
        let (header, mut bytes) = segment(4, |_| 1);
        bytes.truncate(HEADER_LEN + 100);
        let steps = scan(&header, bytes, Some(5));
        assert_eq!(sequences(&steps), [1, 2]);
        assert_eq!(steps[2], Step::Gap { bytes: HEADER_LEN + 80..HEADER_LEN + 97, sequences: 3..5 });
    }

    #[test]
    fn what_the_next_segment_superseded_does_not_count() {
        let (header, bytes) = segment(4, |_| 1);
        let steps = scan(&header, bytes, Some(3));
        assert_eq!(sequences(&steps), [1, 2]);
        let Some(Step::End(tail)) = steps.last() else { panic!("{steps:?}") };
        assert_eq!((tail.intact, tail.beyond), (2, 5));
    }

    #[test]
    fn what_a_recycled_file_held_before_never_passes() {
        let (_, mut bytes) = segment(4, |sequence| sequence);
        let header = Header::new(1, 1);
        bytes[..HEADER_LEN].copy_from_slice(&header.encode());
        let mut fresh = Vec::new();
        let facts = RecordFacts { kind: 1, sequence: 1, durable: 1 };
        encode_record(&mut fresh, header.seed(), facts, [&[9; 16], &[]]);
        bytes[HEADER_LEN..HEADER_LEN + fresh.len()].copy_from_slice(&fresh);
        let steps = scan(&header, bytes, None);
        assert_eq!(sequences(&steps), [1]);
        let Some(Step::End(tail)) = steps.last() else { panic!("{steps:?}") };
        assert_eq!((tail.intact, tail.remains), (0, 120));
    }
}
