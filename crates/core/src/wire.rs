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

mod error;
mod format;
mod frames;
mod packed;
mod planes;
mod reading;
mod writing;

pub use crate::batch::value::TEXT_LEN_MAX;
pub use error::WireError;
pub use format::{ABSENCES_MAX, BODY_LEN_MAX, COLUMNS_MAX, ROWS_MAX, VALUES_LEN_MAX};
pub use frames::{FramesError, decode_frames, push_frame};
pub use packed::{clock_and_frame, pack, unpack};
pub use reading::{decode, decode_keeping, row_count};
pub use writing::encode;

pub(crate) use format::{CONSTANT, KIND_F32, KIND_F64, KIND_I32, KIND_I64, KIND_TEXT, MAGIC, PLANES};
