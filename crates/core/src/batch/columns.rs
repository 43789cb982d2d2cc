//! A batch has columns of known names and types.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array as _, ArrayRef, DictionaryArray, Int64Array, StringArray};
use arrow_schema::{DataType, Field, Schema};

use super::value::Value;
use crate::catalogue::{self, ColumnType, Table, TableColumn};
use crate::identity::{INDEX_COLUMN, IdentityColumn};
use crate::number::float;

/// Name of the time column: nanoseconds UTC since 1970 when the value was taken.
pub const TIMESTAMP_COLUMN: &str = "timestamp_ns";

/// Name of the column with the monotonic clock (nanoseconds since the host booted) that recordings carry:
/// durations and energy are integrated over it, since the wall clock may step. It means nothing on another
/// host, so the wire form omits it.
pub const MONOTONIC_COLUMN: &str = "monotonic_ns";

/// Name of the column that says how long the reading of a row took, microseconds: right to a factor of 1.5, from 100 on, and to two digits
/// where it took five times as long as the one before.
pub const READ_US_COLUMN: &str = "read_us";

/// Name of the column with the reason, as that of an absence, for which the reading of a row gave nothing; null: it gave something.
pub const READ_ERROR_COLUMN: &str = "read_error";

/// Whether a column stays on its machine: it means nothing elsewhere, so neither wire form nor message has it. A
/// packed batch does.
pub fn is_local(name: &str) -> bool {
    [MONOTONIC_COLUMN, READ_US_COLUMN, READ_ERROR_COLUMN].contains(&name)
}

/// The process that made the batch. With the sequence it identifies a batch for ever.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Origin {
    /// Host name of the producing process.
    pub node: Arc<str>,
    /// When that process (or that source in it) started, nanoseconds UTC since 1970.
    pub started_ns: i64,
}

/// Columns that do not form a batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// A column that every batch needs is missing or has another type.
    #[error("column {0} is missing, has nulls or has another type")]
    Required(&'static str),
    /// Two columns with the same name.
    #[error("column {0:?} is there twice")]
    Twice(String),
    /// A column of the table, the catalogue or the identity of another type than theirs.
    #[error("column {column} has type {found}, not the catalogue's")]
    Type {
        /// Name of the column.
        column: String,
        /// The type that it has in the batch.
        found: DataType,
    },
}

/// A metric's values in a batch.
#[derive(Debug, Clone, Copy)]
pub enum MetricColumn<'a> {
    /// Of a column of [`ColumnType::I32`](crate::catalogue::ColumnType::I32).
    I32(&'a arrow_array::Int32Array),
    /// Of a column of [`ColumnType::I64`](crate::catalogue::ColumnType::I64).
    I64(&'a Int64Array),
    /// Of a column of [`ColumnType::F32`](crate::catalogue::ColumnType::F32).
    F32(&'a arrow_array::Float32Array),
    /// Of a column of [`ColumnType::F64`](crate::catalogue::ColumnType::F64).
    F64(&'a arrow_array::Float64Array),
}

impl MetricColumn<'_> {
    /// The value of a row, if it has one. A 32-bit float keeps its shortest decimal spelling.
    pub fn value(&self, row: usize) -> Option<Value> {
        match self {
            Self::I32(a) => (row < a.len() && a.is_valid(row)).then(|| Value::Int(a.value(row).into())),
            Self::I64(a) => (row < a.len() && a.is_valid(row)).then(|| Value::Int(a.value(row))),
            Self::F32(a) => (row < a.len() && a.is_valid(row)).then(|| Value::Float32(a.value(row))),
            Self::F64(a) => (row < a.len() && a.is_valid(row)).then(|| Value::Float(a.value(row))),
        }
    }
}

/// Arrow type of a catalogue column.
pub fn data_type(column_type: ColumnType) -> DataType {
    match column_type {
        ColumnType::I32 => DataType::Int32,
        ColumnType::I64 => DataType::Int64,
        ColumnType::F32 => DataType::Float32,
        ColumnType::F64 => DataType::Float64,
    }
}

/// Arrow type of textual identity and extra columns.
pub fn text_type() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The columns of a file with texts as a batch has them, whatever program wrote it.
pub fn with_text_type(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| match field.data_type() {
        DataType::Utf8 => Arc::new(Field::new(field.name(), text_type(), field.is_nullable())),
        _ => Arc::clone(field),
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// Text of a row of a dictionary column.
pub fn text_at(array: &DictionaryArray<Int32Type>, row: usize) -> Option<&str> {
    let key = array.key(row)?;
    let values: &StringArray = array.values().as_string_opt::<i32>()?;
    (key < values.len()).then(|| values.value(key))
}

/// Whether a column of a table is foreign: neither time, identity, one of the table's own nor in the catalogue.
pub fn is_unknown(table: Table, name: &str) -> bool {
    type_of(table, name).is_none()
}

/// Type of a column of a table, unless it is foreign.
pub fn type_of(table: Table, name: &str) -> Option<DataType> {
    if name == TIMESTAMP_COLUMN || name == MONOTONIC_COLUMN {
        Some(DataType::Int64)
    } else if name == INDEX_COLUMN {
        Some(DataType::Int32)
    } else if IdentityColumn::by_name(name).is_some() {
        Some(text_type())
    } else if let Some(column) = table.column(name) {
        Some(column_type(column))
    } else {
        catalogue::by_column(name).map(|id| data_type(id.metric().column_type))
    }
}

pub(super) fn column_type(column: &TableColumn) -> DataType {
    column.column_type.map_or_else(text_type, data_type)
}

/// The numbers of a column, if it holds any.
pub fn numbers(column: &ArrayRef) -> Option<MetricColumn<'_>> {
    Some(match column.data_type() {
        DataType::Int32 => MetricColumn::I32(column.as_primitive::<Int32Type>()),
        DataType::Int64 => MetricColumn::I64(column.as_primitive::<Int64Type>()),
        DataType::Float32 => MetricColumn::F32(column.as_primitive::<Float32Type>()),
        DataType::Float64 => MetricColumn::F64(column.as_primitive::<Float64Type>()),
        _ => return None,
    })
}

/// Numbers in a type that holds each of them; none if the type does not. Integers beyond 2^53 lose their last digits as 64-bit
/// floats.
pub fn widened(array: &ArrayRef, wanted: &DataType) -> Option<ArrayRef> {
    Some(match (array.data_type(), wanted) {
        (found, wanted) if found == wanted => Arc::clone(array),
        (DataType::Int32, DataType::Int64) => {
            Arc::new(array.as_primitive::<Int32Type>().unary::<_, Int64Type>(i64::from))
        }
        (DataType::Int32, DataType::Float64) => {
            Arc::new(array.as_primitive::<Int32Type>().unary::<_, Float64Type>(f64::from))
        }
        (DataType::Float32, DataType::Float64) => {
            Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float64Type>(f64::from))
        }
        (DataType::Int64, DataType::Float64) => {
            Arc::new(array.as_primitive::<Int64Type>().unary::<_, Float64Type>(float))
        }
        _ => return None,
    })
}
