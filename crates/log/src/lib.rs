//! The write-ahead log: opaque records, group commit, and a recovery that tells a torn tail from damage.
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
//! A log is a directory of segment files. A record is a batch of whatever the caller likes: it survives whole
//! or not at all, and is the unit that is numbered, acknowledged and replayed. Sequence numbers start at 1 and grow
//! strictly; they have gaps after a crash or damage, because a number that torn bytes may have borne is not given again.
//!
//! It is not a queue, an index or a database: it reads a record back from the [`Place`] that it told when the record
//! was appended or replayed, and knows no other key. **It does not lock its directory**: one process owns a directory, and seeing to that is
//! the caller's business. It knows no runtime, no clock and no metrics; it blocks on one thread of its own.
//!
//! # Files
//! `<base>.wal`, 16 lower-case hexadecimal digits, where `base` is the sequence that the segment's first record
//! gets. `<base>.new` is a segment being made (removed when the log is opened). `<base>.damaged` is a segment
//! that was due for removal, but holds a damaged range: it is kept until a person removes it. `<number>.spare` is a file
//! of zeros that will become a segment, and `<number>.zeroing` one that will become a spare (removed when the log is
//! opened); the number is random. All else in the directory is left alone and named in [`Recovery::ignored`]. All
//! integers are little-endian.
//!
//! ## Segment header, 1024 bytes
//! Two equal copies, at 0 and at 512, each in a sector of its own; one good copy suffices.
//!
//! | offset | field | meaning |
//! |---|---|---|
//! | 0 | magic, 8 bytes | `gpuvlog\n` |
//! | 8 | version u32 | 1 |
//! | 12 | reserved u32 | 0 |
//! | 16 | generation u64 | random, part of every record's checksum |
//! | 24 | base u64 | sequence of the first record |
//! | 32 | follows u64 | sequence at which everything before this segment ended |
//! | 40 | crc u32 | CRC32C of bytes 0..40 |
//!
//! A segment gets its `.wal` name only after its header is synced, and only after everything before it is
//! synced. So `follows` says two things about the segments before it: all below it was durable, and nothing from
//! it on counts (a torn tail that a recovery left behind).
//!
//! ## Record, at a multiple of 8
//!
//! | offset | field | meaning |
//! |---|---|---|
//! | 0 | len u32 | bytes of payload |
//! | 4 | crc u32 | CRC32C of generation, len, bytes 8..24 and payload |
//! | 8 | kind u8 | the caller's |
//! | 9 | flags u8 | 0 in version 1 |
//! | 10 | reserved u16 | 0 in version 1 |
//! | 12 | unsynced u32 | records before this one that were not known to be synced when it was written |
//! | 16 | sequence u64 | one more than that of the record before it |
//! | 24 | payload | then zeros up to a multiple of 8 |
//!
//! Zeros after the last record are a clean end. The checksum covers the generation, so what a recycled file
//! held before can never pass as a record of the segment that now lives in it. A segment begins as a spare, zero-filled
//! throughout ([`LogConfig::spares`]), or, if none is ready, as a new file that is zero-filled
//! [`LogConfig::fill_len`] bytes ahead of the writing. Both make most syncs data only.
//!
//! # Commit
//! Appends wait in a queue bounded by count and bytes. The writer thread takes all that wait, up to
//! [`LogConfig::group_len_max`], writes them with one call, syncs once, and completes them in order; the next group
//! forms while it syncs. There is no timer. [`Durability::Written`] records are completed after the write and never
//! cause a sync; the next one covers them.
//!
//! * A failed *write* (a full disk): that group's waiters get [`LogError::Write`], the file is rolled back to the
//!   last good end and synced, and the next append tries again.
//! * A failed *sync*, rollback or rename of a new segment: the log is poisoned. Nobody knows what is on the disk, so all waiters and
//!   all later calls get [`LogError::Poisoned`] until the log is opened anew.
//!
//! # Recovery
//! Reading stops at the first bad record. What comes after it decides what it is:
//!
//! * Nothing intact after it in the last segment, or only records that do not prove (by `unsynced`) that it had ever
//!   been synced: a **torn tail**, the remains of a group that nobody was told is safe. Served is what lies before it.
//!   Records behind it were written without it being there; serving them would break the promise that what survives
//!   is a prefix of what was appended.
//! * A later record, or a later segment, proves that it had been synced: **damage**. The range is reported in
//!   [`Recovery::damage`] and everything after it is served.
//!
//! Neither is deleted or overwritten: a new segment begins with the first append after each opening, and its `follows`
//! hides what was torn. The part of the last segment that no sync is proven for is written again and synced before it
//! is served, because after a failed sync the page cache may hold what the disk does not.
//!
//! # Limits
//! Record 16 MiB ([`RECORD_LEN_MAX`]) and what fits in a segment; segment 4 KiB to 1 GiB, default 64 MiB; one segment
//! is in memory during recovery.

mod board;
mod config;
mod disk;
mod error;
pub mod fault;
mod format;
mod log;
mod place;
mod read;
mod recovery;
mod scan;
mod spare;
mod submit;
mod writer;

pub use config::{Durability, LogConfig};
pub use disk::{Disk, DiskFile, FsDisk, Join, Step};
pub use error::LogError;
pub use format::RECORD_LEN_MAX;
pub use log::{Log, Stats, Ticket};
pub use place::{Appended, Place, SegmentStats};
pub use recovery::{Damage, Record, Recovery, TornTail};
