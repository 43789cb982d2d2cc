//! A limit bounds the rows that are compared, and a page's end.

/// Most rows held for comparison, and most rows up to the end of a page of rows.
pub const ROWS_MAX: u64 = 16_000_000;
