//! The embedded column store: an acknowledged row is in a synced log, queries see it at once, and it ends in sorted
//! Parquet files that any tool opens.
//!
//! ```text
//! DIR/
//!   LOCK                          advisory lock: one writer
//!   MANIFEST-0000000042           live files, and the last log record in them; the newest that verifies counts
//!   fleet-0000000042              latest value of every column of every GPU at that moment
//!   wal/                          the log: the acknowledgement point
//!   raw/gpu_events/2026-11-20/10h-L1-42.parquet   rows of one table and UTC hour, sorted by key and time; those of a past
//!                                                 day are in day-L2-43.parquet
//!   quarantine/                   files that failed a checksum, or that no manifest lists
//! ```
//!
//! One thread (`writer`) changes the visible state; readers take an `Arc` of a `Snapshot` and never wait for
//! a disk write. A second thread (`keeper`) writes, merges and deletes files.

mod board;
mod compact;
mod config;
mod directory;
mod error;
mod export;
mod file;
mod flush;
mod foreign;
mod grain;
mod history;
mod inspect;
mod inventory;
mod jobs;
mod keeper;
mod manifest;
mod query;
mod reader;
mod recent;
mod recover;
mod repair;
mod retention;
mod rollup;
mod shared;
mod sink;
mod snapshot;
mod stats;
mod step;
mod store;
mod tail;
mod view;
mod writer;

pub use config::StoreConfig;
pub use error::{AppendError, StoreError};
pub use export::RowsFile;
pub use file::FileError;
pub use gpuvitals_log::free_bytes;
pub use grain::Grain;
pub use inspect::{StoreCheck, StoreContents, TableFiles, check, contents};
pub use query::ROWS_MAX;
pub use recover::Recovered;
pub use repair::{FileFault, RepairProgress, RepairReport, repair};
pub use stats::{LevelStats, StoreStats};
pub use step::{FileStep, FileSteps};
pub use store::Store;
pub use view::{StoreView, ViewRows};
