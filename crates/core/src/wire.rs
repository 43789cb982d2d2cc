//! The binary form of a batch, for queue, network and log.
//!
//! ```text
//! frame   = "GVB1" | body_len u32 | zstd(body)                      integers little-endian
//! body    = table u8 | node str | started_ns i64 | sequence u64 | rows varint
//!         | columns varint | column … | absences varint | absence …
//! column  = name str | kind u8 | nulls u8 [| bitmap, one bit a row, 1 = value] | values
//! kind    = 0 i32 · 1 i64 · 2 f32 · 3 f64 · 4 text
//! values  = 0 u8 | one value                       every row has it
//!         | 1 u8 | planes                          byte 0 of every row, then byte 1 of every row, …
//! text    = texts varint | str … | values of keys, 1, 2 or 4 bytes wide as the number of texts needs
//! absence = gpu str | metric column str | reason u8 | count varint
//! str     = length varint | UTF-8
//! ```
//!
//! Planes of integers hold zigzag differences to the row before, planes of floats the raw bits: general
//! compression finds the zeros and the repeated exponents. Only columns with a value are sent. Limits:
//! [`ROWS_MAX`] rows, [`COLUMNS_MAX`] columns, [`BODY_LEN_MAX`] bytes, [`VALUES_LEN_MAX`] bytes of values in
//! memory, [`TEXT_LEN_MAX`] bytes a text, [`ABSENCES_MAX`] absences. The writer keeps them too, so that
//! everything it writes can be read.
//!
//! Arrow IPC with the same columns was measured beside it (`examples/wire_size.rs`) and lost in bytes and time.

mod frames;
mod planes;
mod reading;
mod writing;

use arrow_schema::ArrowError;

pub use frames::{FramesError, decode_frames, push_frame};
pub use reading::{decode, decode_keeping, row_count};
pub use writing::encode;

use crate::batch::BatchError;
use crate::identity::IdentityError;

/// Most rows of one frame.
pub const ROWS_MAX: usize = 65_536;
/// Most columns of one frame.
pub const COLUMNS_MAX: usize = 512;
/// Largest body before compression, in bytes.
pub const BODY_LEN_MAX: usize = 64 << 20;
/// Largest sum of the values of all columns in memory, in bytes: a value that every row has is sent once.
pub const VALUES_LEN_MAX: usize = 2 * BODY_LEN_MAX;
/// Longest text of a column, in bytes.
pub const TEXT_LEN_MAX: usize = 64 << 10;
/// Most absences of one frame.
pub const ABSENCES_MAX: usize = 1 << 20;

pub(crate) const MAGIC: &[u8; 4] = b"GVB1";
pub(crate) const KIND_I32: u8 = 0;
pub(crate) const KIND_I64: u8 = 1;
pub(crate) const KIND_F32: u8 = 2;
pub(crate) const KIND_F64: u8 = 3;
pub(crate) const KIND_TEXT: u8 = 4;
pub(crate) const CONSTANT: u8 = 0;
pub(crate) const PLANES: u8 = 1;

/// A batch that cannot be written, or bytes that are not a batch.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The first bytes are not this format's.
    #[error("not a gpuvitals batch: it does not begin with GVB1")]
    Magic,
    /// The bytes end early, or a length in them is impossible.
    #[error("damaged batch: {0}")]
    Damaged(&'static str),
    /// One of the limits of the format.
    #[error("batch has {found} {what}, more than {max}")]
    Limit {
        /// The exceeded quantity.
        what: &'static str,
        /// Its value.
        found: usize,
        /// Its limit.
        max: usize,
    },
    /// The compressed body is damaged.
    #[error("damaged batch: the compressed part does not unpack")]
    Compression(#[source] std::io::Error),
    /// A value outside the catalogue's range.
    #[error("column {column} has a value outside {min} to {max}")]
    Range {
        /// Column.
        column: &'static str,
        /// Smallest possible value.
        min: f64,
        /// Largest possible value.
        max: f64,
    },
    /// An impossible identity text.
    #[error("bad identity")]
    Identity(#[from] IdentityError),
    /// The columns do not form a batch.
    #[error("columns do not make a batch")]
    Batch(#[from] BatchError),
    /// The columns do not fit together.
    #[error("columns do not fit together")]
    Arrow(#[from] ArrowError),
}
