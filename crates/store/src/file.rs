//! Table files: sorted Parquet with checksums.
//!
//! The footer's key-value metadata has `gpuvitals.schema` (version of the table), `gpuvitals.row_groups`, a JSON list with the
//! byte range, smallest and largest key and time of each row group, and `gpuvitals.blocks`, a JSON list with the CRC32C of
//! every [`BLOCK_BYTES`] before the footer; the manifest has the CRC32C of the footer. So every byte of a file is under a
//! checksum, and a query checks what it reads, once.

mod columns;
mod describe;
mod error;
mod facts;
mod group;
mod group_writer;
mod reading;
mod writing;

pub use error::FileError;

pub(crate) use columns::properties;
pub(crate) use describe::describe;
pub(crate) use facts::BLOCK_BYTES;
pub(crate) use group::{GroupPart, read_group};
pub(crate) use reading::{TableFile, open, open_whole, with_types_of_today};
pub(crate) use writing::{Place, Sorted, TableWriter, discard_all};
