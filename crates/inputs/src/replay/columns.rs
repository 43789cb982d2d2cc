//! The columns of a table file, and their values as those of a batch.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, DictionaryArray, Int32Array, Int64Array,
    PrimitiveArray, RecordBatch,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow_select::filter::filter_record_batch;
use gpuvitals_core::batch::{
    EXTRA_COLUMNS_MAX, TIMESTAMP_COLUMN, floats, is_local, narrowed, text_type, type_of, widened,
};
use gpuvitals_core::catalogue;
use gpuvitals_core::identity::INDEX_COLUMN;
use gpuvitals_core::number::float;
use gpuvitals_core::wire::TEXT_LEN_MAX;
use gpuvitals_core::{Identity, IdentityColumn, Table};

use super::ReplayError;
use crate::report::{Cause, Ledger};

/// Longest name of an unknown column, in bytes.
const NAME_LEN_MAX: usize = 128;

/// The columns of a file that go into batches, in its order.
#[derive(Debug)]
pub(super) struct FileColumns {
    all: Vec<FileColumn>,
    schema: SchemaRef,
    /// Place of the time in the file.
    time: usize,
}

#[derive(Debug)]
struct FileColumn {
    /// Place in the file.
    leaf: usize,
    name: String,
    data_type: DataType,
    identity: Option<IdentityColumn>,
    /// Smallest and largest possible number.
    range: (f64, f64),
    /// Whether a row without a value here is none.
    is_required: bool,
}

impl FileColumns {
    /// Checks the columns of a file.
    pub(super) fn of(table: Table, schema: &SchemaRef, file: &Arc<str>) -> Result<Self, ReplayError> {
        let required = [TIMESTAMP_COLUMN, table.subject().name()];
        let required: Vec<_> =
            required.into_iter().chain(table.required().map(|column| column.name)).collect();
        if let Some(column) = required.iter().find(|name| schema.index_of(name).is_err()) {
            return Err(ReplayError::Missing { file: Arc::clone(file), table: table.name(), column });
        }
        let mut columns = Vec::with_capacity(schema.fields().len());
        let (mut time, mut unknown) = (0, 0);
        for (leaf, field) in schema.fields().iter().enumerate() {
            let name = field.name();
            if is_local(name) {
                continue;
            }
            if name == TIMESTAMP_COLUMN {
                time = leaf;
            }
            let known = type_of(table, name);
            let is_name =
                !name.is_empty() && name.len() <= NAME_LEN_MAX && !name.chars().any(char::is_control);
            unknown += usize::from(known.is_none());
            if known.is_none() && (!is_name || unknown > EXTRA_COLUMNS_MAX) {
                return Err(ReplayError::Unknown { file: Arc::clone(file), column: name.clone() });
            }
            columns.push(FileColumn {
                leaf,
                name: name.clone(),
                data_type: become_of(known, field).map_err(|wanted| ReplayError::Column {
                    file: Arc::clone(file),
                    column: name.clone(),
                    found: field.data_type().clone(),
                    wanted,
                })?,
                identity: IdentityColumn::by_name(name),
                range: range(table, name),
                is_required: required.contains(&name.as_str()),
            });
        }
        let fields = columns.iter().map(|c| Field::new(&c.name, c.data_type.clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(Self { all: columns, schema, time })
    }

    /// The place of the time in the file.
    pub(super) fn time(&self) -> usize {
        self.time
    }

    /// The places of all of them in the file.
    pub(super) fn leaves(&self) -> impl Iterator<Item = usize> {
        self.all.iter().map(|column| column.leaf)
    }

    /// Rows as rows of a batch: impossible values are left out, rows without a key are skipped, both are reported.
    /// `numbers` has the numbers of the rows in the file.
    pub(super) fn fit(
        &self,
        records: &RecordBatch,
        numbers: &[u64],
        ledger: &mut Ledger,
    ) -> Result<RecordBatch, ArrowError> {
        let mut keep = vec![true; records.num_rows()];
        let mut arrays = Vec::with_capacity(self.all.len());
        for (column, array) in self.all.iter().zip(records.columns()) {
            let mut bad = |row: usize, problem: String| {
                let number = numbers.get(row).copied().unwrap_or(0);
                match keep.get_mut(row).filter(|_| column.is_required) {
                    None => ledger.value(number, Some(&column.name), problem),
                    Some(keep) if *keep => {
                        *keep = false;
                        ledger.skip(Cause::Identity, number, Some(&column.name), problem);
                    }
                    Some(_) => {}
                }
            };
            let array = column.fit(array, &mut bad)?;
            if column.is_required && array.null_count() > 0 {
                // Those that were bad are null now, and reported.
                (0..array.len())
                    .filter(|row| array.is_null(*row))
                    .for_each(|row| bad(row, NO_VALUE.to_owned()));
            }
            arrays.push(array);
        }
        let fitted = RecordBatch::try_new(Arc::clone(&self.schema), arrays)?;
        if keep.contains(&false) {
            return filter_record_batch(&fitted, &BooleanArray::from(keep));
        }
        Ok(fitted)
    }
}

const NO_VALUE: &str = "it has no value";

impl FileColumn {
    /// The values in the type of a batch, without impossible ones.
    fn fit(&self, array: &ArrayRef, bad: &mut impl FnMut(usize, String)) -> Result<ArrayRef, ArrowError> {
        if let DataType::Timestamp(_, _) = array.data_type() {
            let data = array.to_data().into_builder().data_type(DataType::Int64).build()?;
            return Ok(Arc::new(Int64Array::from(data)));
        }
        let wrong = || ArrowError::CastError(format!("column {} has changed its type", self.name));
        if self.data_type == text_type() {
            return Ok(self.texts(array.as_dictionary_opt::<Int32Type>().ok_or_else(wrong)?, bad));
        }
        let array = if let Some(array) = widened(array, &self.data_type) {
            array
        } else {
            let numbers: ArrayRef = Arc::new(floats(array).ok_or_else(wrong)?);
            let possible = self.numbers::<Float64Type>(&numbers, |value| value, bad);
            narrowed(possible.as_primitive(), &self.data_type)
        };
        Ok(match self.data_type {
            DataType::Int32 => self.numbers::<Int32Type>(&array, f64::from, bad),
            DataType::Int64 => self.numbers::<Int64Type>(&array, float, bad),
            DataType::Float32 => self.numbers::<Float32Type>(&array, f64::from, bad),
            _ => self.numbers::<Float64Type>(&array, |value| value, bad),
        })
    }

    fn numbers<T: ArrowPrimitiveType>(
        &self,
        array: &ArrayRef,
        number: impl Fn(T::Native) -> f64,
        bad: &mut impl FnMut(usize, String),
    ) -> ArrayRef {
        let (min, max) = self.range;
        let values = array.as_primitive::<T>();
        let is_bad = |value: T::Native| !(min..=max).contains(&number(value));
        if !values.iter().flatten().any(is_bad) {
            return Arc::clone(array);
        }
        let kept = values.iter().enumerate().map(|(row, value)| match value {
            Some(value) if is_bad(value) => {
                bad(row, format!("{} is outside {min} to {max}", number(value)));
                None
            }
            value => value,
        });
        Arc::new(kept.collect::<PrimitiveArray<T>>())
    }

    /// Texts: an empty one is none.
    fn texts(&self, array: &DictionaryArray<Int32Type>, bad: &mut impl FnMut(usize, String)) -> ArrayRef {
        let texts = array.values().as_string::<i32>();
        let problems: Vec<Option<String>> = texts.iter().map(|text| self.problem(text)).collect();
        if problems.iter().all(Option::is_none) {
            return Arc::new(array.clone());
        }
        let keys = array.keys_iter().enumerate().map(|(row, key)| {
            let key = key?;
            let Some(Some(problem)) = problems.get(key) else { return i32::try_from(key).ok() };
            if !problem.is_empty() {
                bad(row, problem.clone());
            }
            None
        });
        let keys: Int32Array = keys.collect();
        Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::clone(array.values())))
    }

    /// What is wrong with a text; nothing in words if it is none.
    fn problem(&self, text: Option<&str>) -> Option<String> {
        match (text, self.identity) {
            (None | Some(""), _) => Some(String::new()),
            (Some(text), Some(column)) => Identity::default().set(column, text).err().map(|e| e.to_string()),
            (Some(text), None) => (text.len() > TEXT_LEN_MAX)
                .then(|| format!("a text of {} bytes, more than {TEXT_LEN_MAX}", text.len())),
        }
    }
}

/// The type that a column gets in a batch; the type that it would need, if its own does not become that.
fn become_of(known: Option<DataType>, field: &Field) -> Result<DataType, &'static str> {
    let found = field.data_type();
    if field.name() == TIMESTAMP_COLUMN {
        let is_time = matches!(found, DataType::Int64 | DataType::Timestamp(TimeUnit::Nanosecond, _));
        return if is_time { Ok(DataType::Int64) } else { Err("nanoseconds as a 64-bit integer") };
    }
    let is_number = || floats(&arrow_array::new_empty_array(found)).is_some();
    match known {
        Some(wanted) if wanted == text_type() => {
            if *found == wanted {
                Ok(wanted)
            } else {
                Err("text")
            }
        }
        Some(wanted) if is_number() => Ok(wanted),
        Some(_) => Err("a number"),
        None if *found == text_type() => Ok(text_type()),
        None if is_number() => Ok(DataType::Float64),
        None => Err("a number or text"),
    }
}

/// The possible numbers of a column.
fn range(table: Table, name: &str) -> (f64, f64) {
    let own = table.column(name).map(|column| column.range);
    let metric = || catalogue::by_column(name).map(|id| id.metric().range);
    let other = || if name == INDEX_COLUMN { (0.0, f64::MAX) } else { (f64::MIN, f64::MAX) };
    own.or_else(metric).unwrap_or_else(other)
}
