//! Several batches in one piece.

use super::{WireError, decode};
use crate::Batch;

/// Why bytes are not batches.
#[derive(Debug, thiserror::Error)]
pub enum FramesError {
    /// They are cut off.
    #[error("it ends inside a frame")]
    Cut,
    /// A frame is no batch.
    #[error("a frame is no batch")]
    Wire(#[from] WireError),
}

/// Adds a batch in its wire form to a piece of several, each `length u32 | wire form`: the rows of one log record.
pub fn push_frame(bytes: &mut Vec<u8>, frame: &[u8]) {
    bytes.reserve(4 + frame.len());
    bytes.extend_from_slice(&u32::try_from(frame.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(frame);
}

/// The batches of such a piece, up to the first fault.
pub fn decode_frames(mut bytes: &[u8]) -> impl Iterator<Item = Result<Batch, FramesError>> {
    std::iter::from_fn(move || {
        let whole = std::mem::take(&mut bytes);
        if whole.is_empty() {
            return None;
        }
        let split = whole
            .split_first_chunk::<4>()
            .and_then(|(len, rest)| rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?));
        let Some((frame, rest)) = split else { return Some(Err(FramesError::Cut)) };
        let batch = decode(frame).map_err(FramesError::from);
        if batch.is_ok() {
            bytes = rest;
        }
        Some(batch)
    })
}
