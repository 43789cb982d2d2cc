//! A disk tears writes at its sectors.

/// Bytes that a disk writes whole or not at all.
pub const SECTOR_LEN: usize = 512;
