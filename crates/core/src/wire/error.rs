//! A batch cannot be written, or bytes are not a batch.

use arrow_schema::ArrowError;

use crate::batch::BatchError;
use crate::identity::IdentityError;

/// A batch that cannot be written, or bytes that are not a batch.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The first bytes are not this format's.
    #[error("this is no gpuvitals batch: it does not begin with GVB1")]
    Magic,
    /// The bytes end early, or a length in them is impossible.
    #[error("the batch is damaged: {0}")]
    Damaged(&'static str),
    /// One of the limits of the format.
    #[error("batch has {found} {what}, more than {max}")]
    Limit {
        /// The exceeded quantity.
        what: &'static str,
        /// How many the batch has.
        found: usize,
        /// How many it may have.
        max: usize,
    },
    /// The compressed body is damaged.
    #[error("the batch is damaged: the compressed part does not unpack")]
    Compression(#[source] std::io::Error),
    /// A value outside the catalogue's range.
    #[error("column {column} has a value outside {min} to {max}")]
    Range {
        /// Name of the column.
        column: &'static str,
        /// Smallest possible value.
        min: f64,
        /// Largest possible value.
        max: f64,
    },
    /// An impossible identity text.
    #[error("cannot use an identity")]
    Identity(#[from] IdentityError),
    /// The columns do not form a batch.
    #[error("columns do not make a batch")]
    Batch(#[from] BatchError),
    /// The columns do not fit together.
    #[error("columns do not fit together")]
    Arrow(#[from] ArrowError),
}
