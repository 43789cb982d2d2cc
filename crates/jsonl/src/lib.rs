//! JSON lines for those who want `grep`: a file a GPU, a line a row.
//!
//! ```text
//! DIR/
//!   gpu_0@node-1.jsonl              {"gpu_id":"gpu_0@node-1","metrics":{"power_w":402.25},"timestamp":"2026-01-01T00:00:00Z"}
//!   gpu_0@node-1~00000001.jsonl     the first of its files that grew to the bound; nothing writes to it any more
//!   jsonl-log/                      the write-ahead log, and LOCK: one writer
//! ```
//!
//! `metrics` has the columns that have a value in the row, by name; identity other than `gpu_id`, which is the GPU's key
//! (`uuid` or `uuid:partition`), is not written. A line of a simulated row ends with `"simulated":true`. In a file name `%` and two digits stand for each byte of the key that is not
//! a letter, a digit or one of `-_.@+`, so that two keys never share a file; `~` is in no key.
//!
//! # When a row is durable
//! Once its record in the log is synced: then it is acknowledged. A thread appends the lines a moment later, syncs the
//! files from time to time, and notes in the log up to which record they hold everything; the log is truncated up to
//! there. After a crash the records after the last note are compared with the ends of the files: a line that is there is not
//! written again, what the crash left of a line is cut off.
//!
//! # A file that cannot be written
//! Its rows wait in memory and in the log, and the files of other GPUs are written. Meanwhile the log is not truncated, for
//! nobody. When the rows that wait take all the memory that they may, or the rows in the log eight times as much, which is
//! what opening anew would take, nothing is accepted until the file can be written.
//!
//! # Equal keys
//! Rows of one GPU and instant that wait together become one line. A row that comes later than its line was written is
//! compared with the last lines of its file (at least [`LOOK_BACK`] bytes): values that are there already are left out, and if
//! that is all, so is the line. Otherwise a further line with the same `timestamp` holds the rest, and of two values of a
//! metric the later line counts. Rows older than that are written without comparison.
//!
//! # Other tables
//! Only rows of `gpu_events` are written. Rows of other tables are accepted, left out, and counted.

mod error;
mod files;
mod name;
mod pending;
mod recovery;
mod shared;
mod sink;
mod writer;

pub use error::JsonlError;
pub use files::LOOK_BACK;
pub use recovery::JsonlRecovered;
pub use sink::{Jsonl, JsonlConfig};
