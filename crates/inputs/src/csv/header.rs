//! The first line of a file: where it is, what is between its names.

use std::sync::Arc;

use super::error::CsvError;
use super::split::{RECORD_LEN_MAX, SplitStep, Splitter};

/// Lines before the header that are passed over at most.
const PREAMBLE_MAX: usize = 32;

/// Reads the names of the columns; the splitter is then at the first row. Lines before the header are passed over:
/// comments, `sep=;`, a title.
pub(super) fn read(records: &mut Splitter, file: &Arc<str>) -> Result<(Vec<String>, u8), CsvError> {
    let file = || Arc::clone(file);
    fill(records, file)?;
    if records.ahead().starts_with(b"\xef\xbb\xbf") {
        records.pass_over(3);
    }
    let mut asked = None;
    for _ in 0..PREAMBLE_MAX {
        match preamble(records.ahead()) {
            Preamble::None => break,
            Preamble::Separator(separator) => asked = Some(separator),
            Preamble::Comment => {}
            Preamble::Mark(len) => {
                records.pass_over(len);
                break;
            }
        }
        records.pass_line();
    }
    let first = records.ahead().iter().position(|b| !matches!(b, b'\n' | b'\r')).unwrap_or(0);
    let separator = asked.unwrap_or_else(|| delimiter(records.ahead().get(first..).unwrap_or_default()));
    records.set_delimiter(separator);
    let step = loop {
        match records.step() {
            SplitStep::NeedInput if records.ahead().len() <= RECORD_LEN_MAX => {
                records.fill().map_err(|source| CsvError::Read { file: file(), line: 1, source })?;
            }
            step => break step,
        }
    };
    let line = records.record_line();
    if memchr::memchr(0, records.text()).is_some() {
        return Err(CsvError::Binary { file: file(), line, what: "it has NUL bytes" });
    }
    match step {
        SplitStep::End => return Err(CsvError::Empty { file: file() }),
        SplitStep::Record => {}
        _ => return Err(CsvError::HeaderTooLong { file: file(), line }),
    }
    let names: Result<Vec<String>, _> =
        (0..records.len()).map(|i| String::from_utf8(records.field(i).to_vec())).collect();
    let names = names.map_err(|_| CsvError::Binary { file: file(), line, what: "it is not UTF-8" })?;
    Ok((names, separator))
}

/// Reads until a line is there.
fn fill(records: &mut Splitter, file: impl Fn() -> Arc<str>) -> Result<(), CsvError> {
    let line_is_there = |ahead: &[u8]| {
        let text = ahead.iter().position(|b| !matches!(b, b'\n' | b'\r')).and_then(|at| ahead.get(at..));
        text.is_some_and(|text| memchr::memchr2(b'\n', b'\r', text).is_some())
    };
    while !line_is_there(records.ahead()) && records.ahead().len() <= RECORD_LEN_MAX {
        let read = records.fill().map_err(|source| CsvError::Read { file: file(), line: 1, source })?;
        if read == 0 {
            break;
        }
    }
    if line_is_there(records.ahead()) || records.ahead().len() <= RECORD_LEN_MAX {
        return Ok(());
    }
    let nul = memchr::memchr(0, records.ahead()).is_some();
    Err(if nul {
        CsvError::Binary { file: file(), line: 1, what: "it has NUL bytes" }
    } else {
        CsvError::HeaderTooLong { file: file(), line: 1 }
    })
}

/// What stands before the header.
enum Preamble {
    None,
    /// `sep=;`
    Separator(u8),
    /// A line that is no header.
    Comment,
    /// A mark before the names in the header's own line, with the blanks behind it.
    Mark(usize),
}

fn preamble(ahead: &[u8]) -> Preamble {
    let mut lines = ahead.split(|byte| matches!(byte, b'\n' | b'\r')).filter(|line| !line.is_empty());
    let (first, second) = (lines.next().unwrap_or_default(), lines.next());
    if let Some(separator) = first.strip_prefix(b"sep=").or_else(|| first.strip_prefix(b"SEP=")) {
        return separator.first().map_or(Preamble::Comment, |byte| Preamble::Separator(*byte));
    }
    let fields = |line: &[u8]| line.iter().filter(|byte| matches!(byte, b',' | b';' | b'\t')).count();
    let Some(second) = second else { return Preamble::None };
    if first.starts_with(b"#") {
        let is_header = fields(first) > 0 && fields(first) == fields(second) && !second.starts_with(b"#");
        let blanks = first.iter().take_while(|byte| matches!(byte, b'#' | b' ')).count();
        let before = ahead.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
        return if is_header { Preamble::Mark(before + blanks) } else { Preamble::Comment };
    }
    // A title: only what follows is a table.
    if fields(first) == 0 && fields(second) > 0 { Preamble::Comment } else { Preamble::None }
}

/// The delimiter of a header line: comma, semicolon or tab, whichever is most frequent outside quotes.
fn delimiter(line: &[u8]) -> u8 {
    let mut counts = [(b',', 0_usize), (b';', 0), (b'\t', 0)];
    let mut quoted = false;
    for &byte in line {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' | b'\r' if !quoted => break,
            _ if quoted => {}
            _ => {
                if let Some((_, count)) = counts.iter_mut().find(|(delimiter, _)| *delimiter == byte) {
                    *count += 1;
                }
            }
        }
    }
    // The first of equals: max_by_key would take the last.
    counts.iter().rev().max_by_key(|(_, count)| *count).map_or(b',', |(delimiter, _)| *delimiter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delimiter_is_the_most_frequent_outside_quotes() {
        let check = |line: &str, expected: u8| assert_eq!(delimiter(line.as_bytes()), expected, "{line}");
        check("a,b,c", b',');
        check("a;b;c,d", b';');
        check("a\tb\n;;;;", b'\t');
        check("\"a;b;c;d\",e", b',');
        check("gpu", b',');
    }
}
