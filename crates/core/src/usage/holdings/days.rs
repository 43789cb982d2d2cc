//! Rows of `gpu_usage` by the day. Who holds a GPU for a day has a row for each of its hours, of which sums over months need one.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Int32Type, Int64Type};
use arrow_array::{
    Array as _, ArrayRef, DictionaryArray, Int64Array, PrimitiveArray, RecordBatch, UInt32Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use arrow_select::take::take;
use foldhash::fast::RandomState;

use super::totals::Holdings;
use crate::IdentityColumn;
use crate::batch::{TIMESTAMP_COLUMN, timestamps};
use crate::time::DAY_NS;

/// The columns of which the highest number stays; other numbers add up.
const HIGHEST: [&str; 5] = ["run", "as_of_ns", "power_max_w", "temperature_max_c", "memory_max_mb"];

/// Rows of `gpu_usage` by the day: one for each GPU, holder, share and day. Their time is the start of the day.
#[derive(Debug)]
pub struct DayRows {
    /// The rows, with the columns of [`Holdings::day_schema`].
    pub rows: RecordBatch,
    /// The first row of each GPU.
    pub starts: Vec<usize>,
}

/// Which rows are put together.
#[derive(Default)]
struct DayGroups {
    /// Of each row the number of its group.
    of_rows: Vec<usize>,
    /// The first row of each group, and the start of its day.
    firsts: Vec<u32>,
    days_ns: Vec<i64>,
    /// The first group of each GPU.
    starts: Vec<usize>,
}

impl Holdings {
    /// The columns of rows by the day, of rows with these columns: what [`Holdings::add`] reads.
    pub fn day_schema(rows: &Schema) -> SchemaRef {
        let is_read = |field: &&Arc<Field>| {
            let name = field.name().as_str();
            name == TIMESTAMP_COLUMN
                || IdentityColumn::by_name(name).is_some()
                || Self::columns().any(|column| column == name)
        };
        Arc::new(Schema::new(rows.fields().iter().filter(is_read).cloned().collect::<Vec<_>>()))
    }

    /// Puts rows together by the day. Each key is there once, a GPU's rows lie side by side by time, and `starts` has the first of each
    /// GPU. What they add up to stays the same, of every range that has all of a day and of rows with known and busy time or neither, as
    /// ledgers make them.
    ///
    /// # Errors
    /// When a column has another type than the table's.
    pub fn by_day(rows: &RecordBatch, starts: &[usize]) -> Result<DayRows, ArrowError> {
        let schema = Self::day_schema(rows.schema_ref());
        let groups = DayGroups::of(rows, &schema, starts);
        let firsts = UInt32Array::from(groups.firsts.clone());
        let column = |field: &Arc<Field>| {
            let name = field.name().as_str();
            let Some(column) = rows.column_by_name(name).filter(|_| name != TIMESTAMP_COLUMN) else {
                return Ok(Arc::new(Int64Array::from(groups.days_ns.clone())) as ArrayRef);
            };
            match column.data_type() {
                DataType::Dictionary(_, _) => take(column, &firsts, None),
                DataType::Int64 if HIGHEST.contains(&name) => {
                    Ok(groups.folded::<Int64Type>(column, i64::max))
                }
                DataType::Int64 => Ok(groups.folded::<Int64Type>(column, i64::saturating_add)),
                DataType::Float32 => Ok(groups.folded::<Float32Type>(column, f32::max)),
                other => Err(ArrowError::SchemaError(format!("{name} of gpu_usage is no {other}"))),
            }
        };
        let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>, _>>()?;
        Ok(DayRows { rows: RecordBatch::try_new(schema, columns)?, starts: groups.starts })
    }
}

impl DayGroups {
    fn of(rows: &RecordBatch, schema: &Schema, starts: &[usize]) -> Self {
        let texts = schema.fields().iter().filter_map(|field| {
            rows.column_by_name(field.name())?.as_dictionary_opt::<Int32Type>().map(DictionaryArray::keys)
        });
        let texts: Vec<&PrimitiveArray<Int32Type>> = texts.collect();
        let mut groups = Self::default();
        let mut of_gpu: HashMap<Vec<i64>, usize, RandomState> = HashMap::default();
        let mut key: Vec<i64> = Vec::new();
        for (row, time_ns) in timestamps(rows).iter().enumerate() {
            if starts.get(groups.starts.len()) == Some(&row) {
                groups.starts.push(groups.firsts.len());
                of_gpu.clear();
            }
            let day = time_ns.div_euclid(DAY_NS);
            let text = |codes: &&PrimitiveArray<Int32Type>| {
                if codes.is_valid(row) { i64::from(codes.value(row)) } else { -1 }
            };
            key.clear();
            key.push(day);
            key.extend(texts.iter().map(text));
            let group = of_gpu.get(key.as_slice()).copied().unwrap_or_else(|| {
                let group = groups.firsts.len();
                groups.firsts.push(u32::try_from(row).unwrap_or(u32::MAX));
                groups.days_ns.push(day.saturating_mul(DAY_NS));
                of_gpu.insert(key.clone(), group);
                group
            });
            groups.of_rows.push(group);
        }
        groups
    }

    /// Numbers, those of a group put together; none where no row has any.
    fn folded<T: ArrowPrimitiveType>(
        &self,
        column: &ArrayRef,
        join: fn(T::Native, T::Native) -> T::Native,
    ) -> ArrayRef {
        let mut folded: Vec<Option<T::Native>> = vec![None; self.firsts.len()];
        for (value, group) in column.as_primitive::<T>().iter().zip(&self.of_rows) {
            if let (Some(value), Some(known)) = (value, folded.get_mut(*group)) {
                *known = Some(known.map_or(value, |known| join(known, value)));
            }
        }
        Arc::new(folded.into_iter().collect::<PrimitiveArray<T>>())
    }
}
