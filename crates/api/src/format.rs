//! Tables as CSV or Arrow, for those who ask for them by the parameter `format` or by `Accept`.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, Int64Builder, StringDictionaryBuilder};
use arrow_array::cast::AsArray as _;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema};
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use gpuvitals_core::batch::{TIMESTAMP_COLUMN, text_at};
use gpuvitals_core::history::{BucketSeries, GroupColumn, TimeSteps};
use gpuvitals_core::time;

use crate::accept::offers;
use crate::asked::FormatName;
use crate::columns::{self, TableColumn};
use crate::dto::Pagination;
use crate::error::ApiError;
use crate::parameter;

/// Meaning of the times of steps.
pub(crate) const START: &str = "Start of the step.";

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Csv,
    /// A stream of Arrow's IPC.
    Arrow,
}

impl Format {
    const ALL: [Self; 3] = [Self::Json, Self::Csv, Self::Arrow];

    /// The one that the parameter `format` names; without it that of the header `Accept`.
    ///
    /// # Errors
    /// If there is no such format.
    pub(crate) fn asked(name: Option<&FormatName>, headers: &HeaderMap) -> Result<Self, ApiError> {
        let Some(name) = parameter::given(name.map(|asked| &asked.0)) else {
            return Ok(Self::accepted(headers));
        };
        let format = Self::ALL.into_iter().find(|format| format.name() == name);
        format.ok_or_else(|| ApiError::parameter("format", name, "json, csv or arrow"))
    }

    /// The one that a client prefers of those that there are: by weight, then by its order. JSON if it names none.
    fn accepted(headers: &HeaderMap) -> Self {
        let named = offers(headers, ACCEPT).filter_map(|(name, weight)| {
            let format =
                Self::ALL.into_iter().find(|format| format.media_type().eq_ignore_ascii_case(name))?;
            Some((format, weight))
        });
        // Of equals the first.
        let best = named.reduce(|best, next| if next.1 > best.1 { next } else { best });
        best.map_or(Self::Json, |(format, _)| format)
    }

    /// Its name in the parameter `format`.
    fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
            Self::Arrow => "arrow",
        }
    }

    /// Its media type.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Csv => "text/csv",
            Self::Arrow => "application/vnd.apache.arrow.stream",
        }
    }
}

/// A table that is sent, and what it leaves out.
#[derive(Debug)]
pub(crate) struct TablePage<'a> {
    /// The rows of this page.
    pub(crate) records: &'a RecordBatch,
    /// Where it goes on; none: it has the last row.
    pub(crate) next: Option<NextPage>,
    /// What could not be read, in words.
    pub(crate) partial: &'a [String],
}

/// The rest of a table that was cut at the limit of a page.
#[derive(Debug)]
pub(crate) struct NextPage {
    /// The parameter that asks for it.
    pub(crate) parameter: &'static str,
    /// The value of the parameter.
    pub(crate) value: String,
    /// Rows that follow; none: they were not counted.
    pub(crate) left: Option<usize>,
}

impl NextPage {
    /// The page that follows these entries of a list; none: they are the last.
    pub(crate) fn of_list(pagination: Pagination, entries: usize, total: usize) -> Option<Self> {
        let value = pagination.next_offset(entries)?;
        let left = total.saturating_sub(pagination.offset.saturating_add(entries));
        Some(Self { parameter: "offset", value, left: Some(left) })
    }
}

impl TablePage<'_> {
    /// What the table lacks and how to get it, as a line of text; none: it is whole.
    fn lacks(&self) -> Option<String> {
        let cut = self.next.as_ref().map(|NextPage { parameter, value, left }| {
            let rows = match left {
                Some(1) => "1 row is".to_owned(),
                Some(count) => format!("{count} rows are"),
                None => "More rows are".to_owned(),
            };
            format!("{rows} left out: {parameter}={value} asks for the next.")
        });
        let missing = self.partial.join("; ");
        let unread = (!missing.is_empty()).then(|| format!("Not everything could be read: {missing}"));
        let sentences: Vec<String> = cut.into_iter().chain(unread).collect();
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        (!sentences.is_empty()).then(|| sentences.join(" ").chars().map(plain).collect())
    }
}

/// A table as a stream of Arrow's IPC. What it leaves out stands in the metadata of its schema: `lacks` as a sentence, `next`
/// and `partial` as in JSON.
///
/// # Errors
/// Never in memory.
pub(crate) fn arrow(page: &TablePage<'_>) -> Result<Vec<u8>, ArrowError> {
    let mut schema = Schema::clone(page.records.schema_ref());
    schema.metadata.extend(page.lacks().map(|lacks| ("lacks", lacks)));
    schema.metadata.extend(page.next.as_ref().map(|next| ("next", next.value.clone())));
    if !page.partial.is_empty() {
        schema.metadata.extend([("partial", serde_json::json!(page.partial).to_string())]);
    }
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    writer.write(page.records)?;
    writer.finish()?;
    writer.into_inner()
}

/// A table as CSV: a head, then a line a row. Times are RFC 3339 in the column `timestamp`; what has no value is empty. A table
/// that leaves something out ends with a line that says so behind `# `.
pub(crate) fn csv(page: &TablePage<'_>) -> Vec<u8> {
    let records = page.records;
    let mut out = Vec::with_capacity(records.num_rows() * records.num_columns() * 8);
    let names = records.schema_ref().fields().iter().map(|field| field.name().as_str());
    let names: Vec<&str> =
        names.map(|name| if name == TIMESTAMP_COLUMN { "timestamp" } else { name }).collect();
    for (at, name) in names.iter().enumerate() {
        separate(&mut out, at);
        text(&mut out, name);
    }
    out.extend_from_slice(b"\r\n");
    let columns: Vec<BatchColumn<'_>> =
        names.iter().zip(records.columns()).map(|(name, array)| BatchColumn::of(name, array)).collect();
    for row in 0..records.num_rows() {
        for (at, column) in columns.iter().enumerate() {
            separate(&mut out, at);
            column.write(&mut out, row);
        }
        out.extend_from_slice(b"\r\n");
    }
    if let Some(lacks) = page.lacks() {
        out.extend(format!("# {lacks}\r\n").bytes());
    }
    out
}

/// Values by step as a table: a row for each value, with its time, metric, aggregate and the texts of its group.
///
/// # Errors
/// Never: all columns have one length.
pub(crate) fn of_series(
    steps: TimeSteps,
    group_by: &[GroupColumn],
    series: &[BucketSeries],
) -> Result<RecordBatch, ArrowError> {
    let mut times = Int64Builder::new();
    let mut values = Float64Builder::new();
    let mut texts: Vec<StringDictionaryBuilder<Int32Type>> =
        (0..group_by.len() + 2).map(|_| StringDictionaryBuilder::new()).collect();
    for one in series {
        let names = [Some(one.metric.metric().column.into()), Some(one.aggregate.name())];
        let group = one.group.iter().map(|text| text.as_deref().map(Cow::Borrowed));
        let row: Vec<Option<Cow<'_, str>>> = names.into_iter().chain(group).collect();
        for (step, value) in one.values.iter().enumerate() {
            let Some(value) = value else { continue };
            times.append_value(steps.time(step));
            values.append_value(*value);
            for (column, text) in texts.iter_mut().zip(&row) {
                column.append_option(text.as_deref());
            }
        }
    }
    let names = ["metric", "aggregate"].into_iter().chain(group_by.iter().map(|column| column.name()));
    let mut columns = vec![TableColumn::of(TIMESTAMP_COLUMN, START, Arc::new(times.finish()))];
    columns.extend(
        names.zip(&mut texts).map(|(name, column)| TableColumn::of(name, "", Arc::new(column.finish()))),
    );
    columns.push(TableColumn::of("value", "In the unit of the metric.", Arc::new(values.finish())));
    columns::table(columns)
}

fn separate(out: &mut Vec<u8>, at: usize) {
    if at > 0 {
        out.push(b',');
    }
}

fn text(out: &mut Vec<u8>, text: &str) {
    if text.contains([',', '"', '\n', '\r']) {
        out.push(b'"');
        out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
        out.push(b'"');
    } else {
        out.extend_from_slice(text.as_bytes());
    }
}

/// A column of a batch.
enum BatchColumn<'a> {
    Time(&'a arrow_array::Int64Array),
    Int32(&'a arrow_array::Int32Array),
    Int64(&'a arrow_array::Int64Array),
    Float32(&'a arrow_array::Float32Array),
    Float64(&'a arrow_array::Float64Array),
    Text(&'a arrow_array::DictionaryArray<Int32Type>),
    /// Of a kind that no table of ours has.
    Nothing,
}

impl<'a> BatchColumn<'a> {
    fn of(name: &str, array: &'a ArrayRef) -> Self {
        if let Some(numbers) = array.as_primitive_opt::<Int64Type>() {
            if name == "timestamp" { Self::Time(numbers) } else { Self::Int64(numbers) }
        } else if let Some(numbers) = array.as_primitive_opt::<Int32Type>() {
            Self::Int32(numbers)
        } else if let Some(numbers) = array.as_primitive_opt::<Float32Type>() {
            Self::Float32(numbers)
        } else if let Some(numbers) = array.as_primitive_opt::<Float64Type>() {
            Self::Float64(numbers)
        } else {
            array.as_dictionary_opt::<Int32Type>().map_or(Self::Nothing, Self::Text)
        }
    }

    fn write(&self, out: &mut Vec<u8>, row: usize) {
        // Writing to a vector cannot fail.
        match self {
            Self::Time(times) if times.is_valid(row) => out.extend(time::format(times.value(row)).bytes()),
            Self::Int64(numbers) if numbers.is_valid(row) => drop(write!(out, "{}", numbers.value(row))),
            Self::Int32(numbers) if numbers.is_valid(row) => drop(write!(out, "{}", numbers.value(row))),
            Self::Float32(numbers) if numbers.is_valid(row) => drop(write!(out, "{}", numbers.value(row))),
            Self::Float64(numbers) if numbers.is_valid(row) => drop(write!(out, "{}", numbers.value(row))),
            Self::Text(texts) => text(out, text_at(texts, row).unwrap_or_default()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn who_gets_what() {
        let check = |value: &'static str, format| {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(value))]);
            assert_eq!(Format::accepted(&headers), format, "{value}");
        };
        check("text/csv", Format::Csv);
        check("text/html, Text/CSV;q=0.9", Format::Csv);
        check("application/json, text/csv", Format::Json);
        check("application/json;q=0.5, text/csv;q=0.8", Format::Csv);
        check("text/csv;q=0, application/json", Format::Json);
        check("application/vnd.apache.arrow.stream", Format::Arrow);
        check("*/*", Format::Json);
        check("text/html", Format::Json);
        assert_eq!(Format::accepted(&HeaderMap::new()), Format::Json);
    }
}
