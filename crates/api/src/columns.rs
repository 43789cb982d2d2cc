//! The columns of an answer that is a table.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int64Array, RecordBatch};
use arrow_schema::{ArrowError, Field, Schema};
use gpuvitals_core::MetricId;

/// A column: its name, what it means, and a value a row.
#[derive(Debug)]
pub(crate) struct TableColumn {
    name: String,
    unit: Cow<'static, str>,
    help: &'static str,
    values: ArrayRef,
}

impl TableColumn {
    /// Values without a unit.
    pub(crate) fn of(name: &str, help: &'static str, values: ArrayRef) -> Self {
        Self { name: name.to_owned(), unit: Cow::Borrowed(""), help, values }
    }

    /// Texts; none where there is nothing to say.
    pub(crate) fn texts<'a>(
        name: &str,
        help: &'static str,
        texts: impl Iterator<Item = Option<&'a str>>,
    ) -> Self {
        Self::of(name, help, Arc::new(texts.collect::<DictionaryArray<Int32Type>>()))
    }

    /// A column of counts.
    pub(crate) fn counts(name: &str, help: &'static str, counts: impl Iterator<Item = usize>) -> Self {
        let counts = counts.map(|count| Some(i64::try_from(count).unwrap_or(i64::MAX)));
        Self::of(name, help, Arc::new(counts.collect::<Int64Array>()))
    }

    /// Values of a metric.
    pub(crate) fn metric(name: &str, metric: MetricId, values: ArrayRef) -> Self {
        let metric = metric.metric();
        Self::measured(name, Cow::Borrowed(metric.unit.as_str()), metric.help, values)
    }

    /// Values in a unit.
    pub(crate) fn measured(
        name: &str,
        unit: Cow<'static, str>,
        help: &'static str,
        values: ArrayRef,
    ) -> Self {
        Self { name: name.to_owned(), unit, help, values }
    }
}

/// The table of some columns. In Arrow each carries its unit and its meaning as `unit` and `help`.
///
/// # Errors
/// Never: all columns have one length.
pub(crate) fn table(columns: Vec<TableColumn>) -> Result<RecordBatch, ArrowError> {
    let field = |column: &TableColumn| {
        let facts = [("unit", column.unit.as_ref()), ("help", column.help)];
        let facts = facts.into_iter().filter(|(_, text)| !text.is_empty());
        let facts: HashMap<String, String> =
            facts.map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        Field::new(&column.name, column.values.data_type().clone(), true).with_metadata(facts)
    };
    let fields: Vec<Field> = columns.iter().map(field).collect();
    let arrays = columns.into_iter().map(|column| column.values).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
}
