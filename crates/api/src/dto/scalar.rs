//! Values in JSON.

use std::borrow::Cow;

use arrow_array::ArrayRef;
use arrow_array::types::Int32Type;
use gpuvitals_core::batch::{MetricColumn, Value, numbers, text_at};
use gpuvitals_core::history::{ExtraValue, GpuState};
use gpuvitals_core::{Batch, time};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{KnownFormat, RefOr, Schema, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

/// A value of a column: a number in the column's unit, or a text for columns that the catalogue does not know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scalar<'a> {
    /// Of the catalogue, or an unknown column of numbers.
    Number(Value),
    /// Of an unknown column of texts.
    Text(&'a str),
}

impl Serialize for Scalar<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(Value::Int(v)) => serializer.serialize_i64(*v),
            Self::Number(Value::Float32(v)) => serializer.serialize_f32(*v),
            Self::Number(Value::Float(v)) => serializer.serialize_f64(*v),
            Self::Text(v) => serializer.serialize_str(v),
        }
    }
}

impl PartialSchema for Scalar<'_> {
    fn schema() -> RefOr<Schema> {
        let types = SchemaType::from_iter([Type::Number, Type::String]);
        let text = "A number in the column's unit; a text only for columns that the catalogue does not know.";
        ObjectBuilder::new().schema_type(types).description(Some(text)).into()
    }
}

impl ToSchema for Scalar<'_> {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Scalar")
    }
}

impl<'a> From<&'a ExtraValue> for Scalar<'a> {
    fn from(value: &'a ExtraValue) -> Self {
        match value {
            ExtraValue::Number(number) => Self::Number(Value::Float(*number)),
            ExtraValue::Text(text) => Self::Text(text),
        }
    }
}

/// An instant, nanoseconds UTC since 1970; RFC 3339 in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) i64);

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&time::format(self.0))
    }
}

impl PartialSchema for Moment {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .description(Some("RFC 3339, UTC, with as many fraction digits as are known."))
            .into()
    }
}

impl ToSchema for Moment {}

/// The newest value of each column of a GPU, by column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LatestMetrics<'a> {
    pub(crate) gpu: &'a GpuState,
    /// The columns; none: all.
    pub(crate) wanted: Option<&'a [String]>,
}

impl Serialize for LatestMetrics<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let is_wanted =
            |name: &str| self.wanted.is_none_or(|wanted| wanted.iter().any(|column| column == name));
        for (id, latest) in self.gpu.latest.iter().filter(|(id, _)| is_wanted(id.metric().column)) {
            map.serialize_entry(id.metric().column, &Scalar::Number(latest.value))?;
        }
        for (name, value, _) in self.gpu.extras.iter().filter(|(name, ..)| is_wanted(name)) {
            map.serialize_entry(name.as_ref(), &Scalar::from(value))?;
        }
        map.end()
    }
}

/// The columns of a batch that become `metrics` of its rows.
#[derive(Debug)]
pub(crate) struct Columns<'a> {
    metrics: Vec<(&'static str, MetricColumn<'a>)>,
    extras: Vec<(&'a str, &'a ArrayRef)>,
}

impl<'a> Columns<'a> {
    /// Those columns that `wanted` names; all without it.
    pub(crate) fn of(batch: &'a Batch, wanted: Option<&[String]>) -> Self {
        let asked = |name: &str| wanted.is_none_or(|wanted| wanted.iter().any(|column| column == name));
        let metrics = batch.metrics().map(|(id, column)| (id.metric().column, column));
        Self {
            metrics: metrics.filter(|(name, _)| asked(name)).collect(),
            extras: batch.extras().filter(|(name, _)| asked(name)).collect(),
        }
    }

    fn values(&self, row: usize) -> impl Iterator<Item = (&str, Scalar<'_>)> {
        let metrics = self
            .metrics
            .iter()
            .filter_map(move |(name, column)| Some((*name, Scalar::Number(column.value(row)?))));
        let extras = self.extras.iter().filter_map(move |(name, column)| Some((*name, extra(column, row)?)));
        metrics.chain(extras)
    }
}

fn extra(column: &ArrayRef, row: usize) -> Option<Scalar<'_>> {
    use arrow_array::cast::AsArray;
    if let Some(numbers) = numbers(column) {
        return numbers.value(row).map(Scalar::Number);
    }
    text_at(column.as_dictionary_opt::<Int32Type>()?, row).map(Scalar::Text)
}

/// The values of one row of a batch, by column; columns without a value are left out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowMetrics<'a> {
    pub(crate) columns: &'a Columns<'a>,
    pub(crate) row: usize,
}

impl RowMetrics<'_> {
    /// Whether no column has a value in the row.
    pub(crate) fn is_empty(&self) -> bool {
        self.columns.values(self.row).next().is_none()
    }
}

impl Serialize for RowMetrics<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.columns.values(self.row))
    }
}
