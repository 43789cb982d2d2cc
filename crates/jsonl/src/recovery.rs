//! The log: its records, and the rows in them that the files lack.
//!
//! ```text
//! kind 1   rows       batches as `wire::push_frame` puts them, as they were accepted
//! kind 2   written    u64, little-endian: the files hold, synced, all rows of records up to that number
//! ```

use std::collections::VecDeque;

use bytes::Bytes;
use gpuvitals_core::{Batch, wire};
use gpuvitals_log::Recovery;

use crate::error::JsonlError;

pub(crate) const KIND_ROWS: u8 = 1;
pub(crate) const KIND_WRITTEN: u8 = 2;

/// What opening found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JsonlRecovered {
    /// Acknowledged rows that were compared with their files, and written where they were missing.
    pub rows: u64,
    /// Bytes at the end of the log that the last crash left unfinished; nothing of them was acknowledged.
    pub torn_bytes: u64,
    /// Acknowledged records that cannot be read any more, in words.
    pub damage: Vec<String>,
}

/// What the log gives back.
pub(crate) struct ReplayedRows {
    /// The rows that may be missing in files.
    pub(crate) batches: Vec<Batch>,
    /// Number of the last record.
    pub(crate) sequence: u64,
}

/// Reads the log.
///
/// # Errors
/// If the log cannot be read, or a record is none that this version writes: opened without it, the log would forget its rows.
pub(crate) fn rows(recovery: Recovery, found: &mut JsonlRecovered) -> Result<ReplayedRows, JsonlError> {
    found.torn_bytes = recovery.torn.as_ref().map_or(0, |torn| torn.len);
    found.damage.extend(recovery.damage.iter().map(ToString::to_string));
    let mut last = 0;
    let mut waiting: VecDeque<(u64, Bytes)> = VecDeque::new();
    for record in recovery {
        let record = record?;
        last = record.sequence;
        match record.kind {
            // A copy, since it would hold the memory of its segment.
            KIND_ROWS => waiting.push_back((record.sequence, Bytes::copy_from_slice(&record.payload))),
            KIND_WRITTEN => {
                let number = record.payload.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                while waiting.pop_front_if(|(sequence, _)| *sequence <= number).is_some() {}
            }
            kind => return Err(JsonlError::UnknownRecord { sequence: last, kind }),
        }
    }
    let mut batches = Vec::new();
    for (sequence, payload) in waiting {
        for batch in wire::decode_frames(&payload) {
            let batch = batch.map_err(|source| JsonlError::Undecodable { sequence, source })?;
            found.rows += batch.rows() as u64;
            batches.push(batch);
        }
    }
    Ok(ReplayedRows { batches, sequence: last })
}
