//! Outcomes of rows: counts of everything, and the first few problems of each kind in words.

use std::sync::Arc;

/// Reports kept of each cause; the rest is only counted.
pub const REPORTS_MAX: u32 = 20;

/// The reason why a row was skipped, or (`Value`) a value left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// Another number of fields than the header, or the end of the file within the last.
    Fields,
    /// The time cannot be read.
    Time,
    /// The time is more than an hour ahead.
    Future,
    /// The row names no GPU, or by a name that no GPU can have.
    Identity,
    /// A field or the row is too long.
    Oversize,
    /// The row is not UTF-8.
    Encoding,
    /// A quoted field that is never closed.
    Quote,
    /// Nothing in the row can be stored.
    NoValue,
    /// An impossible value was left out; the row was taken if it had others.
    Value,
    /// Nothing is lost: another header, from which on rows are read by it.
    Header,
}

impl Cause {
    /// Every cause, in the order of the counts.
    pub const ALL: [Self; 10] = [
        Self::Fields,
        Self::Time,
        Self::Future,
        Self::Identity,
        Self::Oversize,
        Self::Encoding,
        Self::Quote,
        Self::NoValue,
        Self::Value,
        Self::Header,
    ];

    /// Spelling in labels and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fields => "fields",
            Self::Time => "time",
            Self::Future => "future",
            Self::Identity => "identity",
            Self::Oversize => "oversize",
            Self::Encoding => "encoding",
            Self::Quote => "quote",
            Self::NoValue => "no_value",
            Self::Value => "value",
            Self::Header => "header",
        }
    }
}

/// One problem and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Name of the file or other input.
    pub file: Arc<str>,
    /// The unit of `line`: `line`, or `row` in a table file.
    pub unit: &'static str,
    /// Line on which the row begins, or its number in a table file; from 1.
    pub line: u64,
    /// Name of the column, if one is to blame.
    pub column: Option<String>,
    /// The problem, in words.
    pub reason: String,
    /// The kind of problem.
    pub cause: Cause,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} {}: ", self.file, self.unit, self.line)?;
        if let Some(column) = &self.column {
            write!(f, "column {column}: ")?;
        }
        f.write_str(&self.reason)
    }
}

/// Counts of input and outcomes. Each row is taken, or skipped for one cause.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Rows after the header, without empty lines.
    pub rows_read: u64,
    /// Rows that are in a batch.
    pub rows_taken: u64,
    skipped: [u64; Cause::ALL.len()],
    /// Values left out because they are impossible or not numbers.
    pub values_invalid: u64,
    /// Values marked as missing in the file: empty, `N/A`, a blank sentinel.
    pub values_absent: u64,
    /// Bytes read from the input, before decompression; in all passes.
    pub bytes_read: u64,
    /// Length of the file in bytes, if it is one.
    pub bytes_total: Option<u64>,
    /// Times the file was read to its end.
    pub passes: u64,
    /// The first skipped row, with its place and the reason.
    pub first_skipped: Option<String>,
}

impl Counts {
    /// Rows skipped for that cause.
    pub fn skipped(&self, cause: Cause) -> u64 {
        self.skipped.get(cause as usize).copied().unwrap_or(0)
    }

    /// The counts of two files.
    #[must_use]
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.rows_read += other.rows_read;
        self.rows_taken += other.rows_taken;
        for (count, more) in self.skipped.iter_mut().zip(other.skipped) {
            *count += more;
        }
        self.values_invalid += other.values_invalid;
        self.values_absent += other.values_absent;
        self.bytes_read += other.bytes_read;
        self.bytes_total = self.bytes_total.zip(other.bytes_total).map(|(one, another)| one + another);
        self.passes = self.passes.max(other.passes);
        self.first_skipped = self.first_skipped.or(other.first_skipped);
        self
    }

    /// Rows skipped for any cause.
    pub fn rows_skipped(&self) -> u64 {
        self.skipped.iter().sum()
    }
}

/// A skipped row's cause.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) cause: Cause,
    /// Number of the column to blame.
    pub(crate) column: Option<usize>,
    pub(crate) reason: String,
}

/// Counts, and keeps reports until they are drained.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The file that is read now.
    pub(crate) file: Arc<str>,
    unit: &'static str,
    reports: Vec<Report>,
    kept: [u32; Cause::ALL.len()],
    pub(crate) counts: Counts,
}

impl Ledger {
    pub(crate) fn new(file: Arc<str>, unit: &'static str) -> Self {
        Self { file, unit, reports: Vec::new(), kept: [0; Cause::ALL.len()], counts: Counts::default() }
    }

    /// A row is skipped.
    pub(crate) fn skip(&mut self, cause: Cause, line: u64, column: Option<&str>, reason: String) {
        if let Some(count) = self.counts.skipped.get_mut(cause as usize) {
            *count += 1;
        }
        if self.counts.first_skipped.is_none() {
            let report = self.report_of(cause, line, column, reason.clone());
            self.counts.first_skipped = Some(report.to_string());
        }
        self.report(cause, line, column, reason);
    }

    /// Something is settled anew.
    pub(crate) fn remark(&mut self, line: u64, reason: String) {
        self.report(Cause::Header, line, None, reason);
    }

    /// A value is left out.
    pub(crate) fn value(&mut self, line: u64, column: Option<&str>, reason: String) {
        self.counts.values_invalid += 1;
        self.report(Cause::Value, line, column, reason);
    }

    /// A row without remaining values; its values have their own reports.
    pub(crate) fn emptied(&mut self) {
        if let Some(count) = self.counts.skipped.get_mut(Cause::NoValue as usize) {
            *count += 1;
        }
    }

    /// The reports since the last call.
    pub(crate) fn drain(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    fn report(&mut self, cause: Cause, line: u64, column: Option<&str>, reason: String) {
        let Some(kept) = self.kept.get_mut(cause as usize).filter(|kept| **kept < REPORTS_MAX) else {
            return;
        };
        *kept += 1;
        let report = self.report_of(cause, line, column, reason);
        self.reports.push(report);
    }

    fn report_of(&self, cause: Cause, line: u64, column: Option<&str>, reason: String) -> Report {
        let column = column.map(|name| name.chars().take(128).collect());
        Report { file: Arc::clone(&self.file), unit: self.unit, line, column, reason, cause }
    }
}
