//! Text that is no CSV and can be read as it: UTF-16, Prometheus text, the tables of tools.
//!
//! Each becomes CSV while it is read, line by line.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read};

use gpuvitals_core::catalogue::{Metric, gpu_metrics};

use super::gpustat::{self, Gpustat};
use super::other;
use super::split::RECORD_LEN_MAX;
use super::stamped::{self, Stamped};
use super::tables::{self, TableKind, ToolTable};

/// Bytes at the beginning that tell what a text is.
pub(super) const PEEK_LEN: usize = 4 << 10;

/// What a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextKind {
    Csv,
    /// Scraped from an exporter; whether its samples have times.
    Prometheus {
        is_timed: bool,
    },
    /// A table that a tool prints.
    Table(TableKind),
    /// Lines of `gpustat`; whether some say when.
    Gpustat {
        is_headed: bool,
    },
    /// Tables below lines with a time.
    Stamped,
    /// It cannot be read: what it is, and what to do.
    Foreign(&'static str, &'static str),
}

/// What a text is that begins so.
pub(super) fn kind(head: &[u8]) -> TextKind {
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    if let Some((what, remedy)) = other::binary(head).or_else(|| other::text(text)) {
        return TextKind::Foreign(what, remedy);
    }
    if first.starts_with("# HELP ")
        || first.starts_with("# TYPE ")
        || sample(first).is_some_and(|it| !it.labels.is_empty())
    {
        let samples = text.lines().filter_map(sample);
        let is_timed = samples.take(8).any(|sample| sample.time.is_some());
        return TextKind::Prometheus { is_timed };
    }
    let second = lines.next().unwrap_or_default();
    if stamped::is_one([first, second].into_iter().chain(lines)) {
        return TextKind::Stamped;
    }
    if let Some(table) = tables::kind(first, second) {
        return TextKind::Table(table);
    }
    if let Some(is_headed) = gpustat::is_headed(first, second) {
        return TextKind::Gpustat { is_headed };
    }
    TextKind::Csv
}

/// The text as CSV.
pub(super) fn as_csv(kind: TextKind, reader: Box<dyn Read + Send>) -> Box<dyn Read + Send> {
    match kind {
        TextKind::Csv | TextKind::Foreign(..) => reader,
        TextKind::Prometheus { is_timed } => {
            let families = families();
            let mut begun = false;
            rewritten(reader, move |line, out| {
                if !begun {
                    begun = true;
                    out.push_str("metric_name,value,labels_raw");
                    out.push_str(if is_timed { ",timestamp\n" } else { "\n" });
                }
                if let Some(sample) = line.and_then(sample) {
                    sample.write(&families, is_timed, out);
                }
            })
        }
        TextKind::Gpustat { is_headed } => {
            let mut lines = Gpustat::new(is_headed);
            rewritten(reader, move |line, out| {
                if let Some(line) = line {
                    lines.line(line, out);
                }
            })
        }
        TextKind::Stamped => {
            let mut log = Stamped::default();
            rewritten(reader, move |line, out| {
                if let Some(line) = line {
                    log.line(line, out);
                }
            })
        }
        TextKind::Table(kind) => {
            let mut table = ToolTable::new(kind);
            rewritten(reader, move |line, out| match line {
                Some(line) => table.line(line, out),
                None => table.end(out),
            })
        }
    }
}

/// One line of Prometheus text.
struct PromSample<'a> {
    name: &'a str,
    labels: &'a str,
    value: &'a str,
    /// Milliseconds since 1970.
    time: Option<&'a str>,
}

fn sample(line: &str) -> Option<PromSample<'_>> {
    let line = line.trim();
    let len = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))?;
    let (name, rest) = line.split_at_checked(len).filter(|(name, _)| !name.is_empty())?;
    let (labels, rest) = match rest.trim_start().strip_prefix('{') {
        None => ("", rest),
        Some(rest) => {
            let (mut quoted, mut escaped) = (false, false);
            let end = rest.find(|c: char| {
                let ends = c == '}' && !quoted;
                if c == '"' && !escaped {
                    quoted = !quoted;
                }
                escaped = c == '\\' && !escaped;
                ends
            })?;
            (rest.get(..end)?, rest.get(end + 1..)?)
        }
    };
    let mut words = rest.split_whitespace();
    let (value, time) = (words.next()?, words.next());
    let is_number = value.parse::<f64>().is_ok() || matches!(value, "+Inf" | "-Inf");
    (is_number && words.next().is_none()).then_some(PromSample { name, labels, value, time })
}

/// Our own families: one name may have several metrics, told apart by labels.
fn families() -> HashMap<&'static str, Vec<&'static Metric>> {
    let mut families: HashMap<&str, Vec<&Metric>> = HashMap::new();
    for (_, metric) in gpu_metrics() {
        families.entry(metric.prometheus).or_default().push(metric);
    }
    families
}

impl PromSample<'_> {
    fn write(&self, families: &HashMap<&str, Vec<&Metric>>, is_timed: bool, out: &mut String) {
        let has = |(name, value): &(&str, &str)| self.labels.contains(&format!("{name}=\"{value}\""));
        let own = families.get(self.name).and_then(|metrics| {
            let fits = metrics.iter().filter(|metric| metric.labels.iter().all(has));
            fits.max_by_key(|metric| metric.labels.len())
        });
        match (own, self.value.parse::<f64>()) {
            (Some(metric), Ok(value)) => {
                let _written = write!(out, "{},{},", metric.column, value / metric.factor);
            }
            _ => {
                let _written = write!(out, "{},{},", self.name, self.value);
            }
        }
        let _written = write!(out, "\"{}\"", self.labels.replace('"', "\"\""));
        if is_timed {
            let _written = write!(out, ",{}", self.time.unwrap_or_default());
        }
        out.push('\n');
    }
}

/// Reads lines and gives what is made of them, and of the end.
struct Rewritten<F> {
    input: BufReader<Box<dyn Read + Send>>,
    rewrite: F,
    out: Vec<u8>,
    at: usize,
    has_ended: bool,
}

fn rewritten(
    reader: Box<dyn Read + Send>,
    rewrite: impl FnMut(Option<&str>, &mut String) + Send + 'static,
) -> Box<dyn Read + Send> {
    Box::new(Rewritten { input: BufReader::new(reader), rewrite, out: Vec::new(), at: 0, has_ended: false })
}

impl<F: FnMut(Option<&str>, &mut String)> Read for Rewritten<F> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.at == self.out.len() {
            let mut out = String::new();
            // As many lines as are there without another wait.
            while out.is_empty() || (out.len() < to.len() && self.input.buffer().contains(&b'\n')) {
                let mut line = Vec::new();
                // A line that is longer is cut: no sample is.
                if self.input.by_ref().take(RECORD_LEN_MAX as u64).read_until(b'\n', &mut line)? == 0 {
                    if !std::mem::replace(&mut self.has_ended, true) {
                        (self.rewrite)(None, &mut out);
                    }
                    break;
                }
                (self.rewrite)(Some(&String::from_utf8_lossy(&line)), &mut out);
            }
            if out.is_empty() {
                return Ok(0);
            }
            (self.out, self.at) = (out.into_bytes(), 0);
        }
        let len = self.out.get(self.at..).unwrap_or_default().read(to)?;
        self.at += len;
        Ok(len)
    }
}

/// Whether a text that begins so is in Windows-1252, as Windows' tools write a degree sign: its first line is text, and no
/// UTF-8. A later line may be damaged in a file that is.
pub(super) fn is_windows_1252(head: &[u8]) -> bool {
    let first =
        head.split(|byte| matches!(byte, b'\n' | b'\r')).find(|line| !line.is_empty()).unwrap_or_default();
    let is_line = |byte: &u8| *byte == b'\t' || !byte.is_ascii_control();
    let is_table = first.iter().any(|byte| matches!(byte, b',' | b';' | b'\t')) && first.iter().all(is_line);
    is_table && std::str::from_utf8(first).is_err()
}

/// Windows-1252 as UTF-8.
pub(super) fn of_windows_1252(bytes: &[u8]) -> Vec<u8> {
    /// From 0x80 on, where it differs from Latin-1.
    const HIGH: &str = "€\u{81}‚ƒ„…†‡ˆ‰Š‹Œ\u{8d}Ž\u{8f}\u{90}‘’“”•–—˜™š›œ\u{9d}žŸ";
    let char = |byte: u8| match byte {
        0x80..=0x9f => HIGH.chars().nth(usize::from(byte - 0x80)).unwrap_or_default(),
        byte => char::from(byte),
    };
    bytes.iter().map(|byte| char(*byte)).collect::<String>().into_bytes()
}

/// An input in Windows-1252 as UTF-8.
pub(super) struct Windows1252 {
    input: Box<dyn Read + Send>,
    out: Vec<u8>,
    at: usize,
}

impl Windows1252 {
    pub(super) fn new(input: Box<dyn Read + Send>) -> Self {
        Self { input, out: Vec::new(), at: 0 }
    }
}

impl Read for Windows1252 {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.at == self.out.len() {
            let mut chunk = [0; 16 << 10];
            let read = self.input.read(&mut chunk)?;
            (self.out, self.at) = (of_windows_1252(chunk.get(..read).unwrap_or_default()), 0);
        }
        let mut ready = self.out.get(self.at..).unwrap_or_default();
        let read = ready.read(to)?;
        self.at += read;
        Ok(read)
    }
}

/// Which half of a unit of UTF-16 comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

/// UTF-16 as UTF-8. A half of a pair without the other is a replacement character.
pub(super) struct Utf16 {
    input: Box<dyn Read + Send>,
    order: ByteOrder,
    /// Bytes that are not decoded yet: half a character.
    rest: Vec<u8>,
    out: Vec<u8>,
    at: usize,
}

impl Utf16 {
    /// Behind a byte order mark, which says the order.
    pub(super) fn new(input: Box<dyn Read + Send>, order: ByteOrder) -> Self {
        Self { input, order, rest: Vec::new(), out: Vec::new(), at: 0 }
    }

    fn decode(&mut self, is_end: bool) {
        let mut whole = self.rest.len() / 2 * 2;
        let unit = |pair: &[u8]| {
            let pair = [pair.first().copied().unwrap_or(0), pair.get(1).copied().unwrap_or(0)];
            match self.order {
                ByteOrder::Big => u16::from_be_bytes(pair),
                ByteOrder::Little => u16::from_le_bytes(pair),
            }
        };
        let is_half = |pair: &[u8]| (0xd800..0xdc00).contains(&unit(pair));
        if !is_end && whole >= 2 && self.rest.get(whole - 2..whole).is_some_and(is_half) {
            whole -= 2;
        }
        let units: Vec<u16> = self.rest.get(..whole).unwrap_or_default().chunks_exact(2).map(unit).collect();
        let text: String =
            char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        self.rest.drain(..whole);
        (self.out, self.at) = (text.into_bytes(), 0);
    }
}

impl Read for Utf16 {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.at == self.out.len() {
            let mut chunk = [0; 4096];
            let read = self.input.read(&mut chunk)?;
            self.rest.extend_from_slice(chunk.get(..read).unwrap_or_default());
            self.decode(read == 0);
            if read == 0 && self.out.is_empty() {
                return Ok(0);
            }
        }
        let len = self.out.get(self.at..).unwrap_or_default().read(to)?;
        self.at += len;
        Ok(len)
    }
}
