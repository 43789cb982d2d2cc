//! The beginning of a file, which is looked at before any row is taken, and the reader that begins with it again.

use std::io::{self, Cursor, Read};
use std::sync::Arc;

use super::text::{self, ByteOrder, PEEK_LEN, TextKind, Utf16};

/// Bytes at the beginning of a file that are looked at.
pub(super) const HEAD_LEN_MAX: usize = 4 << 20;
/// Bytes requested at once: as many as the splitter requests.
const CHUNK_LEN: usize = 128 << 10;

/// Lines of a stream without values after which no row is waited for.
const NAMELESS_MAX: usize = 8;

/// How the beginning of an input ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadEnd {
    /// It is the whole input.
    All,
    /// With a whole line; there may be more.
    Line,
    /// Somewhere; there is more.
    Cut,
}

/// The beginning of an input.
pub(super) struct InputHead {
    /// Its bytes, as CSV.
    pub(super) bytes: Arc<[u8]>,
    pub(super) end: HeadEnd,
    pub(super) kind: TextKind,
    /// The whole input as CSV, from its first byte.
    pub(super) reader: Box<dyn Read + Send>,
}

/// How much of an input is its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeadReach {
    /// As much as is looked at of a file.
    Full,
    /// Of a stream only what comes with its first row, so that a live one is not waited for.
    FirstRow,
}

impl InputHead {
    /// Reads the beginning.
    pub(super) fn read(mut input: Box<dyn Read + Send>, reach: HeadReach) -> Self {
        let (mut peeked, ended) = read_until(&mut input, PEEK_LEN, reach);
        let mark = match peeked.first_chunk() {
            Some([0xff, 0xfe]) => Some(ByteOrder::Little),
            Some([0xfe, 0xff]) => Some(ByteOrder::Big),
            _ => None,
        };
        let mut reader = again(peeked.clone(), ended, input);
        if let Some(order) = mark {
            let mut behind = Vec::new();
            let _skipped = reader.by_ref().take(2).read_to_end(&mut behind);
            reader = Box::new(Utf16::new(reader, order));
            let (decoded, ended) = read_until(&mut reader, PEEK_LEN, reach);
            peeked = decoded;
            reader = again(peeked.clone(), ended, reader);
        }
        let kind = text::kind(&peeked);
        let mut reader = text::as_csv(kind, reader);
        let (bytes, ended) = read_until(&mut reader, HEAD_LEN_MAX, reach);
        let end = match ended {
            HeadEnded::Whole => HeadEnd::All,
            _ if bytes.ends_with(b"\n") => HeadEnd::Line,
            _ => HeadEnd::Cut,
        };
        let reader = again(bytes.clone(), ended, reader);
        Self { bytes: bytes.into(), end, kind, reader }
    }
}

/// How reading the beginning ended.
enum HeadEnded {
    /// There is more.
    Open,
    /// There is no more.
    Whole,
    /// Reading failed, which is for the reader of the rest to say.
    Broken(io::Error),
}

fn read_until(reader: &mut dyn Read, len: usize, reach: HeadReach) -> (Vec<u8>, HeadEnded) {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; CHUNK_LEN];
    loop {
        if bytes.len() >= len || (reach == HeadReach::FirstRow && has_row(&bytes)) {
            return (bytes, HeadEnded::Open);
        }
        match reader.read(&mut chunk) {
            Ok(0) => return (bytes, HeadEnded::Whole),
            Ok(read) => bytes.extend_from_slice(chunk.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (bytes, HeadEnded::Broken(error)),
        }
    }
}

/// Whether a whole line has values: they tell what the columns are. Names, titles and comments have no field that begins with
/// a digit. A text that is no table is known by its first line.
fn has_row(bytes: &[u8]) -> bool {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let ended = bytes.iter().rposition(is_end).unwrap_or(0);
    let lines = bytes.get(..ended).unwrap_or_default().split(is_end).map(<[u8]>::trim_ascii);
    let lines = lines.filter(|line| line.len() > 1 && !line.starts_with(b"#"));
    let mut seen = 0;
    lines.take(NAMELESS_MAX).any(|line| {
        let is_value = |field: &[u8]| {
            let mut bytes = field.iter().filter(|byte| !b"\0\"'+-".contains(byte));
            bytes.next().is_some_and(u8::is_ascii_digit)
        };
        // JSON, XML, a sample with labels.
        let is_foreign = line.first().is_some_and(|byte| b"[<".contains(byte)) || line.contains(&b'{');
        let is_mark = |byte: &u8| b",;\t|".contains(byte);
        let is_parted = line.iter().any(is_mark);
        let mut fields = line.split(|byte| is_mark(byte) || (!is_parted && *byte == b' '));
        seen += 1;
        seen == NAMELESS_MAX || is_foreign || fields.any(is_value)
    })
}

/// A reader that begins with what was read.
fn again(bytes: Vec<u8>, ended: HeadEnded, rest: Box<dyn Read + Send>) -> Box<dyn Read + Send> {
    let begun = Cursor::new(bytes);
    match ended {
        HeadEnded::Open => Box::new(begun.chain(rest)),
        HeadEnded::Whole => Box::new(begun),
        HeadEnded::Broken(error) => Box::new(begun.chain(Broken(Some(error)))),
    }
}

/// An input that fails.
struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _to: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}
