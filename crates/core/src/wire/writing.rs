//! Batch → bytes.

use std::cell::RefCell;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, DictionaryArray};
use arrow_schema::DataType;
use bytes::Bytes;
use zstd::bulk::Compressor;

use super::planes::{split, zigzag32, zigzag64};
use super::{
    ABSENCES_MAX, BODY_LEN_MAX, COLUMNS_MAX, CONSTANT, KIND_F32, KIND_F64, KIND_I32, KIND_I64, KIND_TEXT,
    MAGIC, PLANES, ROWS_MAX, TEXT_LEN_MAX, VALUES_LEN_MAX, WireError,
};
use crate::IdentityColumn;
use crate::batch::{Batch, BatchError, MONOTONIC_COLUMN, is_local, text_at};

/// Level 1: higher levels cost more time than the saved bytes are worth on this path.
const LEVEL: i32 = 1;

thread_local! {
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
}

/// Writes a batch in binary form, without the columns that stay on its machine. Of a batch that keeps the bytes it was decoded from,
/// these are the form.
///
/// # Errors
/// If the batch exceeds a limit of the format or has a column of a type the format lacks.
pub fn encode(batch: &Batch) -> Result<Bytes, WireError> {
    if let Some(wire) = batch.wire() {
        return Ok(wire.clone());
    }
    written(batch, |name| !is_local(name))
}

/// The same for this machine: all columns but the monotonic clock.
///
/// # Errors
/// As [`encode`].
pub(super) fn encode_here(batch: &Batch) -> Result<Bytes, WireError> {
    written(batch, |name| name != MONOTONIC_COLUMN)
}

fn written(batch: &Batch, is_sent: fn(&str) -> bool) -> Result<Bytes, WireError> {
    let records = batch.records();
    limit("rows", batch.rows(), ROWS_MAX)?;
    limit("columns", records.num_columns(), COLUMNS_MAX)?;
    limit("absences", batch.absences().len(), ABSENCES_MAX)?;
    let widths = records.columns().iter().map(|array| array.data_type().primitive_width().unwrap_or(4));
    limit("bytes of values", widths.sum::<usize>() * batch.rows(), VALUES_LEN_MAX)?;
    let mut body = Vec::with_capacity(batch.rows() * 96 + 2048);
    body.push(batch.table() as u8);
    text(&mut body, &batch.origin().node);
    body.extend_from_slice(&batch.origin().started_ns.to_le_bytes());
    body.extend_from_slice(&batch.sequence().to_le_bytes());
    varint(&mut body, batch.rows());
    let schema = records.schema_ref();
    let columns = schema.fields().iter().zip(records.columns());
    let sent = || columns.clone().filter(move |(field, _)| is_sent(field.name()));
    varint(&mut body, sent().count());
    for (field, array) in sent() {
        text(&mut body, field.name());
        column(&mut body, field.name(), array)?;
    }
    varint(&mut body, batch.absences().len());
    for absence in batch.absences() {
        text(&mut body, &absence.gpu);
        text(&mut body, absence.metric.metric().column);
        body.push(absence.reason as u8);
        varint(&mut body, absence.count as usize);
    }
    limit("bytes", body.len(), BODY_LEN_MAX)?;
    compress(&body)
}

fn limit(what: &'static str, found: usize, max: usize) -> Result<(), WireError> {
    if found > max { Err(WireError::Limit { what, found, max }) } else { Ok(()) }
}

fn compress(body: &[u8]) -> Result<Bytes, WireError> {
    COMPRESSOR.with_borrow_mut(|slot| {
        let compressor = match slot {
            Some(compressor) => compressor,
            None => slot.insert(Compressor::new(LEVEL).map_err(WireError::Compression)?),
        };
        let len = u32::try_from(body.len()).map_err(|_| WireError::Damaged("body over 4 GiB"))?;
        let mut frame = Vec::with_capacity(8 + zstd::zstd_safe::compress_bound(body.len()));
        frame.extend_from_slice(MAGIC);
        frame.extend_from_slice(&len.to_le_bytes());
        let packed = compressor.compress(body).map_err(WireError::Compression)?;
        frame.extend_from_slice(&packed);
        frame.shrink_to_fit();
        Ok(Bytes::from(frame))
    })
}

fn column(body: &mut Vec<u8>, name: &str, array: &ArrayRef) -> Result<(), WireError> {
    match array.data_type() {
        DataType::Int32 => {
            nulls(body, KIND_I32, array);
            let values = array.as_primitive::<Int32Type>().values();
            if constant(body, values, |v| v.to_le_bytes()) {
                return Ok(());
            }
            let mut before = 0_i32;
            split(
                values.iter().map(|&v| {
                    let difference = v.wrapping_sub(before);
                    before = v;
                    zigzag32(difference).to_le_bytes()
                }),
                body,
            );
        }
        DataType::Int64 => {
            nulls(body, KIND_I64, array);
            let values = array.as_primitive::<Int64Type>().values();
            if constant(body, values, |v| v.to_le_bytes()) {
                return Ok(());
            }
            let mut before = 0_i64;
            split(
                values.iter().map(|&v| {
                    let difference = v.wrapping_sub(before);
                    before = v;
                    zigzag64(difference).to_le_bytes()
                }),
                body,
            );
        }
        DataType::Float32 => {
            nulls(body, KIND_F32, array);
            let values = array.as_primitive::<Float32Type>().values();
            if !constant(body, values, |v| v.to_le_bytes()) {
                split(values.iter().map(|v| v.to_le_bytes()), body);
            }
        }
        DataType::Float64 => {
            nulls(body, KIND_F64, array);
            let values = array.as_primitive::<Float64Type>().values();
            if !constant(body, values, |v| v.to_le_bytes()) {
                split(values.iter().map(|v| v.to_le_bytes()), body);
            }
        }
        DataType::Dictionary(_, _) => texts(body, name, array)?,
        other => {
            return Err(BatchError::Type { column: name.to_owned(), found: other.clone() }.into());
        }
    }
    Ok(())
}

fn texts(body: &mut Vec<u8>, name: &str, array: &ArrayRef) -> Result<(), WireError> {
    let wrong = || BatchError::Type { column: name.to_owned(), found: array.data_type().clone() };
    let dictionary = array.as_dictionary_opt::<Int32Type>().ok_or_else(wrong)?;
    let values = dictionary.values().as_string_opt::<i32>().ok_or_else(wrong)?;
    // Files have such values for rows without a text.
    let is_name = IdentityColumn::by_name(name).is_some();
    let is_none = |value: Option<&str>| value.is_none_or(|text| is_name && text.is_empty());
    if values.iter().any(is_none) {
        let text = |row| text_at(dictionary, row).filter(|text| !is_none(Some(text)));
        let used: DictionaryArray<Int32Type> = (0..array.len()).map(text).collect();
        return texts(body, name, &(Arc::new(used) as ArrayRef));
    }
    // The bitmap holds the nulls; the key below them is whatever the array has, brought into range.
    nulls(body, KIND_TEXT, array);
    varint(body, values.len());
    for value in values {
        let value = value.unwrap_or_default();
        limit("bytes in a text", value.len(), TEXT_LEN_MAX)?;
        text(body, value);
    }
    let top = u32::try_from(values.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let keys: Vec<u32> =
        dictionary.keys().values().iter().map(|&k| u32::try_from(k).unwrap_or(0).min(top)).collect();
    match values.len() {
        0..=0x100 => {
            if !constant(body, &keys, |k| [k.to_le_bytes()[0]]) {
                split(keys.iter().map(|k| [k.to_le_bytes()[0]]), body);
            }
        }
        0x101..=0x1_0000 => {
            let two = |k: &u32| [k.to_le_bytes()[0], k.to_le_bytes()[1]];
            if !constant(body, &keys, two) {
                split(keys.iter().map(two), body);
            }
        }
        _ => {
            if !constant(body, &keys, |k| k.to_le_bytes()) {
                split(keys.iter().map(|k| k.to_le_bytes()), body);
            }
        }
    }
    Ok(())
}

fn nulls(body: &mut Vec<u8>, kind: u8, array: &ArrayRef) {
    body.push(kind);
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => body.push(0),
        Some(nulls) => {
            body.push(1);
            body.extend_from_slice(
                nulls.inner().sliced().as_slice().get(..nulls.len().div_ceil(8)).unwrap_or_default(),
            );
        }
    }
}

/// Writes the encoding byte and, if all values are one, that value.
fn constant<T: Copy + PartialEq, const W: usize>(
    body: &mut Vec<u8>,
    values: &[T],
    bytes: impl Fn(&T) -> [u8; W],
) -> bool {
    if let Some(first) = values.first()
        && values.iter().all(|value| bytes(value) == bytes(first))
    {
        body.push(CONSTANT);
        body.extend_from_slice(&bytes(first));
        return true;
    }
    body.push(PLANES);
    false
}

fn text(body: &mut Vec<u8>, text: &str) {
    varint(body, text.len());
    body.extend_from_slice(text.as_bytes());
}

#[expect(clippy::cast_possible_truncation, reason = "the low seven bits are meant")]
fn varint(body: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        body.push(value as u8 | 0x80);
        value >>= 7;
    }
    body.push(value as u8);
}
