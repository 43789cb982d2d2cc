//! An order says how merged rows lie, and an error why they cannot be merged.

use arrow_schema::{ArrowError, DataType};

/// Order of merged rows. GPUs are ordered by key, as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// By GPU, then time: how files are sorted.
    GpuTime,
    /// By time, then GPU.
    TimeGpu,
    /// Newest time first; equal times by GPU.
    NewestGpu,
}

/// Why parts cannot be merged.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A column every part has is missing, has nulls or has another type.
    #[error("part {part} has no whole column {column}")]
    Required {
        /// Number of the part, from 0.
        part: usize,
        /// Name of the column.
        column: &'static str,
    },
    /// A column has a type that cannot become the table's.
    #[error("column {column} has type {found}, which does not become {wanted}")]
    Type {
        /// Name of the column.
        column: String,
        /// The part's type.
        found: DataType,
        /// The table's type.
        wanted: DataType,
    },
    /// A row has neither `uuid` nor `node`.
    #[error("row {row} of part {part} names neither a GPU nor a node")]
    Nobody {
        /// Number of the part, from 0.
        part: usize,
        /// Row in the part, from 0.
        row: usize,
    },
    /// Row numbers are 32 bits wide.
    #[error("{0} rows are more than one merge can hold")]
    TooManyRows(usize),
    /// Columns did not fit together.
    #[error("cannot make a record batch of merged columns")]
    Arrow(#[from] ArrowError),
}

/// A row of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) part: u32,
    pub(crate) row: u32,
}
