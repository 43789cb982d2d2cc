//! Facts about a file stand in its footer.

use serde::{Deserialize, Serialize};

/// Footer key of the row groups' facts.
pub(crate) const ROW_GROUPS_KEY: &str = "gpuvitals.row_groups";
/// Footer key of the checksums.
pub(crate) const BLOCKS_KEY: &str = "gpuvitals.blocks";
/// Bytes under one checksum; the last ones before the footer may be fewer. A query of one column of a few GPUs reads that much
/// at least, the first time.
pub(crate) const BLOCK_BYTES: u64 = 128 << 10;

/// Facts about a row group beyond Parquet's statistics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RowGroupFacts {
    /// First byte in the file.
    pub(crate) offset: u64,
    /// Bytes from there to the next row group.
    pub(crate) len: u64,
    pub(crate) rows: u64,
    /// Smallest GPU key. Row groups are in the order of keys; only neighbours can share one.
    pub(crate) min_key: String,
    /// Largest GPU key.
    pub(crate) max_key: String,
    /// Earliest time, nanoseconds UTC since 1970.
    pub(crate) min_timestamp_ns: i64,
    /// Latest time, inclusive.
    pub(crate) max_timestamp_ns: i64,
}
