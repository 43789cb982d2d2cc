//! Bytes to records and fields, by `csv-core`.
//!
//! The dialect is RFC 4180 as the `csv` crate reads it: a field that begins with a quote ends with one, a
//! doubled quote inside stands for one, `\n`, `\r\n` and `\r` end a record, empty lines are not records, a
//! quote in the middle of a bare field is an ordinary character.
//!
//! Memory is bounded for any input: one chunk of input, [`RECORD_LEN_MAX`] bytes of fields and [`FIELDS_MAX`]
//! ends of fields. A longer record is skipped to its end and reported, never held.

use std::fmt;
use std::io::{self, Read};

use csv_core::{ReadRecordResult, Reader, ReaderBuilder};
use memchr::memchr_iter;

/// Longest record in bytes, without delimiters.
pub(super) const RECORD_LEN_MAX: usize = 1 << 20;

/// Most fields of a record.
pub(super) const FIELDS_MAX: usize = 1 << 14;

/// Longest field in bytes: the longest text of a column.
pub(super) const FIELD_LEN_MAX: usize = gpuvitals_core::wire::TEXT_LEN_MAX;

/// Bytes requested at once.
const CHUNK_LEN: usize = 128 << 10;

/// Result of a step of the splitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SplitStep {
    /// A record; its fields can be read until the next step.
    Record,
    /// A record that is too long or has too many fields, and is dropped: its longest field, that field's
    /// length in bytes, and the record's.
    Oversize { field: usize, field_len: usize, record_len: usize },
    /// The rest of the input is one record whose last field has no closing quote.
    Unclosed { field: usize },
    /// [`Splitter::fill`] must be called first.
    NeedInput,
    /// The input has ended.
    End,
}

/// Splits an input into records and fields.
pub(super) struct Splitter {
    input: Box<dyn Read + Send>,
    reader: Reader,
    chunk: Vec<u8>,
    /// The part of the chunk that has been read and not yet split.
    next: usize,
    end: usize,
    ended: bool,
    /// The fields of the record concatenated, without quotes, and their ends.
    text: Vec<u8>,
    ends: Vec<usize>,
    text_len: usize,
    fields: usize,
    /// Whether a part of the record has been split already.
    begun: bool,
    /// Set while a record that is too long is skipped.
    passed: Option<Lengths>,
    /// The input ended in the current record, before an end of its line.
    is_unended: bool,
    /// Stands around fields beside what quotes them by the rule: single quotes, or double ones behind a blank.
    quote: Option<u8>,
    /// Line on which the record begins, and the current one.
    record_line: u64,
    line: u64,
}

/// Lengths of a record's fields.
#[derive(Debug, Clone, Copy, Default)]
struct Lengths {
    fields: usize,
    record_len: usize,
    /// Where the last whole field ends.
    field_start: usize,
    /// The longest field and its length.
    longest: (usize, usize),
}

impl Lengths {
    /// Takes ends of fields, counted from the start of the record.
    fn take(&mut self, ends: &[usize]) {
        for &end in ends {
            let len = end - self.field_start;
            if len > self.longest.1 {
                self.longest = (self.fields, len);
            }
            self.fields += 1;
            self.field_start = end;
        }
        self.record_len = self.field_start;
    }
}

impl fmt::Debug for Splitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Splitter")
            .field("line", &self.line)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Splitter {
    /// A splitter of comma-separated fields at line 1.
    pub(super) fn new(input: Box<dyn Read + Send>) -> Self {
        Self {
            input,
            reader: Reader::new(),
            chunk: vec![0; CHUNK_LEN],
            next: 0,
            end: 0,
            ended: false,
            text: vec![0; 1 << 12],
            ends: vec![0; 1 << 6],
            text_len: 0,
            fields: 0,
            begun: false,
            passed: None,
            is_unended: false,
            quote: None,
            record_line: 1,
            line: 1,
        }
    }

    /// Sets the delimiter; call it before the first step.
    pub(super) fn set_delimiter(&mut self, delimiter: u8) {
        self.reader = ReaderBuilder::new().delimiter(delimiter).build();
    }

    /// What stands around fields and is taken for a blank there.
    pub(super) fn set_quote(&mut self, quote: Option<u8>) {
        self.quote = quote;
    }

    /// What was set.
    pub(super) fn quote(&self) -> Option<u8> {
        self.quote
    }

    /// Bytes that have been read and not yet split.
    pub(super) fn ahead(&self) -> &[u8] {
        self.chunk.get(self.next..self.end).unwrap_or_default()
    }

    /// Skips bytes that belong to no record (a byte order mark).
    pub(super) fn pass_over(&mut self, len: usize) {
        self.next = (self.next + len).min(self.end);
    }

    /// Skips a line that belongs to no record, and empty ones before it.
    pub(super) fn pass_line(&mut self) {
        self.pass_line_ends();
        let len = memchr::memchr2(b'\n', b'\r', self.ahead()).unwrap_or(self.ahead().len());
        self.next += len;
        self.pass_line_ends();
    }

    /// Line on which the current record begins, from 1.
    pub(super) fn record_line(&self) -> u64 {
        self.record_line
    }

    /// The fields of the current record, concatenated.
    pub(super) fn text(&self) -> &[u8] {
        self.text.get(..self.text_len).unwrap_or_default()
    }

    /// The first field of the current record that is not UTF-8.
    pub(super) fn not_text(&self) -> Option<usize> {
        if self.text().is_ascii() {
            return None;
        }
        (0..self.fields).find(|index| std::str::from_utf8(self.field(*index)).is_err())
    }

    /// Whether the input ended in the current record: no end of a line says that it is whole.
    pub(super) fn is_unended(&self) -> bool {
        self.is_unended
    }

    /// Number of fields of the current record.
    pub(super) fn len(&self) -> usize {
        self.fields
    }

    /// The content of a field.
    pub(super) fn field(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(index).filter(|_| index < self.fields);
        end.and_then(|end| self.text.get(start..*end)).unwrap_or_default()
    }

    /// Reads one more chunk; returns the number of bytes, 0 at the end of the input.
    ///
    /// # Errors
    /// If the input cannot be read.
    pub(super) fn fill(&mut self) -> io::Result<usize> {
        self.chunk.copy_within(self.next..self.end, 0);
        self.end -= self.next;
        self.next = 0;
        if self.chunk.len() - self.end < CHUNK_LEN / 2 {
            self.chunk.resize((self.chunk.len() * 2).min(RECORD_LEN_MAX + CHUNK_LEN), 0);
        }
        let free = self.chunk.get_mut(self.end..).unwrap_or_default();
        if free.is_empty() {
            return Ok(0);
        }
        let read = loop {
            match self.input.read(free) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome?,
            }
        };
        self.ended = read == 0;
        self.end += read.min(free.len());
        Ok(read)
    }

    /// Goes to the next record.
    pub(super) fn step(&mut self) -> SplitStep {
        if !self.begun {
            (self.text_len, self.fields) = (0, 0);
            self.pass_line_ends();
            self.record_line = self.line;
        }
        loop {
            let at_end = self.next == self.end;
            if at_end && !self.ended {
                return SplitStep::NeedInput;
            }
            if at_end && !self.begun {
                return SplitStep::End;
            }
            let result = self.read_on(at_end);
            let full = matches!(result, ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull);
            if result == ReadRecordResult::Record {
                self.begun = false;
                self.is_unended = at_end;
                return self.close();
            }
            if at_end && !full {
                // The added line end did not end the record: it is inside quotes.
                self.begun = false;
                let field = self.passed.take().map_or(self.fields, |passed| passed.fields);
                return SplitStep::Unclosed { field };
            }
            if full {
                self.make_room();
            }
        }
    }

    /// Splits the chunk. At the end of the input a line end is added, which ends every record but an unclosed
    /// one.
    fn read_on(&mut self, at_end: bool) -> ReadRecordResult {
        let input = if at_end { b"\n" } else { self.chunk.get(self.next..self.end).unwrap_or_default() };
        let text = self.text.get_mut(self.text_len..).unwrap_or_default();
        let ends = self.ends.get_mut(self.fields..).unwrap_or_default();
        let (result, read, written, ended) = self.reader.read_record(input, text, ends);
        self.begun = true;
        if !at_end {
            let lines = memchr_iter(b'\n', input.get(..read).unwrap_or_default()).count();
            self.line += u64::try_from(lines).unwrap_or(0);
            self.next += read;
        }
        if let Some(passed) = &mut self.passed {
            passed.take(ends.get(..ended).unwrap_or_default());
        } else {
            self.text_len += written;
            self.fields += ended;
        }
        result
    }

    /// Empty lines are not records.
    fn pass_line_ends(&mut self) {
        while let Some(byte @ (b'\n' | b'\r')) = self.ahead().first() {
            self.line += u64::from(*byte == b'\n');
            self.next += 1;
        }
    }

    /// Makes room for more of the record, or begins to skip it.
    fn make_room(&mut self) {
        let (text_len, ends_len) = (self.text.len(), self.ends.len());
        if self.text_len == text_len && text_len < RECORD_LEN_MAX {
            self.text.resize(text_len * 2, 0);
        } else if self.fields == ends_len && ends_len < FIELDS_MAX {
            self.ends.resize(ends_len * 2, 0);
        } else if self.passed.is_none() {
            self.passed = Some(self.lengths());
            (self.text_len, self.fields) = (0, 0);
        }
    }

    fn lengths(&self) -> Lengths {
        let mut lengths = Lengths::default();
        lengths.take(self.ends.get(..self.fields).unwrap_or_default());
        lengths
    }

    /// Puts blanks for quotes around fields.
    fn blank(&mut self, quote: u8) {
        let mut start = 0;
        for end in self.ends.iter().take(self.fields) {
            let field = self.text.get_mut(start..*end).unwrap_or_default();
            start = *end;
            if is_quoted(field, quote) {
                let ends = [
                    field.iter().position(|byte| *byte == quote),
                    field.iter().rposition(|byte| *byte == quote),
                ];
                for at in ends.into_iter().flatten() {
                    if let Some(byte) = field.get_mut(at) {
                        *byte = b' ';
                    }
                }
            }
        }
    }

    /// The end of a record: it can be read, or was too long.
    fn close(&mut self) -> SplitStep {
        let passed = self.passed.take();
        if let Some(quote) = self.quote {
            self.blank(quote);
        }
        if passed.is_none() && self.text_len <= FIELD_LEN_MAX {
            return SplitStep::Record;
        }
        let is_held = passed.is_none();
        let Lengths { longest: (field, field_len), record_len, .. } =
            passed.unwrap_or_else(|| self.lengths());
        if is_held && field_len <= FIELD_LEN_MAX {
            return SplitStep::Record;
        }
        (self.text_len, self.fields) = (0, 0);
        SplitStep::Oversize { field, field_len, record_len }
    }
}

/// Whether a field begins and ends with a quote, but for blanks.
pub(super) fn is_quoted(field: &[u8], quote: u8) -> bool {
    matches!(field.trim_ascii(), [first, .., last] if *first == quote && *last == quote)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns a few bytes at a time.
    struct Trickle(Vec<u8>, usize, usize);

    impl Read for Trickle {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let n = self.2.min(to.len()).min(self.0.len() - self.1);
            to[..n].copy_from_slice(&self.0[self.1..self.1 + n]);
            self.1 += n;
            Ok(n)
        }
    }

    fn split(text: &[u8], chunk: usize) -> (Vec<Vec<Vec<u8>>>, Vec<u64>, Vec<SplitStep>) {
        let mut splitter = Splitter::new(Box::new(Trickle(text.to_vec(), 0, chunk)));
        let (mut records, mut lines, mut other) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            match splitter.step() {
                SplitStep::NeedInput => {
                    splitter.fill().unwrap();
                }
                SplitStep::End => return (records, lines, other),
                SplitStep::Record => {
                    records.push((0..splitter.len()).map(|i| splitter.field(i).to_vec()).collect());
                    lines.push(splitter.record_line());
                }
                step => {
                    other.push(step);
                    lines.push(splitter.record_line());
                }
            }
            assert!(splitter.chunk.len() <= RECORD_LEN_MAX + CHUNK_LEN);
            assert!(splitter.text.len() <= RECORD_LEN_MAX && splitter.ends.len() <= FIELDS_MAX);
        }
    }

    fn by_csv_crate(text: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text);
        reader.byte_records().map(|r| r.unwrap().iter().map(<[u8]>::to_vec).collect()).collect()
    }

    #[test]
    fn fields_quotes_and_lines() {
        let check = |text: &str, expected: &[&[&str]], lines: &[u64]| {
            let (records, at, _) = split(text.as_bytes(), 7);
            let expected: Vec<Vec<Vec<u8>>> =
                expected.iter().map(|r| r.iter().map(|f| f.as_bytes().to_vec()).collect()).collect();
            assert_eq!(records, expected, "{text:?}");
            assert_eq!(at, lines, "{text:?}");
        };
        check("a,b\r\n\r\nc,\n", &[&["a", "b"], &["c", ""]], &[1, 3]);
        check("a\rb\r\n\nc", &[&["a"], &["b"], &["c"]], &[1, 1, 3]);
        check("\"a,\"\"x\"\"\",\"l1\nl2\"\nz", &[&["a,\"x\"", "l1\nl2"], &["z"]], &[1, 3]);
        check("\"ab\"cd\"e,f", &[&["abcd\"e", "f"]], &[1]);
        check("x\"y,\"\"\n", &[&["x\"y", ""]], &[1]);
    }

    #[test]
    fn a_record_that_is_too_long_is_passed_over() {
        let mut text = b"a,b\n1,\"".to_vec();
        text.extend(std::iter::repeat_n(b'x', 10 << 20));
        text.extend(b"\ny\",2\n3,4\n");
        let (records, lines, other) = split(&text, 1 << 16);
        assert_eq!(records.len(), 2);
        assert_eq!(lines, [1, 2, 4]);
        let field_len = (10 << 20) + 2;
        assert_eq!(other, [SplitStep::Oversize { field: 1, field_len, record_len: field_len + 2 }]);
        let long_field = format!("a,{}\nb\n", "y".repeat(FIELD_LEN_MAX + 1));
        let (records, _, other) = split(long_field.as_bytes(), 1 << 16);
        assert_eq!(records.len(), 1);
        let field_len = FIELD_LEN_MAX + 1;
        assert_eq!(other, [SplitStep::Oversize { field: 1, field_len, record_len: field_len + 1 }]);
    }

    #[test]
    fn a_record_with_too_many_fields_is_passed_over() {
        let text = format!("a\n{}b\nc\n", ",".repeat(3 * FIELDS_MAX));
        let (records, lines, other) = split(text.as_bytes(), 1 << 10);
        assert_eq!((records.len(), lines.as_slice()), (2, &[1, 2, 3][..]));
        assert_eq!(other, [SplitStep::Oversize { field: 3 * FIELDS_MAX, field_len: 1, record_len: 1 }]);
        let (records, _, other) = split(",".repeat(FIELDS_MAX - 1).as_bytes(), 1 << 10);
        assert_eq!((records[0].len(), other.len()), (FIELDS_MAX, 0));
    }

    #[test]
    fn a_quote_that_is_never_closed_is_reported() {
        let (records, lines, other) = split(b"a,b\n1,\"2\n3,4\n", 5);
        assert_eq!((records.len(), lines.as_slice()), (1, &[1, 2][..]));
        assert_eq!(other, [SplitStep::Unclosed { field: 1 }]);
        let mut text = b"1,\"".to_vec();
        text.extend(std::iter::repeat_n(b'x', RECORD_LEN_MAX));
        assert_eq!(split(&text, 1 << 16).2, [SplitStep::Unclosed { field: 1 }]);
    }

    proptest! {
        #[test]
        fn agrees_with_the_csv_crate(
            text in proptest::collection::vec(prop::sample::select(&b"ab1,\"\"\n\r ;\xff"[..]), 0..200),
            chunk in 1_usize..40,
        ) {
            let (records, _, other) = split(&text, chunk);
            let mut expected = by_csv_crate(&text);
            if matches!(other[..], [SplitStep::Unclosed { .. }]) {
                expected.pop();
            }
            prop_assert_eq!(records, expected);
        }
    }
}
