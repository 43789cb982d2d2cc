//! The first line of a file: where it is, what is between its names.

use std::collections::HashSet;
use std::sync::Arc;

use gpuvitals_core::foreign::{self, Dialect, DialectColumn, Meaning, Topic};

use super::error::CsvError;
use super::split::{RECORD_LEN_MAX, SplitStep, Splitter, is_quoted};

/// Lines before the header that are passed over at most.
const PREAMBLE_MAX: usize = 32;

/// Rows whose numbers of fields are compared with the first line's, and the first of them that may be a header.
const ROWS_COMPARED: usize = 200;
const LATER_MAX: usize = 8;

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
    let names = names(records);
    let names = names.ok_or_else(|| CsvError::Binary { file: file(), line, what: "it is not UTF-8" })?;
    let quote = quote(&names);
    records.set_quote(quote);
    Ok((names.into_iter().map(|name| bare(name, quote)).collect(), separator))
}

/// What stands around names beside what quotes them by the rule: single quotes around all of them, or double ones behind a
/// blank.
fn quote(names: &[String]) -> Option<u8> {
    let is_double = names.iter().any(|name| is_quoted(name.as_bytes(), b'"'));
    let is_single = !names.is_empty() && names.iter().all(|name| is_quoted(name.as_bytes(), b'\''));
    if is_double { Some(b'"') } else { is_single.then_some(b'\'') }
}

/// A name without the quotes around it.
fn bare(name: String, quote: Option<u8>) -> String {
    let inner = || {
        let quote = quote.filter(|quote| is_quoted(name.as_bytes(), *quote))?;
        name.trim().strip_prefix(char::from(quote))?.strip_suffix(char::from(quote)).map(str::to_owned)
    };
    inner().unwrap_or(name)
}

/// The fields of the current record, if they are text.
pub(super) fn names(record: &Splitter) -> Option<Vec<String>> {
    (0..record.len()).map(|i| String::from_utf8(record.field(i).to_vec()).ok()).collect()
}

/// How many records stand between the first line and the header, if a table of another width follows a few lines about the
/// machine (MangoHud). `records` is behind the first line, which has `columns` fields.
pub(super) fn later(records: &mut Splitter, columns: usize) -> Option<usize> {
    let (mut widths, mut names) = (Vec::new(), None);
    while widths.len() < ROWS_COMPARED {
        match records.step() {
            SplitStep::Record => {}
            SplitStep::NeedInput if matches!(records.fill(), Ok(read) if read > 0) => continue,
            _ => break,
        }
        if names.is_none() && widths.len() < LATER_MAX && records.len() != columns && are_names(records) {
            names = Some((widths.len(), records.len()));
        }
        widths.push(records.len());
    }
    let (at, width) = names?;
    let rows = widths.iter().skip(at + 1);
    let fit = rows.clone().filter(|other| **other == width).count();
    let as_first = widths.iter().filter(|other| **other == columns).count();
    (fit > as_first && fit * 2 > rows.count()).then_some(at)
}

/// Passes over as many records and gives the fields of the next.
pub(super) fn pass(records: &mut Splitter, before: usize) -> Option<Vec<String>> {
    let mut passed = 0;
    loop {
        match records.step() {
            SplitStep::Record if passed == before => return names(records),
            SplitStep::Record => passed += 1,
            SplitStep::NeedInput => drop(records.fill().ok()?),
            SplitStep::End => return None,
            SplitStep::Oversize { .. } | SplitStep::Unclosed { .. } => {}
        }
    }
}

/// Whether each field of a record may be the name of a column: a text that no other field has and that begins with no digit.
pub(super) fn are_names(record: &Splitter) -> bool {
    let field = |index: usize| record.field(index).trim_ascii();
    let is_name =
        |text: &[u8]| text.first().is_none_or(|byte| !byte.is_ascii_digit() && !b"+-.".contains(byte));
    let named = || (0..record.len()).filter(|index| !field(*index).is_empty()).count();
    record.len() > 1
        && (0..record.len()).all(|index| is_name(field(index)))
        && named() * 3 >= record.len() * 2
        && {
            let mut seen = HashSet::new();
            (0..record.len()).all(|index| field(index).is_empty() || seen.insert(field(index)))
        }
}

/// How a line for people begins.
const REMARK: &[u8] = b"# ";

/// A record that is no row but a line for people: a CSV of our API ends with one if it lacks rows.
pub(super) fn remark(record: &Splitter) -> Option<String> {
    let first = record.field(0).strip_prefix(REMARK)?;
    let fields = std::iter::once(first).chain((1..record.len()).map(|index| record.field(index)));
    Some(fields.map(String::from_utf8_lossy).collect::<Vec<_>>().join(","))
}

/// Whether a record among rows names other columns, as a log has it that another command went on with: nearly all its
/// fields are names that are known, and one is that of a metric.
pub(super) fn is_another(record: &Splitter) -> bool {
    if !are_names(record) {
        return false;
    }
    let Some(names) = names(record) else { return false };
    let dialect = Dialect::of(&names);
    let is_metric = |name: &String| {
        let own = dialect.and_then(|dialect| dialect.column(name));
        own.is_some_and(|own| matches!(own, DialectColumn::Metric { .. }))
            || matches!(foreign::column(name, Topic::Gpu).meaning, Meaning::Metric(..))
    };
    let is_known = |name: &String| {
        is_metric(name)
            || foreign::column(name, Topic::Gpu).meaning != Meaning::Unknown
            || dialect.is_some_and(|dialect| dialect.column(name).is_some())
    };
    let named = || names.iter().filter(|name| !name.trim().is_empty());
    named().any(is_metric) && named().filter(|name| is_known(name)).count() * 4 >= named().count() * 3
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
    /// A line such as `sep=;`.
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
    let is_mark = |byte: &u8| matches!(byte, b',' | b';' | b'\t');
    let fields = |line: &[u8]| line.iter().filter(|byte| is_mark(byte)).count();
    let pipes = |line: &[u8]| memchr::memchr_iter(b'|', line).count();
    let Some(second) = second else { return Preamble::None };
    let begins_with_number =
        |cell: &[u8]| cell.iter().find(|byte| !b"\"'+-".contains(byte)).is_some_and(u8::is_ascii_digit);
    if first.starts_with(b"#") {
        // Above other names it is a comment, which may have commas.
        let mut cells = second.split(is_mark).map(<[u8]>::trim_ascii);
        let has_value = cells.any(begins_with_number);
        let is_header =
            fields(first) > 0 && fields(first) == fields(second) && !second.starts_with(b"#") && has_value;
        let blanks = first.iter().take_while(|byte| matches!(byte, b'#' | b' ')).count();
        let before = ahead.iter().take_while(|byte| matches!(byte, b'\n' | b'\r')).count();
        return if is_header { Preamble::Mark(before + blanks) } else { Preamble::Comment };
    }
    if fields(first) > 0 || (pipes(first) > 0 && pipes(first) == pipes(second)) {
        return Preamble::None;
    }
    // Titles: only what follows is a table.
    let mut later = lines.take(PREAMBLE_MAX).filter(|line| line.iter().any(is_mark));
    let are_names = |line: &[u8]| !begins_with_number(line.trim_ascii());
    if fields(second) > 0 || later.next().is_some_and(are_names) { Preamble::Comment } else { Preamble::None }
}

/// The delimiter of a header line: comma, semicolon, tab or pipe, whichever is most frequent outside quotes. A line with pipes
/// around it is one of a table for people.
fn delimiter(line: &[u8]) -> u8 {
    let mut counts = [(b',', 0_usize), (b';', 0), (b'\t', 0), (b'|', 0)];
    let known = if line.starts_with(b"|") { 3 } else { 4 };
    let mut quoted = false;
    for &byte in line {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' | b'\r' if !quoted => break,
            _ if quoted => {}
            _ => {
                if let Some((_, count)) =
                    counts.iter_mut().take(known).find(|(delimiter, _)| *delimiter == byte)
                {
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
        check("time|gpu, index|power", b'|');
        check("|time|gpu|", b',');
    }
}
