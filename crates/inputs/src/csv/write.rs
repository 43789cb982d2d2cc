//! Batches to CSV in the wide form. The CSV source reads it back.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef};
use gpuvitals_core::batch::{Value, numbers, text_at};
use gpuvitals_core::catalogue::MetricId;
use gpuvitals_core::identity::INDEX_COLUMN;
use gpuvitals_core::{Batch, IdentityColumn, time};

/// An error while writing rows.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output does not take them.
    #[error("cannot write CSV")]
    Io(#[from] io::Error),
    /// The header is written and lacks this column.
    #[error("the header, once written, has no column {0:?}")]
    Column(String),
}

#[derive(Debug, Clone, PartialEq)]
enum WrittenColumn {
    Index,
    Identity(IdentityColumn),
    Metric(MetricId),
    Extra(Arc<str>),
}

impl WrittenColumn {
    fn name(&self) -> &str {
        match self {
            Self::Index => INDEX_COLUMN,
            Self::Identity(column) => column.name(),
            Self::Metric(id) => id.metric().column,
            Self::Extra(name) => name,
        }
    }
}

/// Writes batches in the wide form: time, identity, metrics in the catalogue's order and unit, unknown
/// columns. The header has the given columns, or those of the first batch.
#[derive(Debug)]
pub struct WideWriter<W: Write> {
    out: W,
    columns: Vec<WrittenColumn>,
    begun: bool,
    line: Vec<u8>,
}

impl<W: Write> WideWriter<W> {
    /// A writer that takes its header from the first batch.
    pub fn new(out: W) -> Self {
        Self { out, columns: Vec::new(), begun: false, line: Vec::new() }
    }

    /// A writer whose header has all identity columns and these metrics, for batches that do not all have the same.
    pub fn with_metrics(out: W, metrics: impl IntoIterator<Item = MetricId>) -> Self {
        let identity = IdentityColumn::ALL.into_iter().map(WrittenColumn::Identity);
        let metrics = metrics.into_iter().map(WrittenColumn::Metric);
        let columns = std::iter::once(WrittenColumn::Index).chain(identity).chain(metrics).collect();
        Self { columns, ..Self::new(out) }
    }

    /// With these unknown columns in the header as well.
    pub fn and_columns(mut self, names: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.columns.extend(names.into_iter().map(|name| WrittenColumn::Extra(name.into())));
        self
    }

    /// Writes the rows of a batch, and before the first of them the header.
    ///
    /// # Errors
    /// If the output fails, or the batch has a column that the header lacks.
    pub fn write(&mut self, batch: &Batch) -> Result<(), WriteError> {
        let columns = columns_of(batch);
        if !self.begun {
            self.begun = true;
            if self.columns.is_empty() {
                self.columns.clone_from(&columns);
            }
            self.line.extend_from_slice(b"timestamp");
            for column in &self.columns {
                self.line.push(b',');
                push_field(&mut self.line, column.name());
            }
            self.end_line()?;
        }
        if let Some(column) = columns.iter().find(|column| !self.columns.contains(column)) {
            return Err(WriteError::Column(column.name().to_owned()));
        }
        let arrays: Vec<Option<ArrayRef>> =
            self.columns.iter().map(|c| batch.records().column_by_name(c.name()).cloned()).collect();
        for (row, timestamp_ns) in batch.timestamps().iter().enumerate() {
            self.line.extend_from_slice(time::format(*timestamp_ns).as_bytes());
            for (column, array) in self.columns.iter().zip(&arrays) {
                self.line.push(b',');
                let Some(array) = array else { continue };
                match column {
                    WrittenColumn::Index => push_index(&mut self.line, array, row),
                    WrittenColumn::Metric(id) => push_metric(&mut self.line, batch, *id, row),
                    WrittenColumn::Identity(_) | WrittenColumn::Extra(_) => {
                        push_field(&mut self.line, &text_of(array, row));
                    }
                }
            }
            self.end_line()?;
        }
        Ok(())
    }

    /// The output, to be emptied while it is written.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }

    /// The output; its buffer must still be flushed.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn end_line(&mut self) -> io::Result<()> {
        self.line.push(b'\n');
        let written = self.out.write_all(&self.line);
        self.line.clear();
        written
    }
}

fn columns_of(batch: &Batch) -> Vec<WrittenColumn> {
    let has = |name: &str| batch.records().column_by_name(name).is_some();
    let index = has(INDEX_COLUMN).then_some(WrittenColumn::Index);
    let identity =
        IdentityColumn::ALL.into_iter().filter(|column| has(column.name())).map(WrittenColumn::Identity);
    let mut metrics: Vec<MetricId> = batch.metrics().map(|(id, _)| id).collect();
    metrics.sort_unstable();
    let extras = batch.extras().map(|(name, _)| WrittenColumn::Extra(name.into()));
    index
        .into_iter()
        .chain(identity)
        .chain(metrics.into_iter().map(WrittenColumn::Metric))
        .chain(extras)
        .collect()
}

/// Text of a row of an identity or unknown column; empty where it is null.
fn text_of(array: &ArrayRef, row: usize) -> String {
    if let Some(texts) = array.as_dictionary_opt::<Int32Type>() {
        return text_at(texts, row).unwrap_or_default().to_owned();
    }
    numbers(array).and_then(|numbers| numbers.value(row)).map(spelled).unwrap_or_default()
}

fn push_index(line: &mut Vec<u8>, array: &ArrayRef, row: usize) {
    if let Some(a) = array.as_primitive_opt::<Int32Type>().filter(|a| row < a.len() && a.is_valid(row)) {
        line.extend_from_slice(a.value(row).to_string().as_bytes());
    }
}

fn push_metric(line: &mut Vec<u8>, batch: &Batch, id: MetricId, row: usize) {
    let Some(value) = batch.metric(id).and_then(|column| column.value(row)) else { return };
    line.extend_from_slice(spelled(value).as_bytes());
}

fn spelled(value: Value) -> String {
    match value {
        Value::Int(value) => value.to_string(),
        Value::Float32(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
    }
}

fn push_field(line: &mut Vec<u8>, text: &str) {
    let quote = text.contains([',', ';', '\t', '"', '\n', '\r']) || text.trim() != text;
    if quote { push_quoted(line, text) } else { line.extend_from_slice(text.as_bytes()) }
}

/// A text as a field of CSV: quoted where it has to be.
pub fn quoted(text: &str) -> Cow<'_, str> {
    let mut field = Vec::new();
    push_field(&mut field, text);
    String::from_utf8(field).map_or(Cow::Borrowed(text), Cow::Owned)
}

fn push_quoted(line: &mut Vec<u8>, text: &str) {
    line.push(b'"');
    for byte in text.bytes() {
        if byte == b'"' {
            line.push(b'"');
        }
        line.push(byte);
    }
    line.push(b'"');
}
