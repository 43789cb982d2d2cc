//! A table has a version that tells its layout.

use std::fmt;

/// Partitions (XCPs) that a table has room for.
pub const XCP_MAX: usize = 8;

/// Which table it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// 1 discrete GPUs, 2 and 3 APUs.
    pub format: u8,
    /// Revision within the format.
    pub content: u8,
    /// Bytes of the table by its header.
    pub size: u16,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{} ({} bytes)", self.format, self.content, self.size)
    }
}

/// Why bytes are no table that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Fewer bytes than a header has.
    #[error("{len} bytes are too few for a header")]
    NoHeader {
        /// Actual number of bytes.
        len: usize,
    },
    /// The driver never filled it.
    #[error("{0} was never filled")]
    Unfilled(Version),
    /// The header promises more than was read.
    #[error("{version}, but {len} bytes were read")]
    Truncated {
        /// The version in the header.
        version: Version,
        /// Actual number of bytes.
        len: usize,
    },
    /// A revision with an unknown layout.
    #[error("{0} is not known")]
    Unknown(Version),
    /// A revision that is known, but with another size.
    #[error("{0} is known, but not with this size")]
    WrongSize(Version),
    /// A self-describing table with an impossible number of attributes.
    #[error("{version} has {count} attributes, which is impossible")]
    AttributeCount {
        /// The version in the header.
        version: Version,
        /// The count in the table.
        count: i32,
    },
}
