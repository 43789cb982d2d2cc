//! Filling a batch row by row, as columns.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema};

use super::columns::{MONOTONIC_COLUMN, Origin, TIMESTAMP_COLUMN, data_type, is_unknown, text_type};
use super::value::{EXTRA_COLUMNS_MAX, TEXT_LEN_MAX, Value, ValueError};
use super::whole::Batch;
use crate::absence::{Absence, AbsenceReason};
use crate::catalogue::{ColumnType, MEMORY_PARTS, MetricId, Scope, Table, TableColumn};
use crate::identity::{INDEX_COLUMN, Identity, IdentityColumn};
use crate::number::float;

/// A row of the batch under construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowId(u32);

/// An identity known to the batch under construction. Valid until [`BatchBuilder::finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdentityId(u32);

#[derive(Debug)]
enum ColumnValues {
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    Text { keys: Vec<i32>, index: HashMap<Arc<str>, i32, foldhash::fast::RandomState>, texts: Vec<Arc<str>> },
}

#[derive(Debug)]
struct ColumnBuilder {
    values: ColumnValues,
    valid: Vec<u8>,
}

impl ColumnBuilder {
    fn of(column_type: ColumnType) -> Self {
        let values = match column_type {
            ColumnType::I32 => ColumnValues::I32(Vec::new()),
            ColumnType::I64 => ColumnValues::I64(Vec::new()),
            ColumnType::F32 => ColumnValues::F32(Vec::new()),
            ColumnType::F64 => ColumnValues::F64(Vec::new()),
        };
        Self { values, valid: Vec::new() }
    }

    fn text() -> Self {
        let values = ColumnValues::Text { keys: Vec::new(), index: HashMap::default(), texts: Vec::new() };
        Self { values, valid: Vec::new() }
    }

    /// Makes it a column of text: numbers in their shortest decimal spelling.
    fn become_text(&mut self) {
        let ColumnValues::F64(numbers) = &self.values else { return };
        let mut text = Self::text();
        for (row, number) in numbers.iter().enumerate() {
            if self.valid.get(row / 8).is_some_and(|bits| bits & (1 << (row % 8)) != 0) {
                text.set_text(row, &number.to_string());
            }
        }
        *self = text;
    }

    fn mark(&mut self, row: usize) {
        let byte = row / 8;
        if self.valid.len() <= byte {
            self.valid.resize(byte + 1, 0);
        }
        if let Some(bits) = self.valid.get_mut(byte) {
            *bits |= 1 << (row % 8);
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the range check keeps integers within the column type"
    )]
    fn set(&mut self, row: usize, value: Value) {
        match &mut self.values {
            ColumnValues::I32(v) => put(v, row, integer(value) as i32),
            ColumnValues::I64(v) => put(v, row, integer(value)),
            ColumnValues::F32(v) => {
                put(v, row, if let Value::Float32(f) = value { f } else { value.as_f64() as f32 });
            }
            ColumnValues::F64(v) => put(v, row, value.as_f64()),
            ColumnValues::Text { .. } => return,
        }
        self.mark(row);
    }

    /// The number of a row.
    fn number(&self, row: usize) -> Option<f64> {
        if self.valid.get(row / 8).is_none_or(|bits| bits & (1 << (row % 8)) == 0) {
            return None;
        }
        match &self.values {
            ColumnValues::I32(v) => v.get(row).map(|&number| number.into()),
            ColumnValues::I64(v) => v.get(row).map(|&number| float(number)),
            ColumnValues::F32(v) => v.get(row).map(|&number| number.into()),
            ColumnValues::F64(v) => v.get(row).copied(),
            ColumnValues::Text { .. } => None,
        }
    }

    /// Takes the value of a row away; whether there was one.
    fn unset(&mut self, row: usize) -> bool {
        let bit = 1 << (row % 8);
        let Some(bits) = self.valid.get_mut(row / 8).filter(|bits| **bits & bit != 0) else { return false };
        *bits &= !bit;
        true
    }

    fn set_text(&mut self, row: usize, text: &str) {
        let ColumnValues::Text { keys, index, texts } = &mut self.values else { return };
        let key = if let Some(&key) = index.get(text) {
            key
        } else {
            let shared: Arc<str> = Arc::from(text);
            let key = i32::try_from(texts.len()).unwrap_or(i32::MAX);
            index.insert(Arc::clone(&shared), key);
            texts.push(shared);
            key
        };
        put(keys, row, key);
        self.mark(row);
    }

    fn finish(self, rows: usize) -> ArrayRef {
        let mut bits = self.valid;
        bits.resize(rows.div_ceil(8), 0);
        let nulls = Some(NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(bits), 0, rows)))
            .filter(|nulls| nulls.null_count() > 0);
        match self.values {
            ColumnValues::I32(v) => Arc::new(Int32Array::new(padded(v, rows).into(), nulls)),
            ColumnValues::I64(v) => Arc::new(Int64Array::new(padded(v, rows).into(), nulls)),
            ColumnValues::F32(v) => Arc::new(Float32Array::new(padded(v, rows).into(), nulls)),
            ColumnValues::F64(v) => Arc::new(Float64Array::new(padded(v, rows).into(), nulls)),
            ColumnValues::Text { keys, texts, .. } => {
                dictionary(Int32Array::new(padded(keys, rows).into(), nulls), &texts)
            }
        }
    }
}

fn put<T: Copy + Default>(values: &mut Vec<T>, row: usize, value: T) {
    if row == values.len() {
        values.push(value);
        return;
    }
    if values.len() <= row {
        values.resize(row + 1, T::default());
    }
    if let Some(slot) = values.get_mut(row) {
        *slot = value;
    }
}

fn padded<T: Copy + Default>(mut values: Vec<T>, rows: usize) -> Vec<T> {
    values.resize(rows, T::default());
    values
}

#[expect(clippy::cast_possible_truncation, reason = "saturates; the range check came first")]
fn integer(value: Value) -> i64 {
    match value {
        Value::Int(v) => v,
        other => other.as_f64().round() as i64,
    }
}

fn dictionary(keys: Int32Array, texts: &[Arc<str>]) -> ArrayRef {
    let values = StringArray::from_iter_values(texts.iter().map(AsRef::as_ref));
    // `new` panics on a key outside the texts; keys are indices into `texts` by construction.
    Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::new(values)))
}

/// Fills batches of one table. Rows can be set in any order until [`BatchBuilder::finish`].
#[derive(Debug)]
pub struct BatchBuilder {
    table: Table,
    timestamps: Vec<i64>,
    /// Empty, or one value a row.
    monotonic: Vec<i64>,
    row_identity: Vec<u32>,
    identities: Vec<Arc<Identity>>,
    identity_index: HashMap<Arc<Identity>, u32, foldhash::fast::RandomState>,
    columns: Vec<Option<ColumnBuilder>>,
    extras: Vec<(Arc<str>, ColumnBuilder)>,
    extra_index: HashMap<Arc<str>, usize, foldhash::fast::RandomState>,
    absences: HashMap<(u32, MetricId, AbsenceReason), u32, foldhash::fast::RandomState>,
}

impl BatchBuilder {
    /// An empty batch of that table.
    pub fn new(table: Table) -> Self {
        Self {
            table,
            timestamps: Vec::new(),
            monotonic: Vec::new(),
            row_identity: Vec::new(),
            identities: Vec::new(),
            identity_index: HashMap::default(),
            columns: Vec::new(),
            extras: Vec::new(),
            extra_index: HashMap::default(),
            absences: HashMap::default(),
        }
    }

    /// Rows so far.
    pub fn rows(&self) -> usize {
        self.timestamps.len()
    }

    /// Registers an identity; the same identity gives the same id. It must be resolved
    /// ([`Identity::resolve`]) for `gpu_events`.
    pub fn intern(&mut self, identity: &Identity) -> IdentityId {
        if let Some(&id) = self.identity_index.get(identity) {
            return IdentityId(id);
        }
        let shared = Arc::new(identity.clone());
        let id = self.add_identity(&shared);
        self.identity_index.insert(shared, id.0);
        id
    }

    /// Registers an identity that is new to this batch: [`BatchBuilder::intern`] without the search, for
    /// callers that remember their identities. Registered twice, the batch is right, only larger.
    pub fn add_identity(&mut self, identity: &Arc<Identity>) -> IdentityId {
        let id = u32::try_from(self.identities.len()).unwrap_or(u32::MAX);
        self.identities.push(Arc::clone(identity));
        IdentityId(id)
    }

    /// Adds a row.
    pub fn row(&mut self, timestamp_ns: i64, identity: IdentityId) -> RowId {
        let row = u32::try_from(self.timestamps.len()).unwrap_or(u32::MAX);
        self.timestamps.push(timestamp_ns);
        self.row_identity.push(identity.0);
        RowId(row)
    }

    /// Adds a row with the monotonic clock ([`MONOTONIC_COLUMN`]) as well. The column exists if every row of
    /// the batch was added in this way.
    pub fn row_at(&mut self, timestamp_ns: i64, monotonic_ns: i64, identity: IdentityId) -> RowId {
        self.monotonic.push(monotonic_ns);
        self.row(timestamp_ns, identity)
    }

    /// Sets a metric of a row, in the column unit. An impossible value is not taken and counted as an absence
    /// with reason `Invalid`. Fractions are rounded to the nearest integer if the column is an integer.
    ///
    /// # Errors
    /// When the value is not finite or out of the catalogue's range.
    pub fn set(&mut self, row: RowId, metric: MetricId, value: Value) -> Result<(), ValueError> {
        let facts = metric.metric();
        let number = value.as_f64();
        if !facts.admits(number) {
            let (min, max) = facts.range;
            self.absent(row, metric, AbsenceReason::Invalid);
            return Err(if number.is_finite() {
                ValueError::OutOfRange { column: facts.column, value: number, min, max }
            } else {
                ValueError::NotFinite { column: facts.column.to_owned() }
            });
        }
        let index = usize::from(metric.0);
        if self.columns.len() <= index {
            self.columns.resize_with(index + 1, || None);
        }
        if let Some(slot) = self.columns.get_mut(index) {
            slot.get_or_insert_with(|| ColumnBuilder::of(facts.column_type)).set(row.0 as usize, value);
        }
        Ok(())
    }

    /// Notes that a row has no value of a metric, with the reason.
    pub fn absent(&mut self, row: RowId, metric: MetricId, reason: AbsenceReason) {
        if let Some(&identity) = self.row_identity.get(row.0 as usize) {
            *self.absences.entry((identity, metric, reason)).or_insert(0) += 1;
        }
    }

    /// Sets a number in one of the table's own columns, or in one that neither table nor catalogue knows.
    ///
    /// # Errors
    /// When the name cannot be a column, there are too many, or the number is not finite or not in the column's range.
    pub fn set_extra(&mut self, row: RowId, name: &str, value: impl Into<Value>) -> Result<(), ValueError> {
        let value = value.into();
        let number = value.as_f64();
        if !number.is_finite() {
            return Err(ValueError::NotFinite { column: name.to_owned() });
        }
        if let Some(TableColumn { name, column_type: Some(_), range: (min, max), .. }) =
            self.table.column(name)
            && !(*min..=*max).contains(&number)
        {
            return Err(ValueError::OutOfRange { column: name, value: number, min: *min, max: *max });
        }
        let column = self.extra(name, || ColumnBuilder::of(ColumnType::F64))?;
        if matches!(column.values, ColumnValues::Text { .. }) {
            column.set_text(row.0 as usize, &number.to_string());
        } else {
            column.set(row.0 as usize, value);
        }
        Ok(())
    }

    /// Sets a text in one of the table's own columns, or in one that neither table nor catalogue knows: a column of these
    /// that holds numbers becomes text.
    ///
    /// # Errors
    /// When the name cannot be a column, there are too many, it is the table's own and holds numbers, or the text is too
    /// long.
    pub fn set_extra_text(&mut self, row: RowId, name: &str, text: &str) -> Result<(), ValueError> {
        if text.len() > TEXT_LEN_MAX {
            return Err(ValueError::TextTooLong { column: name.to_owned(), len: text.len() });
        }
        let is_foreign = self.table.column(name).is_none();
        let column = self.extra(name, ColumnBuilder::text)?;
        if !matches!(column.values, ColumnValues::Text { .. }) {
            if !is_foreign {
                return Err(ValueError::Mixed(name.to_owned()));
            }
            column.become_text();
        }
        column.set_text(row.0 as usize, text);
        Ok(())
    }

    /// Sets the instance of this scope that a row is about.
    ///
    /// # Errors
    /// As [`BatchBuilder::set_extra_text`]; nothing is set if the scope has no instances.
    pub fn set_instance(&mut self, row: RowId, scope: Scope, instance: &str) -> Result<(), ValueError> {
        scope.label().map_or(Ok(()), |label| self.set_extra_text(row, label, instance))
    }

    fn extra(
        &mut self,
        name: &str,
        make: impl FnOnce() -> ColumnBuilder,
    ) -> Result<&mut ColumnBuilder, ValueError> {
        let index = if let Some(&index) = self.extra_index.get(name) {
            index
        } else {
            let own = self.table.column(name);
            if name.is_empty()
                || name.len() > 128
                || name.chars().any(char::is_control)
                || own.is_none() && !is_unknown(self.table, name)
            {
                return Err(ValueError::ExtraName(name.chars().take(128).collect()));
            }
            if self.extras.len() >= EXTRA_COLUMNS_MAX {
                return Err(ValueError::TooManyExtras(name.to_owned()));
            }
            let shared: Arc<str> = Arc::from(name);
            self.extra_index.insert(Arc::clone(&shared), self.extras.len());
            let own = own.map(|own| own.column_type.map_or_else(ColumnBuilder::text, ColumnBuilder::of));
            self.extras.push((shared, own.unwrap_or_else(make)));
            self.extras.len() - 1
        };
        self.extras
            .get_mut(index)
            .map(|(_, column)| column)
            .ok_or_else(|| ValueError::ExtraName(name.to_owned()))
    }

    /// Leaves out what is more than the whole of which it is a part, and says so as an absence.
    fn leave_out_excess(&mut self) {
        for (part, share, whole) in MEMORY_PARTS {
            let column = |metric: MetricId| self.columns.get(usize::from(metric.0))?.as_ref();
            let (Some(parts), Some(wholes)) = (column(part), column(whole)) else { continue };
            let is_more = |row: &usize| {
                wholes
                    .number(*row)
                    .is_some_and(|whole| whole > 0.0 && parts.number(*row).is_some_and(|part| part > whole))
            };
            let rows: Vec<usize> = (0..self.timestamps.len()).filter(is_more).collect();
            for (row, metric) in rows.iter().flat_map(|&row| [Some(part), share].map(|metric| (row, metric)))
            {
                let Some(metric) = metric else { continue };
                let column = self.columns.get_mut(usize::from(metric.0)).and_then(Option::as_mut);
                if let (true, Ok(row)) = (column.is_some_and(|column| column.unset(row)), u32::try_from(row))
                {
                    self.absent(RowId(row), metric, AbsenceReason::Invalid);
                }
            }
        }
    }

    /// The batch, or `None` if there is no row. A part of a memory that is larger than the memory is left out, with its
    /// share, as [`AbsenceReason::Invalid`]. The builder is empty afterwards and can be filled again.
    ///
    /// # Panics
    /// If a row lacks the table's subject (`uuid`, in `system_events` `node`) or another column of its key: a source
    /// that does not resolve its identities would otherwise lose rows silently.
    #[expect(
        clippy::expect_used,
        reason = "documented; columns have one length and the catalogue's type by construction"
    )]
    pub fn finish(&mut self, origin: Origin, sequence: u64) -> Option<Batch> {
        let mut full = std::mem::replace(self, Self::new(self.table));
        let rows = full.rows();
        if rows == 0 {
            return None;
        }
        full.leave_out_excess();
        let mut fields = vec![Field::new(TIMESTAMP_COLUMN, DataType::Int64, false)];
        let mut arrays: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(std::mem::take(&mut full.timestamps)))];
        if full.monotonic.len() == rows {
            fields.push(Field::new(MONOTONIC_COLUMN, DataType::Int64, false));
            arrays.push(Arc::new(Int64Array::from(std::mem::take(&mut full.monotonic))));
        }
        full.finish_identity(&mut fields, &mut arrays);
        for (index, column) in full.columns.into_iter().enumerate() {
            let column = column.filter(|column| column.valid.iter().any(|&bits| bits != 0));
            if let (Some(column), Ok(id)) = (column, u16::try_from(index)) {
                let facts = MetricId(id).metric();
                fields.push(Field::new(facts.column, data_type(facts.column_type), true));
                arrays.push(column.finish(rows));
            }
        }
        for (name, column) in full.extras {
            let array = column.finish(rows);
            fields.push(Field::new(name.as_ref(), array_type(&array), true));
            arrays.push(array);
        }
        let records =
            RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("columns of one length");
        let batch = Batch::new(full.table, records, origin, sequence).expect("every row has its key");
        let absences = full.absences.into_iter().filter_map(|((identity, metric, reason), count)| {
            let gpu = full.identities.get(identity as usize)?.key()?;
            Some(Absence { gpu, metric, reason, count })
        });
        Some(batch.with_absences(absences.collect()))
    }

    fn finish_identity(&self, fields: &mut Vec<Field>, arrays: &mut Vec<ArrayRef>) {
        let rows = self.row_identity.len();
        if self.identities.iter().any(|identity| identity.index.is_some()) {
            let indices =
                self.row_identity.iter().map(|&id| self.identities.get(id as usize).and_then(|i| i.index));
            fields.push(Field::new(INDEX_COLUMN, DataType::Int32, true));
            arrays.push(Arc::new(indices.collect::<Int32Array>()));
        }
        for identity_column in IdentityColumn::ALL {
            if self.identities.iter().all(|identity| identity.get(identity_column).is_none()) {
                continue;
            }
            let mut texts: Vec<Arc<str>> = Vec::new();
            let mut index: HashMap<Arc<str>, i32, foldhash::fast::RandomState> = HashMap::default();
            let by_identity: Vec<Option<i32>> = self
                .identities
                .iter()
                .map(|identity| {
                    let text = identity.shared(identity_column)?;
                    Some(*index.entry(Arc::clone(text)).or_insert_with(|| {
                        texts.push(Arc::clone(text));
                        i32::try_from(texts.len() - 1).unwrap_or(i32::MAX)
                    }))
                })
                .collect();
            let keys: Int32Array =
                self.row_identity.iter().map(|&id| by_identity.get(id as usize).copied().flatten()).collect();
            debug_assert_eq!(arrow_array::Array::len(&keys), rows);
            fields.push(Field::new(identity_column.name(), text_type(), true));
            arrays.push(dictionary(keys, &texts));
        }
    }
}

fn array_type(array: &ArrayRef) -> DataType {
    arrow_array::Array::data_type(array).clone()
}
