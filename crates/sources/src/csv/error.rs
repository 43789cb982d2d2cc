//! Why a file is not read, or not read on.

use std::io;
use std::sync::Arc;

use super::split::RECORD_LEN_MAX;

/// Why a file cannot be read, or not read on. Each message names the file and says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CsvError {
    /// It cannot be opened.
    #[error("{file}: cannot be opened")]
    Open {
        /// The file.
        file: Arc<str>,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Reading broke off; the rows before the place were handed over.
    #[error("{file}: line {line}: reading broke off")]
    Read {
        /// The file.
        file: Arc<str>,
        /// Line that was to be read.
        line: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is nothing in it.
    #[error(
        "{file}: the file is empty; give a CSV file with a header line such as timestamp,gpu_id,temperature"
    )]
    Empty {
        /// The file.
        file: Arc<str>,
    },
    /// It is no text.
    #[error(
        "{file}: line {line}: this is no text ({what}); give a CSV file in UTF-8, compressed with gzip or not"
    )]
    Binary {
        /// The file.
        file: Arc<str>,
        /// Line.
        line: u64,
        /// What was met.
        what: &'static str,
    },
    /// The first line is longer than a header can be.
    #[error(
        "{file}: line {line}: the first line has no end within {RECORD_LEN_MAX} bytes; is this a CSV file?"
    )]
    HeaderTooLong {
        /// The file.
        file: Arc<str>,
        /// Line.
        line: u64,
    },
    /// The first line has values where names should be.
    #[error(
        "{file}: line {line}: the header is missing: {field:?} is data, not the name of a column; put a line of names \
         first, such as timestamp,gpu_id,temperature"
    )]
    NoHeader {
        /// The file.
        file: Arc<str>,
        /// Line.
        line: u64,
        /// The field that is no name.
        field: String,
    },
    /// No column tells which GPU a row is about.
    #[error(
        "{file}: line {line}: no column names the GPU; one must be called gpu_id, uuid or pci (or, in the long form, \
         labels_raw); found: {columns}"
    )]
    NoGpu {
        /// The file.
        file: Arc<str>,
        /// Line.
        line: u64,
        /// Names in the header.
        columns: String,
    },
    /// No column has values.
    #[error(
        "{file}: line {line}: no column has a metric; add one such as temperature or power_draw, or the pair \
         metric_name and value; found: {columns}"
    )]
    NoMetric {
        /// The file.
        file: Arc<str>,
        /// Line.
        line: u64,
        /// Names in the header.
        columns: String,
    },
    /// What can be read once only is to be read again and again.
    #[error("{file}: cannot be read more than once; give a file, or do not ask for a loop")]
    NoLoop {
        /// The input.
        file: Arc<str>,
    },
    /// A setting that makes no sense.
    #[error("{name} is {value}; it must be a number above 0")]
    Setting {
        /// Setting.
        name: &'static str,
        /// Its value.
        value: f64,
    },
}
