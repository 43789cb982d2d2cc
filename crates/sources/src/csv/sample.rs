//! The first records of a file, from which the meaning of its columns is settled before any row is taken.

use super::split::{SplitStep, Splitter};

/// Bytes at the beginning of a file that are looked at.
pub(super) const HEAD_LEN_MAX: usize = 4 << 20;

/// Most cells of a sample.
const CELLS_MAX: usize = 1 << 20;

/// Some records.
#[derive(Debug, Default)]
pub(super) struct Sample {
    text: String,
    /// Where each cell ends in the text.
    ends: Vec<usize>,
    /// Where each record's cells begin and end.
    rows: Vec<(usize, usize)>,
}

impl Sample {
    /// The records that follow in a splitter whose input is the head of a file; the last one may be cut unless the head is
    /// all of it.
    pub(super) fn of(records: &mut Splitter, names: &[String], is_whole: bool) -> Self {
        let mut sample = Self::default();
        loop {
            match records.step() {
                SplitStep::NeedInput => {
                    if records.fill().is_err() {
                        return sample;
                    }
                }
                SplitStep::Record if is_header(records, names) => {}
                SplitStep::Record => sample.push(records),
                SplitStep::Oversize { .. } => {}
                SplitStep::Unclosed { .. } => return sample,
                SplitStep::End => break,
            }
            if sample.ends.len() >= CELLS_MAX {
                return sample;
            }
        }
        // A last row that is cut says nothing about the others.
        if sample.rows.len() > 1 && (!is_whole || sample.last_is_short()) {
            sample.rows.pop();
        }
        sample
    }

    fn push(&mut self, record: &Splitter) {
        let from = self.ends.len();
        for index in 0..record.len() {
            self.text.push_str(std::str::from_utf8(record.field(index)).unwrap_or("\u{fffd}").trim());
            self.ends.push(self.text.len());
        }
        self.rows.push((from, self.ends.len()));
    }

    fn last_is_short(&self) -> bool {
        let len = |row: Option<&(usize, usize)>| row.map_or(0, |(from, to)| to - from);
        let before = self.rows.len().checked_sub(2).and_then(|at| self.rows.get(at));
        len(self.rows.last()) < len(before)
    }

    /// Number of records.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Number of fields of each record.
    pub(super) fn widths(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(|(from, to)| to - from)
    }

    /// The cells of a column, empty where a record lacks it.
    pub(super) fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().map(move |(from, to)| {
            let at = from + column;
            let end = self.ends.get(at).filter(|_| at < *to);
            let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
            end.and_then(|end| self.text.get(start..*end)).unwrap_or_default()
        })
    }

    /// Whether numbers have a decimal comma: in some column they have one, and none there has a point.
    pub(super) fn has_decimal_comma(&self, columns: usize, delimiter: u8) -> bool {
        (0..columns).any(|column| {
            let mut commas = 0;
            for text in self.cells(column).filter(|text| text.len() < 32) {
                let number = text.split_once(' ').map_or(text, |(number, _)| number);
                match number.split_once(',') {
                    Some((whole, rest)) if is_whole(whole) && is_whole(rest) => {
                        commas += u32::from(delimiter != b',' || rest.len() != 3);
                    }
                    None if number.split_once('.').is_some_and(|(a, b)| is_whole(a) && is_whole(b)) => {
                        return false;
                    }
                    _ => {}
                }
            }
            commas > 0
        })
    }
}

fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Whether the record repeats the header, as a log that was begun again has it.
pub(super) fn is_header(record: &Splitter, names: &[String]) -> bool {
    record.len() == names.len()
        && names
            .iter()
            .enumerate()
            .all(|(index, name)| record.field(index).trim_ascii() == name.trim().as_bytes())
}
