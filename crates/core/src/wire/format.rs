//! The format has limits, and numbers for the kinds of its columns.

/// Most rows of one frame.
pub const ROWS_MAX: usize = 65_536;
/// Most columns of one frame.
pub const COLUMNS_MAX: usize = 512;
/// Largest body before compression, in bytes.
pub const BODY_LEN_MAX: usize = 64 << 20;
/// Largest sum of the values of all columns in memory, in bytes: a value that every row has is sent once.
pub const VALUES_LEN_MAX: usize = 2 * BODY_LEN_MAX;
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
