//! The write-ahead log: opaque records, group commit, and a recovery that distinguishes a torn tail from
//! damage.
//!
//! ```
//! use bytes::Bytes;
//! use gpuvitals_log::{Durability, Log, LogConfig, fault::FaultDisk};
//!
//! let disk = FaultDisk::new(); // or FsDisk::open(directory)?
//! let (log, recovery) = Log::open(disk.clone(), LogConfig::default())?;
//! assert_eq!(recovery.records, 0);
//! let appended = log.append(7, Bytes::from_static(b"a row"), Durability::Synced).wait()?;
//! assert_eq!(log.read(appended.place)?.payload, "a row");
//! log.close()?;
//!
//! let (_log, recovery) = Log::open(disk, LogConfig::default())?;
//! for record in recovery {
//!     let record = record?;
//!     assert_eq!((record.sequence, record.kind, &*record.payload), (appended.sequence, 7, &b"a row"[..]));
//! }
//! # Ok::<(), gpuvitals_log::LogError>(())
//! ```
//!
//! # What it is, and what it is not
//! A log is a directory of segment files. A record is a batch of anything: it survives whole or not at all,
//! and is the unit that is numbered, acknowledged and replayed. Sequence numbers start at 1 and grow
//! strictly; they have gaps after a crash or damage, because a number that torn bytes may have had is not
//! given again.
//!
//! It is not a queue, an index or a database: it reads a record back from the [`Place`] that it returned when
//! the record was appended or replayed, and knows no other key. **It does not lock its directory**: one
//! process owns a directory, and the caller must ensure this ([`DirectoryLock`]). It knows no runtime, no clock and no metrics;
//! it blocks on one thread of its own, and on a caller's if requested ([`Log::commit`]).
//!
//! # Segment header, 1024 bytes
//! All integers are little-endian. Two equal copies, at 0 and at 512, each in a sector of its own; one good copy suffices.
//!
//! | offset | field | meaning |
//! |---|---|---|
//! | 0 | magic, 8 bytes | `gpuvlog\n` |
//! | 8 | version u32 | 1 |
//! | 12 | reserved u32 | 0 |
//! | 16 | generation u64 | random, part of every record's checksum |
//! | 24 | base u64 | sequence of the first record, as in the file's name |
//! | 32 | follows u64 | sequence at which everything before this segment ended |
//! | 40 | crc u32 | CRC32C of bytes 0..40 |
//!
//! A segment gets its `.wal` name only after its header is synced, and only after everything before it is synced. So
//! `follows` says two things about the segments before it: everything below it was durable, and nothing from it on counts
//! (a torn tail that a recovery left behind).
//!
//! # Record, at a multiple of 8
//! | offset | field | meaning |
//! |---|---|---|
//! | 0 | len u32 | bytes of payload |
//! | 4 | crc u32 | CRC32C of generation, len, bytes 8..24 and payload |
//! | 8 | kind u8 | the owner's |
//! | 9 | flags u8 | 0 in version 1 |
//! | 10 | reserved u16 | 0 in version 1 |
//! | 12 | unsynced u32 | records before this one that were not known to be synced when it was written |
//! | 16 | sequence u64 | one more than that of the record before it |
//! | 24 | payload | then zeros up to a multiple of 8 |
//!
//! Zeros after the last record are a clean end. The checksum covers the generation, so a record from an earlier use of the
//! file can never pass as one of its present segment.
//!
//! # Further documentation
//! The files of a directory, limits, what opening does after a crash, and what is left to a person:
//! `docs/log-format.md`. The meaning of a failed write and a failed sync for callers: [`LogError::Write`] and
//! [`LogError::Poisoned`].
//!
//! # Threads
//! After recovery only the holder of the turn touches segments: the writer's thread or a caller in
//! [`Log::commit`]. Making spares takes a thread of its own while it lasts; it touches files that are not
//! segments. [`Log::read`] and [`Recovery`] read on their callers' threads. Close a poisoned log before the
//! directory is opened anew.

mod beside;
mod board;
mod config;
mod disk;
mod error;
pub mod fault;
mod format;
mod fresh;
mod lock;
mod log;
mod place;
mod read;
mod recovery;
mod scan;
mod spare;
mod state;
mod submit;
mod writer;

pub use beside::{read_beside, read_beside_from};
pub use config::{CommitOn, Durability, LogConfig};
pub use disk::{Disk, DiskFile, FsDisk, Join, Step, free_bytes, read_full, write_all};
pub use error::LogError;
pub use format::RECORD_LEN_MAX;
pub use fresh::Fresh;
pub use lock::{DISPLACED, DirectoryLock, LockError, create_file, make_directory, open_file, sync_directory};
pub use log::{Log, LogStats, Ticket};
pub use place::{Appended, Place, SegmentStats};
pub use recovery::{Damage, Record, Recovery, TornTail};
pub use state::state_directory;
pub use submit::Shorter;
