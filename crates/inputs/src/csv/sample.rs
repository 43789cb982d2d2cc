//! The first records of a file, from which the meaning of its columns is settled before any row is taken.

use super::head::HeadEnd;
use super::header;
use super::split::{SplitStep, Splitter};

/// Most cells of a sample.
const CELLS_MAX: usize = 1 << 20;

/// The cells of the first records of a file, after which its columns are settled.
#[derive(Debug, Default)]
pub(super) struct Sample {
    text: String,
    /// Where each cell ends in the text.
    ends: Vec<usize>,
    /// Where each record's cells begin and end.
    rows: Vec<(usize, usize)>,
    /// They are all that the file has.
    is_all: bool,
}

impl Sample {
    /// The records that follow in a splitter whose input is the head of a file; how the
    /// head ends says whether the last one may be cut.
    pub(super) fn of(records: &mut Splitter, names: &[String], end: HeadEnd) -> Self {
        let mut sample = Self::default();
        loop {
            match records.step() {
                SplitStep::NeedInput => {
                    if records.fill().is_err() {
                        return sample;
                    }
                }
                SplitStep::Record if is_header(records, names.iter().map(|name| name.trim())) => {}
                // Rows behind it have other columns.
                SplitStep::Record if !sample.rows.is_empty() && header::is_another(records) => {
                    sample.leave_out_unfit(names.len());
                    return sample;
                }
                SplitStep::Record if header::remark(records).is_some() => {}
                SplitStep::Record => sample.push(records),
                SplitStep::Oversize { .. } => {}
                SplitStep::Unclosed { .. } => return sample,
                SplitStep::End => break,
            }
            if sample.ends.len() >= CELLS_MAX {
                sample.leave_out_unfit(names.len());
                return sample;
            }
        }
        sample.is_all = end == HeadEnd::All;
        sample.ended(end);
        sample.leave_out_unfit(names.len());
        sample
    }

    fn ended(&mut self, end: HeadEnd) {
        // A last row that is cut says nothing about the others.
        if self.rows.len() > 1 && (end == HeadEnd::Cut || self.last_is_short()) {
            self.rows.pop();
        }
    }

    /// Records that will be skipped for their number of fields say nothing about the columns: a tool's message among its rows.
    fn leave_out_unfit(&mut self, columns: usize) {
        let width = |(from, to): &(usize, usize)| to - from;
        let Some(widest) = self.rows.iter().map(|row| width(row).min(columns)).max() else { return };
        let ends = &self.ends;
        // What is behind the last column must be empty.
        let is_fit = |row: &(usize, usize)| {
            let end = |at: usize| ends.get(at).copied().unwrap_or_default();
            width(row).min(columns) == widest
                && (width(row) <= columns || columns == 0 || end(row.1 - 1) == end(row.0 + columns - 1))
        };
        if self.rows.iter().any(is_fit) {
            self.rows.retain(is_fit);
        }
    }

    fn push(&mut self, record: &Splitter) {
        let from = self.ends.len();
        for index in 0..record.len() {
            self.text.push_str(std::str::from_utf8(record.field(index)).unwrap_or("\u{fffd}").trim());
            self.ends.push(self.text.len());
        }
        self.rows.push((from, self.ends.len()));
    }

    /// The cells of the first record.
    pub(super) fn first(&self) -> Vec<&str> {
        let (from, to) = self.rows.first().copied().unwrap_or_default();
        (0..to - from).map(|column| self.cells(column).next().unwrap_or_default()).collect()
    }

    /// Leaves out the first record, and those that are the same.
    pub(super) fn drop_first(&mut self) {
        let cells = |(from, to): (usize, usize)| {
            let start = from.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
            let end = to.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0);
            (self.text.get(start..end), to - from)
        };
        let first = self.rows.first().map(|row| cells(*row));
        let kept = self.rows.iter().filter(|row| Some(cells(**row)) != first).copied().collect();
        self.rows = kept;
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

    /// Whether the file has no other records.
    pub(super) fn is_all(&self) -> bool {
        self.is_all
    }

    /// Number of fields of each record.
    pub(super) fn widths(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(|(from, to)| to - from)
    }

    /// The cells of some columns of each record.
    pub(super) fn rows<'a>(&'a self, columns: &'a [usize]) -> impl Iterator<Item = Vec<&'a str>> {
        self.rows.iter().map(move |row| columns.iter().map(|column| self.cell(*row, *column)).collect())
    }

    /// The cells of a column, empty where a record lacks it.
    pub(super) fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().map(move |row| self.cell(*row, column))
    }

    fn cell(&self, (from, to): (usize, usize), column: usize) -> &str {
        let at = from + column;
        let end = self.ends.get(at).filter(|_| at < to);
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        end.and_then(|end| self.text.get(start..*end)).unwrap_or_default()
    }
}

/// Whether the record repeats the header, as a log that was begun again has it.
pub(super) fn is_header<'a>(record: &Splitter, names: impl ExactSizeIterator<Item = &'a str>) -> bool {
    let is_same = |(index, name): (usize, &str)| record.field(index).trim_ascii() == name.as_bytes();
    record.len() == names.len() && names.enumerate().all(is_same)
}
