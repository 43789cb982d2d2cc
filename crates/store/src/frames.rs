//! Several batches in one piece, each `length u32 | wire form`, integers little-endian: the rows of an append as one log
//! record, and the latest values as one file.

use gpuvitals_core::{Batch, wire};

/// Why bytes are not batches.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// They are cut off.
    #[error("it ends inside a frame")]
    Cut,
    /// A frame is no batch.
    #[error("a frame is no batch")]
    Wire(#[from] wire::WireError),
}

/// Adds a batch in its wire form.
pub(crate) fn push(bytes: &mut Vec<u8>, frame: &[u8]) {
    bytes.reserve(4 + frame.len());
    bytes.extend_from_slice(&u32::try_from(frame.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(frame);
}

/// The batches, up to the first fault.
pub(crate) fn batches(mut bytes: &[u8]) -> impl Iterator<Item = Result<Batch, FrameError>> {
    std::iter::from_fn(move || {
        let whole = std::mem::take(&mut bytes);
        if whole.is_empty() {
            return None;
        }
        let split = whole
            .split_first_chunk::<4>()
            .and_then(|(len, rest)| rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?));
        let Some((frame, rest)) = split else { return Some(Err(FrameError::Cut)) };
        let batch = wire::decode(frame).map_err(FrameError::from);
        if batch.is_ok() {
            bytes = rest;
        }
        Some(batch)
    })
}
