//! Settings of a log.

use crate::error::LogError;
use crate::format::{HEADER_LEN, RECORD_HEADER_LEN, RECORD_LEN_MAX};

const SEGMENT_LEN_MIN: u32 = 4 << 10;
/// Most [`LogConfig::segment_len`]: recovery holds one segment in memory.
pub(crate) const SEGMENT_LEN_MAX: u32 = 1 << 30;

const SPARES_MAX: u32 = 16;

/// When an append is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// After the write: survives the death of the process, not a power cut. Never causes a sync; the next
    /// [`Durability::Synced`] record or [`Log::sync`](crate::Log::sync) covers it.
    Written,
    /// After the sync: survives a power cut.
    Synced,
}

/// Who may write and sync a lone enqueued record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOn {
    /// The thread that commits, within the call.
    Caller,
    /// The log's own thread.
    Writer,
}

/// Limits of a log. They bind the process that writes; files made with other limits can be read too.
#[derive(Debug, Clone)]
pub struct LogConfig {
    /// Bytes of a segment, header included. Default 64 MiB; 4 KiB to 1 GiB.
    pub segment_len: u32,
    /// Bytes to zero-fill ahead of writing when no spare was ready; 0 turns it off. Default 4 MiB.
    pub fill_len: u32,
    /// Segments kept ready beside those in use, zeroed in the background, so that appends neither create nor
    /// extend a file; each takes [`LogConfig::segment_len`] bytes of the disk, from the opening on. 0 turns
    /// it off. Default 1; at most 16.
    pub spares: u32,
    /// Largest group in bytes; a single larger record is a group of its own. Default 4 MiB.
    pub group_len_max: u32,
    /// Most bytes that wait for the writer; a single larger record may wait alone. Default 16 MiB.
    pub queue_len_max: u32,
    /// Most records that wait for the writer. Default 65,536.
    pub queue_records_max: u32,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_len: 64 << 20,
            fill_len: 4 << 20,
            spares: 1,
            group_len_max: 4 << 20,
            queue_len_max: 16 << 20,
            queue_records_max: 1 << 16,
        }
    }
}

impl LogConfig {
    pub(crate) fn check(&self) -> Result<(), LogError> {
        let limits = [
            ("segment_len", self.segment_len, SEGMENT_LEN_MIN, SEGMENT_LEN_MAX),
            ("fill_len", self.fill_len, 0, SEGMENT_LEN_MAX),
            ("spares", self.spares, 0, SPARES_MAX),
            ("group_len_max", self.group_len_max, 1, SEGMENT_LEN_MAX),
            ("queue_len_max", self.queue_len_max, 1, u32::MAX),
            ("queue_records_max", self.queue_records_max, 1, u32::MAX),
        ];
        for (field, value, least, most) in limits {
            if value < least || value > most {
                return Err(LogError::Config { field, value, least, most });
            }
        }
        Ok(())
    }

    /// Bytes of payload that a record may have.
    pub(crate) fn record_len_max(&self) -> usize {
        RECORD_LEN_MAX.min(self.segment_len as usize - HEADER_LEN - RECORD_HEADER_LEN)
    }
}
