//! Opening a log: finds the segments, decides which records count, and serves them.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use crate::config::SEGMENT_LEN_MAX;
use crate::disk::{Disk, DiskFile, read_full, write_all};
use crate::error::LogError;
use crate::format::{
    HEADER_LEN, Header, NEW_EXTENSION, Opening, RECORD_HEADER_LEN, SPARE_EXTENSION, ZEROING_EXTENSION,
    base_in_name, number_in_name, segment_name,
};
use crate::place::{Place, SegmentStats};
use crate::scan::{Contents, Scanner, Step, Tail, extent};

/// Bytes of zeros searched at once.
const CHUNK_LEN: usize = 256 << 10;
/// The smallest unit that a disk fails to read. A header's copies are in two of them.
const SECTOR_LEN: usize = 512;
/// Stands in for a byte that cannot be read.
const UNREADABLE: u8 = 0xff;

/// A record that survived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Number of the record: one more than the one before it, but for lost ones.
    pub sequence: u64,
    /// What the caller said that it is.
    pub kind: u8,
    /// Where it can be read back.
    pub place: Place,
    /// The caller's bytes. From a [`Recovery`] they share the memory of the whole segment: copy them to keep
    /// them for long.
    pub payload: Bytes,
}

/// A range that had been durable and cannot be read any more. A person must act: acknowledged records are
/// lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file that holds the range, or held it.
    pub segment: String,
    /// Where the range begins, in bytes.
    pub offset: u64,
    /// Its length in bytes; 0 if nothing is left of it (a missing or cut file).
    pub len: u64,
    /// The sequences lost with it; none outside are. If [`Damage::is_counted`] is false, the end is a guess
    /// from the rest of the file.
    pub sequences: Range<u64>,
    /// Whether `sequences` are exactly the lost records: the log after the damage says where it ended. Damage
    /// with nothing after it may have held more, if the file was cut.
    pub is_counted: bool,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment, offset, len, sequences, is_counted } = self;
        write!(f, "{segment} is damaged at byte {offset} ({len} bytes): ")?;
        match sequences.end.saturating_sub(sequences.start) {
            _ if !is_counted => f.write_str("records are gone, and nothing tells how many"),
            1 => f.write_str("1 record is gone"),
            count => write!(f, "{count} records are gone"),
        }
    }
}

/// Bytes at the end of the log that form no valid record: the remains of the last group at a power cut, or
/// damage to acknowledged records. The two cannot be told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// Name of the last segment's file.
    pub segment: String,
    /// Where it begins, in bytes. It stays in the file; new records go to a new segment.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Whole records in it, which are not served because one before them is missing.
    pub intact: u64,
}

impl fmt::Display for TornTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { segment, offset, len, intact } = self;
        write!(
            f,
            "{segment} ends in {len} bytes at byte {offset} that are no whole record: a write that was cut short, or damage \
             to acknowledged records; nothing tells which"
        )?;
        if *intact > 0 {
            write!(f, "; whole records among them that are not served: {intact}")?;
        }
        Ok(())
    }
}

/// One segment as the log knows it.
#[derive(Debug, Clone)]
pub(crate) struct Segment {
    pub(crate) base: u64,
    pub(crate) name: String,
    /// First sequence after it.
    pub(crate) end: u64,
    /// Records that count.
    pub(crate) records: u64,
    /// Where the last of them ends.
    pub(crate) len: u64,
    /// Holds data that a person may want to inspect: never removed.
    pub(crate) keep: bool,
    /// Sequence at which reading it stops; `None` for the last.
    limit: Option<u64>,
}

impl Segment {
    pub(crate) fn new(base: u64) -> Self {
        let len = HEADER_LEN as u64;
        Self { base, name: segment_name(base), end: base, records: 0, len, keep: false, limit: None }
    }

    pub(crate) fn stats(&self) -> SegmentStats {
        SegmentStats { base: self.base, end: self.end, bytes: self.len, records: self.records }
    }
}

/// The result of opening a log, and an iterator over the surviving records in order.
///
/// Iterating reads segment by segment, one in memory at a time. It serves the records found when the log was
/// opened, not those appended since; a segment that [`Log::truncate_before`](crate::Log::truncate_before)
/// removes before it was read is an error.
pub struct Recovery {
    /// Records that iterating yields.
    pub records: u64,
    /// Bytes of the segments up to their last record.
    pub bytes: u64,
    /// Lower bound of the next append's sequence.
    pub next_sequence: u64,
    /// Sequence at which everything before the first segment ended: everything below it was truncated away,
    /// or its segments are lost.
    pub follows: u64,
    /// Lost acknowledged records.
    pub damage: Vec<Damage>,
    /// The bytes after the last record.
    pub torn: Option<TornTail>,
    /// Names of files that do not belong to the log, or were set aside as damaged.
    pub ignored: Vec<String>,
    disk: Arc<dyn Disk>,
    ahead: VecDeque<Segment>,
    reading: Option<SegmentReading>,
}

struct SegmentReading {
    scanner: Scanner,
    segment: Segment,
    served: u64,
}

impl fmt::Debug for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recovery")
            .field("records", &self.records)
            .field("bytes", &self.bytes)
            .field("next_sequence", &self.next_sequence)
            .field("follows", &self.follows)
            .field("damage", &self.damage)
            .field("torn", &self.torn)
            .field("ignored", &self.ignored)
            .finish_non_exhaustive()
    }
}

impl Recovery {
    fn read_next(&mut self) -> Result<Option<Record>, LogError> {
        loop {
            if let Some(reading) = &mut self.reading {
                // No further: a writer beside this reader appends to the last segment.
                while reading.served < reading.segment.records
                    && let Some(step) = reading.scanner.next()
                {
                    if let Step::Record(found) = step {
                        reading.served += 1;
                        let payload = reading.scanner.payload(&found);
                        let place = Place::new(reading.segment.base, found.offset as u64, found.len);
                        let (sequence, kind) = (found.sequence, found.kind);
                        return Ok(Some(Record { sequence, kind, place, payload }));
                    }
                }
                let SegmentReading { segment, served, .. } = reading;
                let (found, expected) = (*served, segment.records);
                let file = std::mem::take(&mut segment.name);
                self.reading = None;
                if found != expected {
                    return Err(LogError::Changed { file, found, expected });
                }
            }
            let Some(segment) = self.ahead.pop_front() else { return Ok(None) };
            if segment.records == 0 {
                continue;
            }
            let (_, _, contents) = read_segment(&*self.disk, &segment.name)?;
            let Opening::Good(header) = Header::decode(&contents.bytes) else {
                return Err(LogError::Changed { file: segment.name, found: 0, expected: segment.records });
            };
            let scanner = Scanner::new(contents, &header, segment.limit);
            self.reading = Some(SegmentReading { scanner, segment, served: 0 });
        }
    }
}

impl Iterator for Recovery {
    type Item = Result<Record, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read_next().transpose();
        if matches!(next, Some(Err(_))) {
            self.ahead.clear();
            self.reading = None;
        }
        next
    }
}

/// Where writing continues.
pub(crate) struct Resume {
    pub(crate) segments: VecDeque<Segment>,
    /// Sequence at which everything so far ended: the next segment's `follows`.
    pub(crate) follows: u64,
    /// The next segment's base.
    pub(crate) base: u64,
    /// Names of files that wait to become segments.
    pub(crate) spares: Vec<String>,
}

/// Reads everything, makes the valid records durable, and returns where to continue.
pub(crate) fn recover(disk: &Arc<dyn Disk>) -> Result<(Resume, Recovery), LogError> {
    let mut recovery = Recovery {
        records: 0,
        bytes: 0,
        next_sequence: 1,
        follows: 1,
        damage: Vec::new(),
        torn: None,
        ignored: Vec::new(),
        disk: Arc::clone(disk),
        ahead: VecDeque::new(),
        reading: None,
    };
    let mut resume = Resume { segments: VecDeque::new(), follows: 1, base: 1, spares: Vec::new() };
    let bases = list_segments(&**disk, &mut resume.spares, &mut recovery.ignored)?;
    let mut limits = Vec::with_capacity(bases.len());
    for base in bases.iter().skip(1) {
        limits.push(Some(read_follows(&**disk, *base)?));
    }
    limits.push(None);
    for (at, (base, limit)) in bases.into_iter().zip(limits).enumerate() {
        let found = examine(&**disk, base, limit, &mut recovery.damage)?;
        if at == 0 {
            recovery.follows = found.follows;
        }
        if limit.is_none() {
            found.resume(&mut resume, &mut recovery);
        } else {
            resume.segments.push_back(found.segment);
        }
    }
    // The directory as read here must be the one that the next crash leaves.
    disk.sync_dir().map_err(|source| LogError::poisoned("sync", ".", source))?;
    recovery.records = resume.segments.iter().map(|segment| segment.records).sum();
    recovery.bytes = resume.segments.iter().map(|segment| segment.len).sum();
    recovery.next_sequence = resume.base;
    recovery.ahead.clone_from(&resume.segments);
    Ok((resume, recovery))
}

/// The bases of the segments in order. Removes files that were under construction.
fn list_segments(
    disk: &dyn Disk,
    spares: &mut Vec<String>,
    ignored: &mut Vec<String>,
) -> Result<Vec<u64>, LogError> {
    let mut bases = Vec::new();
    for name in disk.list().map_err(|source| LogError::read("list", ".", source))? {
        let unfinished = |extension| number_in_name(&name, extension).is_some();
        if let Some(base) = base_in_name(&name) {
            bases.push(base);
        } else if number_in_name(&name, SPARE_EXTENSION).is_some() {
            spares.push(name);
        } else if [NEW_EXTENSION, ZEROING_EXTENSION].into_iter().any(unfinished) {
            disk.remove(&name).map_err(|source| LogError::write("remove unfinished", &name, source))?;
        } else {
            ignored.push(name);
        }
    }
    bases.sort_unstable();
    ignored.sort_unstable();
    Ok(bases)
}

/// Where the segment says that the previous one ended; its own base if its header is bad.
fn read_follows(disk: &dyn Disk, base: u64) -> Result<u64, LogError> {
    let name = segment_name(base);
    let file = disk.open(&name).map_err(|source| LogError::read("open", &name, source))?;
    let mut bytes = vec![0; HEADER_LEN];
    let (len, _) =
        read_around(&*file, &mut bytes).map_err(|source| LogError::read("read header of", &name, source))?;
    match Header::decode(bytes.get(..len).unwrap_or_default()) {
        Opening::Good(header) if header.base == base => Ok(header.follows),
        _ => Ok(base),
    }
}

/// A segment's file, its length, and its bytes without (most of) the zeros at the end, which take no memory.
fn read_segment(disk: &dyn Disk, name: &str) -> Result<(Box<dyn DiskFile>, u64, Contents), LogError> {
    let file = disk.open(name).map_err(|source| LogError::read("open", name, source))?;
    let len = file.size().map_err(|source| LogError::read("measure", name, source))?;
    if len > u64::from(SEGMENT_LEN_MAX) {
        return Err(LogError::SegmentTooLong { file: name.to_owned(), len });
    }
    let end = end_of_data(&*file, len);
    let mut bytes = vec![0; usize::try_from(end).unwrap_or_default()];
    let (count, unreadable) =
        read_around(&*file, &mut bytes).map_err(|source| LogError::read("read", name, source))?;
    bytes.truncate(count);
    Ok((file, len, Contents { bytes: bytes.into(), unreadable }))
}

/// Reads the beginning of a file, skipping ranges that the disk cannot read. Returns how many of the
/// requested bytes the file has, and the unreadable ranges.
///
/// # Errors
///
/// Nothing at all could be read: then it is more than a bad sector.
fn read_around(file: &dyn DiskFile, buffer: &mut [u8]) -> io::Result<(usize, Vec<Range<usize>>)> {
    let error = match read_full(file, 0, buffer) {
        Ok(count) => return Ok((count, Vec::new())),
        Err(error) => error,
    };
    let (mut count, mut is_readable, mut unreadable) = (0, false, Vec::new());
    for piece in buffer.chunks_mut(SECTOR_LEN) {
        if let Ok(read) = read_full(file, count as u64, piece) {
            is_readable = true;
            count += read;
            if read < piece.len() {
                break;
            }
        } else {
            piece.fill(UNREADABLE);
            unreadable.push(count..count + piece.len());
            count += piece.len();
        }
    }
    if is_readable { Ok((count, unreadable)) } else { Err(error) }
}

/// End of the data, rounded up to the chunk; only zeros follow.
fn end_of_data(file: &dyn DiskFile, len: u64) -> u64 {
    let mut chunk = vec![0; usize::try_from(len).unwrap_or(CHUNK_LEN).min(CHUNK_LEN)];
    let mut end = len;
    while end > 0 {
        let from = end.saturating_sub(CHUNK_LEN as u64);
        let wanted = usize::try_from(end - from).unwrap_or(CHUNK_LEN);
        let read = chunk.get_mut(..wanted).unwrap_or_default();
        // Unreadable bytes are not taken for zeros.
        if read_full(file, from, read).is_err() || extent(read) > 0 {
            break;
        }
        end = from;
    }
    end
}

/// A segment that was read.
struct FoundSegment {
    segment: Segment,
    follows: u64,
    base: u64,
    /// `None` if its header cannot be read: then the records cannot either.
    tail: Option<Tail>,
}

fn examine(
    disk: &dyn Disk,
    base: u64,
    limit: Option<u64>,
    damage: &mut Vec<Damage>,
) -> Result<FoundSegment, LogError> {
    let mut segment = Segment { limit, ..Segment::new(base) };
    let name = segment.name.clone();
    let (file, len, contents) = read_segment(disk, &name)?;
    let bytes = contents.bytes.clone();
    let header = match Header::decode(&bytes) {
        Opening::Good(header) if header.base == base => header,
        Opening::UnknownVersion(version) => return Err(LogError::UnknownVersion { file: name, version }),
        _ => {
            let most = base.saturating_add(len / RECORD_HEADER_LEN as u64 + 1);
            segment.end = limit.unwrap_or(most);
            segment.len = len;
            segment.keep = true;
            let sequences = base..segment.end;
            let is_counted = limit.is_some();
            damage.push(Damage { segment: name, offset: 0, len: segment.len, sequences, is_counted });
            return Ok(FoundSegment { segment, follows: base, base, tail: None });
        }
    };
    let (mut durable, mut unproven) = (base, Vec::new());
    let mut end = None;
    for step in Scanner::new(contents, &header, limit) {
        match step {
            Step::Record(record) => {
                segment.records += 1;
                // A record after a gap says where the gap ended.
                damage
                    .iter_mut()
                    .filter(|damage| damage.segment == name)
                    .for_each(|damage| damage.is_counted = true);
                if record.durable > durable {
                    durable = record.durable;
                    unproven.clear();
                }
                note_run(&mut unproven, record.offset..record.end().min(bytes.len()));
            }
            Step::Gap { bytes, sequences } => {
                segment.keep = true;
                let (offset, len) = (bytes.start as u64, bytes.len() as u64);
                let segment = name.clone();
                damage.push(Damage { segment, offset, len, sequences, is_counted: limit.is_some() });
            }
            Step::End(tail) => end = Some(tail),
        }
    }
    if let Some(tail) = &end {
        segment.end = tail.sequence;
        segment.len = tail.offset as u64;
        segment.keep |= tail.intact > 0;
        if limit.is_none() {
            LastSegment { file: &*file, len, name: &name, bytes: &bytes }.settle(&unproven, tail)?;
        }
    }
    Ok(FoundSegment { segment, follows: header.follows, base, tail: end })
}

/// Adds a range to a list of ranges, merging adjacent ones.
fn note_run(runs: &mut Vec<Range<usize>>, range: Range<usize>) {
    match runs.last_mut().filter(|run| run.end == range.start) {
        Some(run) => run.end = range.end,
        None => runs.push(range),
    }
}

/// The last segment, as it was read.
struct LastSegment<'a> {
    file: &'a dyn DiskFile,
    len: u64,
    name: &'a str,
    bytes: &'a Bytes,
}

impl LastSegment<'_> {
    /// Makes its records durable, whatever happened to the sync before: writes those again without a proven sync
    /// (`unproven`), but never any that could not be read well, releases the zeros after a clean end, and syncs.
    fn settle(&self, unproven: &[Range<usize>], tail: &Tail) -> Result<(), LogError> {
        for run in unproven {
            let again = self.bytes.get(run.clone()).unwrap_or_default();
            write_all(self.file, run.start as u64, again)
                .map_err(|source| LogError::write("write again", self.name, source))?;
        }
        if tail.remains == 0 && (tail.offset as u64) < self.len {
            let cut = self.file.set_len(tail.offset as u64);
            cut.map_err(|source| LogError::write("trim", self.name, source))?;
        }
        self.file.sync_data().map_err(|source| LogError::poisoned("sync", self.name, source))
    }
}

impl FoundSegment {
    /// Adds the last segment, and returns where the next begins.
    fn resume(self, resume: &mut Resume, recovery: &mut Recovery) {
        let Some(tail) = self.tail else {
            (resume.follows, resume.base) = (self.segment.end, self.segment.end);
            resume.segments.push_back(self.segment);
            return;
        };
        if self.segment.records == 0 && tail.remains == 0 && !self.segment.keep {
            // Empty: the next segment takes its place and its name.
            (resume.follows, resume.base) = (self.follows, self.base);
            return;
        }
        (resume.follows, resume.base) = (tail.sequence, tail.beyond);
        if tail.remains > 0 {
            recovery.torn = Some(TornTail {
                segment: self.segment.name.clone(),
                offset: tail.offset as u64,
                len: tail.remains as u64,
                intact: tail.intact,
            });
            // Numbers that the remains may have had are not given again; so the name is new, too.
            let borne = (tail.remains / RECORD_HEADER_LEN) as u64 + 1;
            resume.base = tail.beyond.max(tail.sequence + borne);
        }
        resume.segments.push_back(self.segment);
    }
}
