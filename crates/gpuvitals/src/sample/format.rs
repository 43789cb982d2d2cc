//! A format says how rows are printed.

use clap::ValueEnum;

/// Form of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A line a device for people
    Table,
    /// A JSON object a row, with the column names of the table
    Jsonl,
    /// Comma-separated values with a header
    Csv,
}
