//! Bytes → batch. The bytes may come from anyone: every length is checked before it is used.

use std::cell::RefCell;
use std::io::Read as _;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::{Field, Schema};
use bytes::Bytes;
use zstd::bulk::Decompressor;

use super::planes::{join, unzigzag32, unzigzag64};
use super::{
    ABSENCES_MAX, BODY_LEN_MAX, COLUMNS_MAX, CONSTANT, KIND_F32, KIND_F64, KIND_I32, KIND_I64, KIND_TEXT,
    MAGIC, PLANES, ROWS_MAX, TEXT_LEN_MAX, VALUES_LEN_MAX, WireError,
};
use crate::absence::{Absence, AbsenceReason};
use crate::batch::{Batch, MONOTONIC_COLUMN, Origin, TIMESTAMP_COLUMN};
use crate::catalogue::{self, Table};
use crate::identity::{INDEX_COLUMN, Identity, IdentityColumn};
use crate::number::float;

thread_local! {
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// Reads a batch from its binary form. Nothing in the bytes is trusted: texts, types, ranges and identities
/// are checked as untrusted input.
///
/// # Errors
/// If the bytes are not a batch, are damaged, over a limit, or hold impossible values.
pub fn decode(frame: &[u8]) -> Result<Batch, WireError> {
    let rest = frame.strip_prefix(MAGIC.as_slice()).ok_or(WireError::Magic)?;
    let (len, packed) = rest.split_first_chunk::<4>().ok_or(WireError::Damaged("no length"))?;
    let len = u32::from_le_bytes(*len) as usize;
    if len > BODY_LEN_MAX {
        return Err(WireError::Limit { what: "bytes", found: len, max: BODY_LEN_MAX });
    }
    let body = DECOMPRESSOR.with_borrow_mut(|slot| {
        let decompressor = match slot {
            Some(decompressor) => decompressor,
            None => slot.insert(Decompressor::new().map_err(WireError::Compression)?),
        };
        decompressor.decompress(packed, len).map_err(WireError::Compression)
    })?;
    let mut cursor = Cursor { rest: &body, values_len: 0 };
    let batch = parse(&mut cursor)?;
    if cursor.rest.is_empty() { Ok(batch) } else { Err(WireError::Damaged("bytes after the end")) }
}

/// [`decode`] of a batch that keeps these bytes, for who stores or forwards it: [`encode`](super::encode) returns them.
///
/// # Errors
/// As [`decode`].
pub fn decode_keeping(frame: &Bytes) -> Result<Batch, WireError> {
    let mut batch = decode(frame)?;
    batch.keep_wire(frame.clone());
    Ok(batch)
}

/// Number of rows of a batch in its binary form, from the first bytes of its body: all that a forwarder
/// needs. The rest is not checked.
///
/// # Errors
/// If the bytes do not begin as a batch does.
pub fn row_count(frame: &[u8]) -> Result<u32, WireError> {
    let rest = frame.strip_prefix(MAGIC.as_slice()).ok_or(WireError::Magic)?;
    let (len, packed) = rest.split_first_chunk::<4>().ok_or(WireError::Damaged("no length"))?;
    let len = u32::from_le_bytes(*len) as usize;
    if len > BODY_LEN_MAX {
        return Err(WireError::Limit { what: "bytes", found: len, max: BODY_LEN_MAX });
    }
    let mut unpacking = zstd::stream::read::Decoder::with_buffer(packed).map_err(WireError::Compression)?;
    unpacking.window_log_max(BODY_LEN_MAX.ilog2()).map_err(WireError::Compression)?;
    let mut head = Vec::new();
    unpacking.take(HEAD_LEN_MAX.min(len as u64)).read_to_end(&mut head).map_err(WireError::Compression)?;
    let head = parse_head(&mut Cursor { rest: &head, values_len: 0 })?;
    u32::try_from(head.rows).map_err(|_| WireError::Damaged("rows"))
}

/// The fields before the columns.
struct FrameHead {
    table: Table,
    origin: Origin,
    sequence: u64,
    rows: usize,
}

/// More than the length of the longest [`FrameHead`]: the text and 25 bytes.
const HEAD_LEN_MAX: u64 = TEXT_LEN_MAX as u64 + 32;

fn parse_head(cursor: &mut Cursor<'_>) -> Result<FrameHead, WireError> {
    let table = Table::ALL.get(usize::from(cursor.byte()?)).copied();
    let table = table.ok_or(WireError::Damaged("unknown table"))?;
    let node: Arc<str> = Arc::from(cursor.text()?);
    let started_ns = i64::from_le_bytes(cursor.array()?);
    let sequence = u64::from_le_bytes(cursor.array()?);
    let rows = cursor.bounded("rows", ROWS_MAX)?;
    if rows == 0 {
        return Err(WireError::Damaged("no rows"));
    }
    Ok(FrameHead { table, origin: Origin { node, started_ns }, sequence, rows })
}

fn parse(cursor: &mut Cursor<'_>) -> Result<Batch, WireError> {
    let FrameHead { table, origin, sequence, rows } = parse_head(cursor)?;
    let columns = cursor.bounded("columns", COLUMNS_MAX)?;
    let mut fields = Vec::with_capacity(columns);
    let mut arrays = Vec::with_capacity(columns);
    for _ in 0..columns {
        let name = cursor.text()?.to_owned();
        let array = column(cursor, table, &name, rows)?;
        if name == MONOTONIC_COLUMN {
            continue; // a foreign host's clock
        }
        fields.push(Field::new(name, array.data_type().clone(), array.nulls().is_some()));
        arrays.push(array);
    }
    let absences = absences(cursor)?;
    let records = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
    Ok(Batch::new(table, records, origin, sequence)?.with_absences(absences))
}

fn absences(cursor: &mut Cursor<'_>) -> Result<Vec<Absence>, WireError> {
    let count = cursor.bounded("absences", ABSENCES_MAX)?;
    let mut absences = Vec::new();
    for _ in 0..count {
        let gpu: Arc<str> = Arc::from(cursor.text()?);
        let metric = catalogue::by_column(cursor.text()?);
        let reason = AbsenceReason::ALL.get(usize::from(cursor.byte()?)).copied();
        let count = u32::try_from(cursor.varint()?).unwrap_or(u32::MAX);
        let reason = reason.ok_or(WireError::Damaged("unknown absence reason"))?;
        // A metric that only the sender knows has no name here; its absence is dropped.
        absences.extend(metric.map(|metric| Absence { gpu, metric, reason, count }));
    }
    Ok(absences)
}

fn column(cursor: &mut Cursor<'_>, table: Table, name: &str, rows: usize) -> Result<ArrayRef, WireError> {
    let kind = cursor.byte()?;
    let nulls = match cursor.byte()? {
        0 => None,
        1 => {
            let bits = cursor.take(rows.div_ceil(8))?.to_vec();
            Some(NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(bits), 0, rows)))
        }
        _ => return Err(WireError::Damaged("null flag")),
    };
    Ok(match kind {
        KIND_I32 => {
            let mut before = 0_i32;
            let values: Vec<i32> = values(cursor, rows, |bytes, constant| {
                if constant {
                    return i32::from_le_bytes(bytes);
                }
                before = before.wrapping_add(unzigzag32(u32::from_le_bytes(bytes)));
                before
            })?;
            Arc::new(in_range(Int32Array::new(values.into(), nulls), (table, name), |v| f64::from(*v))?)
        }
        KIND_I64 => {
            let mut before = 0_i64;
            let values: Vec<i64> = values(cursor, rows, |bytes, constant| {
                if constant {
                    return i64::from_le_bytes(bytes);
                }
                before = before.wrapping_add(unzigzag64(u64::from_le_bytes(bytes)));
                before
            })?;
            let array = in_range(Int64Array::new(values.into(), nulls), (table, name), |v| float(*v))?;
            Arc::new(array)
        }
        KIND_F32 => {
            let values: Vec<f32> = values(cursor, rows, |bytes, _| f32::from_le_bytes(bytes))?;
            Arc::new(in_range(Float32Array::new(values.into(), nulls), (table, name), |v| f64::from(*v))?)
        }
        KIND_F64 => {
            let values: Vec<f64> = values(cursor, rows, |bytes, _| f64::from_le_bytes(bytes))?;
            Arc::new(in_range(Float64Array::new(values.into(), nulls), (table, name), |v| *v)?)
        }
        KIND_TEXT => texts(cursor, name, rows, nulls)?,
        _ => return Err(WireError::Damaged("unknown column kind")),
    })
}

/// Numbers of a column of the table or the catalogue are in its range, times and indices are not negative, numbers of a foreign
/// column are finite.
fn in_range<T: arrow_array::ArrowPrimitiveType>(
    array: arrow_array::PrimitiveArray<T>,
    (table, name): (Table, &str),
    number: impl Fn(&T::Native) -> f64,
) -> Result<arrow_array::PrimitiveArray<T>, WireError> {
    let own = table.column(name).map(|own| (own.name, own.range));
    let metric = || catalogue::by_column(name).map(|id| (id.metric().column, id.metric().range));
    let (column, (min, max)) = match own.or_else(metric) {
        Some(known) => known,
        None if name == TIMESTAMP_COLUMN => (TIMESTAMP_COLUMN, (0.0, f64::MAX)),
        None if name == INDEX_COLUMN => (INDEX_COLUMN, (0.0, f64::MAX)),
        None => ("of foreign data", (f64::MIN, f64::MAX)),
    };
    if array.iter().flatten().all(|value| (min..=max).contains(&number(&value))) {
        Ok(array)
    } else {
        Err(WireError::Range { column, min, max })
    }
}

fn values<T: Clone, const W: usize>(
    cursor: &mut Cursor<'_>,
    rows: usize,
    mut value: impl FnMut([u8; W], bool) -> T,
) -> Result<Vec<T>, WireError> {
    cursor.charge(rows * size_of::<T>())?;
    match cursor.byte()? {
        CONSTANT => Ok(vec![value(cursor.array()?, true); rows]),
        PLANES => {
            let area = cursor.take(rows * W)?;
            let values = join(area, rows).map(|bytes| Some(value(bytes?, false)));
            values.collect::<Option<_>>().ok_or(WireError::Damaged("a plane is short"))
        }
        _ => Err(WireError::Damaged("unknown encoding")),
    }
}

fn texts(
    cursor: &mut Cursor<'_>,
    name: &str,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, WireError> {
    let count = cursor.bounded("texts", ROWS_MAX)?;
    let identity = IdentityColumn::by_name(name);
    let mut texts = Vec::with_capacity(count);
    for _ in 0..count {
        let text = cursor.text()?;
        if let Some(column) = identity {
            if text.is_empty() {
                return Err(WireError::Damaged("an identity text is empty"));
            }
            Identity::default().set(column, text)?;
        }
        texts.push(text);
    }
    let keys: Vec<i32> = match count {
        0..=0x100 => values(cursor, rows, |b: [u8; 1], _| i32::from(b[0]))?,
        0x101..=0x1_0000 => values(cursor, rows, |b: [u8; 2], _| i32::from(u16::from_le_bytes(b)))?,
        _ => values(cursor, rows, |b: [u8; 4], _| i32::from_le_bytes(b))?,
    };
    let dictionary = Arc::new(StringArray::from(texts));
    Ok(Arc::new(DictionaryArray::<Int32Type>::try_new(Int32Array::new(keys.into(), nulls), dictionary)?))
}

struct Cursor<'a> {
    rest: &'a [u8],
    /// Bytes of values so far, in memory.
    values_len: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(WireError::Damaged("it ends early"))?;
        self.rest = rest;
        Ok(head)
    }

    /// Counts values before memory is allocated for them.
    fn charge(&mut self, len: usize) -> Result<(), WireError> {
        self.values_len += len;
        let found = self.values_len;
        if found > VALUES_LEN_MAX {
            return Err(WireError::Limit { what: "bytes of values", found, max: VALUES_LEN_MAX });
        }
        Ok(())
    }

    fn array<const W: usize>(&mut self) -> Result<[u8; W], WireError> {
        let (head, rest) = self.rest.split_first_chunk().ok_or(WireError::Damaged("it ends early"))?;
        self.rest = rest;
        Ok(*head)
    }

    fn byte(&mut self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn varint(&mut self) -> Result<usize, WireError> {
        let mut value = 0_usize;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::Damaged("number too long"))
    }

    fn bounded(&mut self, what: &'static str, max: usize) -> Result<usize, WireError> {
        let found = self.varint()?;
        if found > max { Err(WireError::Limit { what, found, max }) } else { Ok(found) }
    }

    fn text(&mut self) -> Result<&'a str, WireError> {
        let len = self.bounded("bytes in a text", TEXT_LEN_MAX)?;
        std::str::from_utf8(self.take(len)?).map_err(|_| WireError::Damaged("text is not UTF-8"))
    }
}
