//! A batch is rows of one table.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array as _, ArrayRef, DictionaryArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;

use super::columns::{
    BatchError, MONOTONIC_COLUMN, MetricColumn, Origin, READ_ERROR_COLUMN, READ_US_COLUMN, TIMESTAMP_COLUMN,
    column_type, is_unknown, numbers, text_at, text_type, type_of,
};
use crate::absence::Absence;
use crate::catalogue::{self, MetricId, Scope, Table};
use crate::identity::{INDEX_COLUMN, Identity, IdentityColumn};

/// Rows of one table. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Batch {
    pub(super) table: Table,
    pub(super) records: RecordBatch,
    pub(super) origin: Origin,
    pub(super) sequence: u64,
    pub(super) absences: Vec<Absence>,
    /// The bytes it was decoded from. Every change drops them, so that they always decode to this batch.
    wire: Option<Bytes>,
}

impl Batch {
    /// Turns columns into a batch after checking them against the catalogue.
    ///
    /// # Errors
    /// When time, the table's subject or another column of its key is missing or has nulls, a column has another
    /// type than the table's or the catalogue's, or two columns have the same name.
    pub fn new(
        table: Table,
        records: RecordBatch,
        origin: Origin,
        sequence: u64,
    ) -> Result<Self, BatchError> {
        let required = |name: &'static str, data_type: &DataType| {
            records
                .column_by_name(name)
                .filter(|column| column.data_type() == data_type && column.null_count() == 0)
                .map(|_| ())
                .ok_or(BatchError::Required(name))
        };
        required(TIMESTAMP_COLUMN, &DataType::Int64)?;
        required(table.subject().name(), &text_type())?;
        for column in table.required() {
            required(column.name, &column_type(column))?;
        }
        let mut names = HashSet::with_capacity(records.num_columns());
        for field in records.schema_ref().fields() {
            if !names.insert(field.name()) {
                return Err(BatchError::Twice(field.name().clone()));
            }
            let fits = match type_of(table, field.name()) {
                Some(wanted) => *field.data_type() == wanted,
                None => *field.data_type() == DataType::Float64 || *field.data_type() == text_type(),
            };
            if !fits {
                return Err(BatchError::Type {
                    column: field.name().clone(),
                    found: field.data_type().clone(),
                });
            }
        }
        Ok(Self { table, records, origin, sequence, absences: Vec::new(), wire: None })
    }

    /// This batch with these absences instead of its own.
    pub fn with_absences(self, absences: Vec<Absence>) -> Self {
        Self { absences, wire: None, ..self }
    }

    /// Keeps the bytes that it was decoded from: [`wire::encode`](crate::wire::encode) returns them.
    pub(crate) fn keep_wire(&mut self, wire: Bytes) {
        self.wire = Some(wire);
    }

    pub(crate) fn wire(&self) -> Option<&Bytes> {
        self.wire.as_ref()
    }

    /// Drops the bytes that it was decoded from, for those who keep the rows in memory.
    pub fn forget_wire(&mut self) {
        self.wire = None;
    }

    /// The process that made it.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Its number among the batches of that process.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Missing values, with the reason.
    pub fn absences(&self) -> &[Absence] {
        &self.absences
    }

    /// The table that all of its rows belong to.
    pub fn table(&self) -> Table {
        self.table
    }

    /// Number of rows; at least one.
    pub fn rows(&self) -> usize {
        self.records.num_rows()
    }

    /// The Arrow columns.
    pub fn records(&self) -> &RecordBatch {
        &self.records
    }

    /// Names and types of the Arrow columns.
    pub fn schema(&self) -> SchemaRef {
        self.records.schema()
    }

    /// Time of each row, nanoseconds UTC since 1970.
    pub fn timestamps(&self) -> &[i64] {
        timestamps(&self.records)
    }

    /// Monotonic clock of each row in nanoseconds, if the source gave it to every row.
    pub fn monotonic(&self) -> Option<&[i64]> {
        let column = self.records.column_by_name(MONOTONIC_COLUMN)?;
        Some(column.as_primitive_opt::<Int64Type>().filter(|a| a.null_count() == 0)?.values())
    }

    /// How long the readings of its rows took, microseconds, if any row says it.
    pub fn read_us(&self) -> Option<MetricColumn<'_>> {
        self.records.column_by_name(READ_US_COLUMN).and_then(numbers)
    }

    /// Why the reading of a row gave nothing, by the word for an absence; none: it gave something, or the batch does not say it.
    pub fn read_error(&self, row: usize) -> Option<&str> {
        let column = self.records.column_by_name(READ_ERROR_COLUMN)?;
        text_at(column.as_dictionary_opt::<Int32Type>()?, row)
    }

    /// A textual identity column, if any row has one.
    pub fn identity_column(&self, column: IdentityColumn) -> Option<&DictionaryArray<Int32Type>> {
        self.records.column_by_name(column.name()).and_then(|c| c.as_dictionary_opt::<Int32Type>())
    }

    /// A metric's column, if any row has a value.
    pub fn metric(&self, id: MetricId) -> Option<MetricColumn<'_>> {
        metric_of(&self.records, id)
    }

    /// The metrics that have a value in this batch, in column order.
    pub fn metrics(&self) -> impl Iterator<Item = (MetricId, MetricColumn<'_>)> {
        self.records
            .schema_ref()
            .fields()
            .iter()
            .zip(self.records.columns())
            .filter_map(|(field, column)| Some((catalogue::by_column(field.name())?, numbers(column)?)))
    }

    /// The columns that are neither time, identity nor metric: the table's own and foreign ones. Name and array, of
    /// dictionary text or for [`numbers`]; those of foreign ones are 64-bit floats.
    pub fn extras(&self) -> impl Iterator<Item = (&str, &ArrayRef)> {
        let schema = self.records.schema_ref();
        schema
            .fields()
            .iter()
            .zip(self.records.columns())
            .filter(|(field, _)| {
                self.table.column(field.name()).is_some() || is_unknown(self.table, field.name())
            })
            .map(|(field, column)| (field.name().as_str(), column))
    }

    /// The instance of this scope that a row is about; none for a row about the whole device or host.
    pub fn instance(&self, scope: Scope, row: usize) -> Option<&str> {
        let column = self.records.column_by_name(scope.label()?)?;
        text_at(column.as_dictionary_opt::<Int32Type>()?, row)
    }

    /// The rows for which `keep` is true, or `None` if there is no such row. Absences keep their counts.
    ///
    /// # Panics
    /// If `keep` does not have one value a row.
    #[expect(clippy::expect_used, reason = "the mask has the batch's length")]
    pub fn filter(&self, keep: &[bool]) -> Option<Self> {
        assert_eq!(keep.len(), self.rows(), "one decision a row");
        // As a rule all are kept, or none: no column is copied for that.
        if keep.iter().all(|keep| *keep) {
            return Some(self.clone());
        }
        if !keep.contains(&true) {
            return None;
        }
        let mask = arrow_array::BooleanArray::from(keep.to_vec());
        let records =
            arrow_select::filter::filter_record_batch(&self.records, &mask).expect("one decision a row");
        Some(Self { records, wire: None, ..self.clone() })
    }

    /// Without those of its foreign columns for whose names `is_dropped` is true.
    ///
    /// # Panics
    /// Never: the columns are its own.
    #[expect(clippy::expect_used, reason = "the indices are those of its own columns")]
    #[must_use]
    pub fn without_foreign(&self, is_dropped: impl Fn(&str) -> bool) -> Self {
        let is_kept = |name: &str| !(is_unknown(self.table, name) && is_dropped(name));
        let fields = self.records.schema_ref().fields().iter().enumerate();
        let kept: Vec<usize> =
            fields.filter(|(_, field)| is_kept(field.name())).map(|(index, _)| index).collect();
        let records = self.records.project(&kept).expect("its own columns");
        Self { records, wire: None, ..self.clone() }
    }

    /// With these foreign columns, of 64-bit floats or dictionary text, in place of those of the same names.
    ///
    /// # Panics
    /// If one has not a value or null a row.
    #[expect(clippy::expect_used, reason = "columns of one length")]
    #[must_use]
    pub fn with_foreign(&self, columns: Vec<(String, ArrayRef)>) -> Self {
        let rest = self.without_foreign(|name| columns.iter().any(|(new, _)| new == name));
        let mut fields = rest.records.schema_ref().fields().to_vec();
        let mut arrays = rest.records.columns().to_vec();
        for (name, array) in columns {
            fields.push(Arc::new(Field::new(name, array.data_type().clone(), true)));
            arrays.push(array);
        }
        let schema = Arc::new(Schema::new(fields));
        let records = RecordBatch::try_new(schema, arrays).expect("columns of one length");
        Self { records, wire: None, ..rest }
    }

    /// Identity of a row.
    pub fn identity(&self, row: usize) -> Identity {
        let mut identity = Identity::default();
        for column in IdentityColumn::ALL {
            if let Some(text) = self.identity_column(column).and_then(|array| text_at(array, row)) {
                // Checked when the batch was built or decoded; a text that fails is left out.
                let _checked = identity.set(column, text);
            }
        }
        identity.index = self
            .records
            .column_by_name(INDEX_COLUMN)
            .and_then(|c| c.as_primitive_opt::<Int32Type>())
            .filter(|a| row < a.len() && a.is_valid(row))
            .map(|a| a.value(row));
        identity
    }
}

/// A metric's column among these, if any row has a value.
pub fn metric_of(records: &RecordBatch, id: MetricId) -> Option<MetricColumn<'_>> {
    records.column_by_name(id.metric().column).and_then(numbers)
}

/// Times of rows, nanoseconds UTC since 1970; none if they have no column of them.
pub fn timestamps(records: &RecordBatch) -> &[i64] {
    let column = records.column_by_name(TIMESTAMP_COLUMN);
    column.and_then(|column| column.as_primitive_opt::<Int64Type>()).map_or(&[], |column| column.values())
}
