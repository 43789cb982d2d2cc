//! A batch as bytes of a journal or a log of its machine: its frame, and the monotonic clock, which that leaves out. Columns that stay
//! on the machine are in that frame, too.
//!
//! ```text
//! packed = monotonic_count u64 | monotonic_ns i64 … | frame                integers little-endian
//! ```

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use bytes::Bytes;

use super::writing::encode_here;
use super::{WireError, decode};
use crate::batch::{Batch, MONOTONIC_COLUMN, TIMESTAMP_COLUMN};

/// The clock and the frame of a batch, to be written one behind the other.
///
/// # Errors
/// If the batch has no binary form.
pub fn clock_and_frame(batch: &Batch) -> Result<(Vec<u8>, Bytes), WireError> {
    let frame = encode_here(batch)?;
    let monotonic = batch.monotonic().unwrap_or_default();
    let mut clock = Vec::with_capacity(8 + 8 * monotonic.len());
    clock.extend_from_slice(&(monotonic.len() as u64).to_le_bytes());
    for ns in monotonic {
        clock.extend_from_slice(&ns.to_le_bytes());
    }
    Ok((clock, frame))
}

/// Writes a batch as bytes behind those that are there.
///
/// # Errors
/// If the batch has no binary form.
pub fn pack(batch: &Batch, bytes: &mut Vec<u8>) -> Result<(), WireError> {
    let (clock, frame) = clock_and_frame(batch)?;
    bytes.extend_from_slice(&clock);
    bytes.extend_from_slice(&frame);
    Ok(())
}

/// Reads a batch back.
///
/// # Errors
/// If these bytes are none of a batch.
pub fn unpack(payload: &[u8]) -> Result<Batch, WireError> {
    let short = || WireError::Damaged("no monotonic clock");
    let (count, rest) = payload.split_first_chunk::<8>().ok_or_else(short)?;
    let clock_len = usize::try_from(u64::from_le_bytes(*count)).ok().and_then(|count| count.checked_mul(8));
    let (clock, frame) = clock_len.and_then(|len| rest.split_at_checked(len)).ok_or_else(short)?;
    let batch = decode(frame)?;
    if clock.is_empty() {
        return Ok(batch);
    }
    let monotonic: Vec<i64> = clock.as_chunks::<8>().0.iter().map(|ns| i64::from_le_bytes(*ns)).collect();
    let at = batch.schema().index_of(TIMESTAMP_COLUMN)? + 1;
    let mut fields: Vec<_> = batch.schema().fields().iter().cloned().collect();
    let mut arrays: Vec<ArrayRef> = batch.records().columns().to_vec();
    fields.insert(at, Arc::new(Field::new(MONOTONIC_COLUMN, DataType::Int64, false)));
    arrays.insert(at, Arc::new(Int64Array::from(monotonic)));
    let records = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
    let whole = Batch::new(batch.table(), records, batch.origin().clone(), batch.sequence())?;
    Ok(whole.with_absences(batch.absences().to_vec()))
}
