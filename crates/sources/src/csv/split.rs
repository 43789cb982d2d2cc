//! Bytes to records and fields: a CSV splitter over one buffer that is refilled.
//!
//! The dialect is RFC 4180 as the `csv` crate reads it: a field that begins with a quote ends with one, a doubled
//! quote inside stands for one, `\n`, `\r\n` and `\r` end a record, empty lines are no records, a quote in the
//! middle of a bare field is a character like any other. Fields stay where they are in the buffer; only those with
//! doubled quotes have to be copied, and only when somebody asks for their text.
//!
//! Memory is bounded whatever the input: the buffer holds at most [`RECORD_LEN_MAX`] and one chunk. A longer record
//! is walked through to its end and reported, never held.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;

use memchr::{memchr, memchr_iter, memchr3};

use super::unquote;

/// Longest record in bytes.
pub(super) const RECORD_LEN_MAX: usize = 1 << 20;

/// Longest field in bytes: what a column of texts can hold.
pub(super) const FIELD_LEN_MAX: usize = gpuvitals_core::wire::TEXT_LEN_MAX;

/// Bytes asked for at once.
const CHUNK_LEN: usize = 128 << 10;

/// How a field lies in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// As it is.
    Bare,
    /// Between its quotes, with doubled quotes in it.
    Doubled,
    /// From its opening quote on, with bare characters after the closing one.
    Mended,
}

#[derive(Debug, Clone, Copy)]
struct Field {
    start: usize,
    end: usize,
    form: Form,
}

/// What the splitter came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A record; its fields can be read until the next step.
    Record,
    /// A record that is too long, of which nothing is kept: its longest field and that field's length in bytes.
    Oversize { field: usize, field_len: u64, record_len: u64 },
    /// The rest of the input is one record whose last field has no closing quote.
    Unclosed { field: usize },
    /// [`Splitter::fill`] must be called first.
    NeedInput,
    /// The input has ended.
    End,
}

/// Where the walk through a record that is too long stands.
#[derive(Debug, Clone, Copy)]
struct Walk {
    state: WalkState,
    field: usize,
    field_len: u64,
    longest: (usize, u64),
    len: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WalkState {
    FieldStart,
    Bare,
    Quoted,
    QuoteInQuoted,
}

/// The splitter.
pub(super) struct Splitter {
    input: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// Start of the current record.
    start: usize,
    /// Start of the record after it.
    next: usize,
    /// End of what has been read.
    end: usize,
    ended: bool,
    delimiter: u8,
    fields: Vec<Field>,
    /// Where the record's bytes end, without its terminator.
    record_end: usize,
    record_line: u64,
    line: u64,
    after_return: bool,
    walk: Option<Walk>,
    /// All bytes of the record (and a few more) in one: whether any can be other than ASCII.
    union: u64,
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
            buffer: vec![0; CHUNK_LEN],
            start: 0,
            next: 0,
            end: 0,
            ended: false,
            delimiter: b',',
            fields: Vec::new(),
            record_end: 0,
            record_line: 1,
            line: 1,
            after_return: false,
            walk: None,
            union: 0,
        }
    }

    /// What separates the fields from now on.
    pub(super) fn set_delimiter(&mut self, delimiter: u8) {
        self.delimiter = delimiter;
    }

    /// What has been read and not yet split.
    pub(super) fn ahead(&self) -> &[u8] {
        self.buffer.get(self.next..self.end).unwrap_or_default()
    }

    /// Passes over bytes that belong to no record (a byte order mark).
    pub(super) fn pass_over(&mut self, len: usize) {
        self.next = (self.next + len).min(self.end);
    }

    /// Line on which the current record begins, from 1.
    pub(super) fn record_line(&self) -> u64 {
        self.record_line
    }

    /// The bytes of the current record.
    pub(super) fn record(&self) -> &[u8] {
        self.bytes(self.start..self.record_end)
    }

    /// The text of the current record.
    ///
    /// # Errors
    /// When it is not UTF-8: after how many bytes that shows.
    pub(super) fn check_text(&self) -> Result<(), usize> {
        if self.union & 0x8080_8080_8080_8080 == 0 {
            return Ok(());
        }
        std::str::from_utf8(self.record()).map(|_| ()).map_err(|error| error.valid_up_to())
    }

    /// Number of fields of the current record.
    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    /// The bytes of a field as they stand in the file, without surrounding quotes; quotes inside may be doubled.
    pub(super) fn raw(&self, index: usize) -> &[u8] {
        self.fields.get(index).map_or(&[], |field| self.bytes(field.start..field.end))
    }

    /// Up to eight bytes of a field as one word, the first lowest, and how many there are; `None` when it is longer or
    /// the buffer ends too near.
    #[inline]
    pub(super) fn word(&self, index: usize) -> Option<(u64, usize)> {
        let field = self.fields.get(index)?;
        let bytes = self.buffer.get(field.start..field.start + 8)?;
        let len = field.end - field.start;
        (len <= 8).then_some((u64::from_le_bytes(bytes.try_into().ok()?), len))
    }

    /// The content of a field.
    pub(super) fn field(&self, index: usize) -> Cow<'_, [u8]> {
        let Some(field) = self.fields.get(index) else { return Cow::Borrowed(&[]) };
        let raw = self.bytes(field.start..field.end);
        match field.form {
            Form::Bare => Cow::Borrowed(raw),
            Form::Doubled => Cow::Owned(unquote::undoubled(raw)),
            Form::Mended => Cow::Owned(unquote::mended(raw)),
        }
    }

    /// Reads one chunk behind what is there; returns how many bytes came, 0 at the end of the input. The current
    /// record is gone afterwards.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub(super) fn fill(&mut self) -> io::Result<usize> {
        self.fields.clear();
        self.buffer.copy_within(self.next..self.end, 0);
        self.end -= self.next;
        (self.start, self.next, self.record_end) = (0, 0, 0);
        if self.buffer.len() - self.end < CHUNK_LEN / 2 {
            self.buffer.resize((self.buffer.len() * 2).min(RECORD_LEN_MAX + CHUNK_LEN), 0);
        }
        let free = self.buffer.get_mut(self.end..).unwrap_or_default();
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
    pub(super) fn step(&mut self) -> Step {
        self.fields.clear();
        if let Some(walk) = self.walk {
            return self.walk_on(walk);
        }
        self.pass_empty_lines();
        self.start = self.next;
        self.record_end = self.start;
        self.record_line = self.line;
        if self.ended && self.start == self.end {
            return Step::End;
        }
        match self.split_bare() {
            Some((_, Some(b'"'))) => {
                self.fields.clear();
                self.union = u64::MAX;
                self.split_quoted()
            }
            Some((at, terminator)) => self.close(at, terminator),
            None => self.need_input(),
        }
    }

    fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    fn pass_empty_lines(&mut self) {
        while self.next < self.end {
            match self.buffer.get(self.next) {
                Some(b'\n') => self.line += u64::from(!self.after_return),
                Some(b'\r') => self.line += 1,
                _ => break,
            }
            self.after_return = self.buffer.get(self.next) == Some(&b'\r');
            self.next += 1;
        }
        if self.next < self.end {
            self.after_return = false;
        }
    }

    /// Splits a record without quoted fields: where it ends, and the terminator (none at the end of the input) or the
    /// quote that begins a field after all. `None` when the record is not wholly there.
    fn split_bare(&mut self) -> Option<(usize, Option<u8>)> {
        let ahead = self.buffer.get(self.start..self.end).unwrap_or_default();
        let mut from = self.start;
        let (words, rest) = ahead.as_chunks::<8>();
        self.union = 0;
        for (index, bytes) in words.iter().enumerate() {
            let word = u64::from_le_bytes(*bytes);
            self.union |= word;
            let mut marks = marks(word, self.delimiter);
            while marks != 0 {
                let within = (marks.trailing_zeros() / 8) as usize;
                marks &= marks - 1;
                let byte = bytes.get(within).copied().unwrap_or_default();
                let at = self.start + index * 8 + within;
                if meet(byte, at, self.delimiter, &mut from, &mut self.fields) {
                    return Some((at, Some(byte)));
                }
            }
        }
        for (at, &byte) in (self.end - rest.len()..).zip(rest) {
            self.union |= u64::from(byte);
            if meet(byte, at, self.delimiter, &mut from, &mut self.fields) {
                return Some((at, Some(byte)));
            }
        }
        if !self.ended {
            return None;
        }
        self.fields.push(Field { start: from, end: self.end, form: Form::Bare });
        Some((self.end, None))
    }

    fn split_quoted(&mut self) -> Step {
        let mut at = self.start;
        loop {
            let field = if self.buffer.get(at).filter(|_| at < self.end) == Some(&b'"') {
                match self.quoted(at) {
                    Ok(field) => field,
                    Err(step) => return step,
                }
            } else {
                Field { start: at, end: self.bare_end(at), form: Form::Bare }
            };
            let after = field.end + usize::from(field.form != Form::Mended && field.start > at);
            if after >= self.end && !self.ended {
                return self.need_input();
            }
            self.fields.push(field);
            match self.buffer.get(after).filter(|_| after < self.end) {
                Some(&byte) if byte == self.delimiter => at = after + 1,
                terminator => {
                    let terminator = terminator.copied();
                    self.line +=
                        memchr_iter(b'\n', self.bytes(self.start..after)).count().try_into().unwrap_or(0);
                    return self.close(after, terminator);
                }
            }
        }
    }

    /// Where a bare field (or the rest of a mended one) that begins at `from` ends.
    fn bare_end(&self, from: usize) -> usize {
        memchr3(self.delimiter, b'\n', b'\r', self.bytes(from..self.end)).map_or(self.end, |at| from + at)
    }

    /// The field whose opening quote stands at `open`.
    fn quoted(&mut self, open: usize) -> Result<Field, Step> {
        let mut from = open + 1;
        let mut form = Form::Bare;
        loop {
            let Some(at) = memchr(b'"', self.bytes(from..self.end)) else {
                if !self.ended {
                    return Err(self.need_input());
                }
                self.next = self.end;
                return Err(Step::Unclosed { field: self.fields.len() });
            };
            let close = from + at;
            match self.buffer.get(close + 1).filter(|_| close + 1 < self.end) {
                Some(b'"') => {
                    form = Form::Doubled;
                    from = close + 2;
                }
                Some(&byte) if byte == self.delimiter || byte == b'\n' || byte == b'\r' => {
                    return Ok(Field { start: open + 1, end: close, form });
                }
                None => return Ok(Field { start: open + 1, end: close, form }),
                Some(_) => {
                    return Ok(Field { start: open, end: self.bare_end(close + 1), form: Form::Mended });
                }
            }
        }
    }

    fn close(&mut self, end: usize, terminator: Option<u8>) -> Step {
        self.record_end = end;
        self.next = end + usize::from(terminator.is_some());
        self.after_return = terminator == Some(b'\r');
        self.line += 1;
        let len = end - self.start;
        if len <= FIELD_LEN_MAX {
            return Step::Record;
        }
        let longest = self.fields.iter().map(|field| field.end - field.start).enumerate().max_by_key(|l| l.1);
        match longest {
            Some((field, field_len)) if field_len > FIELD_LEN_MAX || len > RECORD_LEN_MAX => Step::Oversize {
                field,
                field_len: field_len.try_into().unwrap_or(u64::MAX),
                record_len: len.try_into().unwrap_or(u64::MAX),
            },
            _ => Step::Record,
        }
    }

    /// The record is not wholly there: more input, or, when it is already too long, a walk to its end.
    fn need_input(&mut self) -> Step {
        self.fields.clear();
        if self.end - self.start <= RECORD_LEN_MAX {
            return Step::NeedInput;
        }
        self.walk_on(Walk { state: WalkState::FieldStart, field: 0, field_len: 0, longest: (0, 0), len: 0 })
    }

    fn walk_on(&mut self, mut walk: Walk) -> Step {
        let (mut passed, mut terminator) = (0, None);
        for &byte in self.buffer.get(self.next..self.end).unwrap_or_default() {
            passed += 1;
            walk.len += 1;
            let ends_line = byte == b'\n' || byte == b'\r';
            let quoted = walk.state == WalkState::Quoted;
            match (walk.state, byte) {
                (WalkState::FieldStart | WalkState::QuoteInQuoted, b'"') => walk.state = WalkState::Quoted,
                (WalkState::Quoted, b'"') => walk.state = WalkState::QuoteInQuoted,
                (WalkState::Quoted, b'\n') => self.line += 1,
                (WalkState::Quoted, _) => {}
                _ if ends_line => {
                    terminator = Some(byte);
                    break;
                }
                (_, b) if b == self.delimiter => {
                    walk.end_field();
                    walk.state = WalkState::FieldStart;
                    continue;
                }
                _ => walk.state = WalkState::Bare,
            }
            let marks = byte == b'"' && (quoted || walk.field_len == 0);
            walk.field_len += u64::from(!marks || walk.state == WalkState::Bare);
        }
        self.next += passed;
        if terminator.is_none() && !self.ended {
            self.walk = Some(walk);
            return Step::NeedInput;
        }
        self.walk = None;
        if terminator.is_none() && walk.state == WalkState::Quoted {
            return Step::Unclosed { field: walk.field };
        }
        walk.end_field();
        self.line += 1;
        self.after_return = terminator == Some(b'\r');
        Step::Oversize { field: walk.longest.0, field_len: walk.longest.1, record_len: walk.len }
    }
}

impl Walk {
    fn end_field(&mut self) {
        if self.field_len > self.longest.1 {
            self.longest = (self.field, self.field_len);
        }
        self.field += 1;
        self.field_len = 0;
    }
}

/// Takes a byte of a record of bare fields, the current of which began at `from`; `true` when splitting ends there.
#[inline]
fn meet(byte: u8, at: usize, delimiter: u8, from: &mut usize, fields: &mut Vec<Field>) -> bool {
    let ends_record = matches!(byte, b'\n' | b'\r');
    if byte == delimiter || ends_record {
        fields.push(Field { start: *from, end: at, form: Form::Bare });
        *from = at + 1;
    }
    ends_record || (byte == b'"' && at == *from)
}

/// The high bit of each byte that is the delimiter, a quote or a control character.
#[inline]
fn marks(word: u64, delimiter: u8) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW: u64 = ONES * 0x7f;
    let is = |byte: u8| {
        let difference = word ^ (ONES * u64::from(byte));
        !(((difference & LOW) + LOW) | difference)
    };
    let control = !(((word & LOW) + ONES * 0x60) | word);
    (is(delimiter) | is(b'"') | control) & (ONES * 0x80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Hands out a few bytes at a time.
    struct Trickle(Vec<u8>, usize, usize);

    impl Read for Trickle {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let n = self.2.min(to.len()).min(self.0.len() - self.1);
            to[..n].copy_from_slice(&self.0[self.1..self.1 + n]);
            self.1 += n;
            Ok(n)
        }
    }

    fn split(text: &[u8], chunk: usize) -> (Vec<Vec<Vec<u8>>>, Vec<u64>, Vec<Step>) {
        let mut splitter = Splitter::new(Box::new(Trickle(text.to_vec(), 0, chunk)));
        let (mut records, mut lines, mut other) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            match splitter.step() {
                Step::NeedInput => {
                    splitter.fill().unwrap();
                }
                Step::End => return (records, lines, other),
                Step::Record => {
                    records.push((0..splitter.len()).map(|i| splitter.field(i).into_owned()).collect());
                    lines.push(splitter.record_line());
                }
                step => {
                    other.push(step);
                    lines.push(splitter.record_line());
                }
            }
            assert!(splitter.buffer.len() <= RECORD_LEN_MAX + CHUNK_LEN);
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
        check("a\rb\r\n\nc", &[&["a"], &["b"], &["c"]], &[1, 2, 4]);
        check("\"a,\"\"x\"\"\",\"l1\nl2\"\nz", &[&["a,\"x\"", "l1\nl2"], &["z"]], &[1, 3]);
        check("\"ab\"cd\"e,f", &[&["abcd\"e", "f"]], &[1]);
        check("x\"y,\"\"\n", &[&["x\"y", ""]], &[1]);
    }

    #[test]
    fn a_record_that_is_too_long_is_walked_through() {
        let mut text = b"a,b\n1,\"".to_vec();
        text.extend(std::iter::repeat_n(b'x', 10 << 20));
        text.extend(b"\ny\",2\n3,4\n");
        let (records, lines, other) = split(&text, 1 << 16);
        assert_eq!(records.len(), 2);
        assert_eq!(lines, [1, 2, 4]);
        assert_eq!(other.len(), 1);
        assert!(
            matches!(other[0], Step::Oversize { field: 1, field_len, .. } if field_len == (10 << 20) + 2)
        );
        let long_field = format!("a,{}\nb\n", "y".repeat(FIELD_LEN_MAX + 1));
        let (records, _, other) = split(long_field.as_bytes(), 1 << 16);
        assert_eq!(records.len(), 1);
        let field_len = FIELD_LEN_MAX as u64 + 1;
        assert_eq!(other, [Step::Oversize { field: 1, field_len, record_len: field_len + 2 }]);
    }

    #[test]
    fn a_quote_that_is_never_closed_is_said() {
        let (records, lines, other) = split(b"a,b\n1,\"2\n3,4\n", 5);
        assert_eq!((records.len(), lines.as_slice()), (1, &[1, 2][..]));
        assert_eq!(other, [Step::Unclosed { field: 1 }]);
    }

    proptest! {
        #[test]
        fn agrees_with_the_csv_crate(
            text in proptest::collection::vec(prop::sample::select(&b"ab1,\"\"\n\r ;\xff"[..]), 0..200),
            chunk in 1_usize..40,
        ) {
            let (records, _, other) = split(&text, chunk);
            let mut expected = by_csv_crate(&text);
            if matches!(other[..], [Step::Unclosed { .. }]) {
                expected.pop();
            }
            prop_assert_eq!(records, expected);
        }
    }
}
