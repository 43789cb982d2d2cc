//! Errors of opening and reading a file.

use std::io;
use std::sync::Arc;

use super::split::RECORD_LEN_MAX;

/// A file that cannot be opened, or read on. Each message names the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// It cannot be opened.
    #[error("{file}: cannot be opened")]
    Open {
        /// The file, as it was named.
        file: Arc<str>,
        /// What the system says of it.
        #[source]
        source: io::Error,
    },
    /// Reading failed midway; the rows before the place were handed over.
    #[error("{file}: line {line}: reading broke off")]
    Read {
        /// The file, as it was named.
        file: Arc<str>,
        /// Line to be read.
        line: u64,
        /// What the system says of it.
        #[source]
        source: io::Error,
    },
    /// The file is empty.
    #[error(
        "{file}: the file is empty; give a CSV file with a header line such as timestamp,gpu_id,temperature"
    )]
    Empty {
        /// The file, as it was named.
        file: Arc<str>,
    },
    /// The file is not text.
    #[error(
        "{file}: line {line}: this is no text ({what}); give a CSV file in UTF-8, compressed with gzip or not"
    )]
    Binary {
        /// The file, as it was named.
        file: Arc<str>,
        /// Line of the file, from 1.
        line: u64,
        /// What was found.
        what: &'static str,
    },
    /// The first line is longer than a header can be.
    #[error(
        "{file}: line {line}: the first line has no end within {RECORD_LEN_MAX} bytes; is this a CSV file?"
    )]
    HeaderTooLong {
        /// The file, as it was named.
        file: Arc<str>,
        /// Line of the file, from 1.
        line: u64,
    },
    /// The first line has values instead of names.
    #[error(
        "{file}: line {line}: the header is missing: {field:?} is data, not the name of a column; put a line of names \
         first, such as timestamp,gpu_id,temperature"
    )]
    NoHeader {
        /// The file, as it was named.
        file: Arc<str>,
        /// Line of the file, from 1.
        line: u64,
        /// The field that is not a name.
        field: String,
    },
    /// No column has values of a GPU or host.
    #[error(
        "{file}: line {line}: no column has a metric; add one such as temperature or power_draw, or the pair \
         metric_name and value, or say what a column is with --column NAME=METRIC[:UNIT]; found: {columns}"
    )]
    NoMetric {
        /// The file, as it was named.
        file: Arc<str>,
        /// Line of the file, from 1.
        line: u64,
        /// What each column is.
        columns: String,
    },
    /// The fields are parted by something else.
    #[error(
        "{file}: line {line}: the header is one column; fields are parted by comma, semicolon, tab or pipe, or say what parts \
         them in a first line such as sep=:; found: {header}"
    )]
    Unparted {
        /// The file, as it was named.
        file: Arc<str>,
        /// Line of the file, from 1.
        line: u64,
        /// The line that was taken for the header.
        header: String,
    },
    /// The times of the rows cannot be read.
    #[error("{file}: column {column}: {reason}; found: {columns}")]
    Time {
        /// The file, as it was named.
        file: Arc<str>,
        /// Name of the column of times.
        column: String,
        /// Why, and what to do.
        reason: String,
        /// What each column is.
        columns: String,
    },
    /// The user speaks of a column that there is not.
    #[error("{file}: there is no column {name:?} (--column); found: {columns}")]
    Hint {
        /// The file, as it was named.
        file: Arc<str>,
        /// Name in the hint.
        name: String,
        /// Names in the header.
        columns: String,
    },
    /// Rows of hosts are asked for as messages.
    #[error(
        "{file}: it has values of hosts alone, which JSON messages do not carry; leave out --format json"
    )]
    Hosts {
        /// The file, as it was named.
        file: Arc<str>,
    },
    /// The file is something else.
    #[error("{file}: this is {what}, not CSV; {remedy}")]
    Foreign {
        /// The file, as it was named.
        file: Arc<str>,
        /// What it is.
        what: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// Rows of one file would replace those of another.
    #[error(
        "{file}: it has the same GPU ({gpu}), metrics and times as {other}, so its rows would replace that file's; put the GPU's \
         number into the name of each file (power_gpu1.csv), or read them one by one with --host HOST, or with --gpu NAME where no \
         column names the GPU: gpuvitals store import --host node7 {file}"
    )]
    SameGpu {
        /// The file, as it was named.
        file: Arc<str>,
        /// A file before it.
        other: Arc<str>,
        /// Name of the GPU that both have.
        gpu: Arc<str>,
    },
    /// An input that can be read only once should loop.
    #[error("{file}: cannot be read more than once; give a file, or do not ask for a loop")]
    NoLoop {
        /// The input, as it was named.
        file: Arc<str>,
    },
    /// A setting that makes no sense.
    #[error("{name} is {value}; it must be a number above 0")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// What it is set to.
        value: f64,
    },
}
