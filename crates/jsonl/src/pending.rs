//! Rows that are durable in the log and not yet lines of a file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, Float64Array, Int32Array};
use gpuvitals_core::batch::{MetricColumn, Value, text_at};
use gpuvitals_core::identity::SIMULATED;
use gpuvitals_core::{Batch, IdentityColumn, time};

use crate::error::JsonlError;
use crate::name;

/// The values of a row: column → JSON. Rows share the texts of a dictionary.
pub(crate) type Cells = BTreeMap<Arc<str>, Arc<str>>;

/// A row on its way to a line: its values so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct LineRow {
    pub(crate) cells: Cells,
    /// Its values were made up by a simulation.
    pub(crate) is_simulated: bool,
}

/// Rows of one GPU.
#[derive(Debug, Default)]
pub(crate) struct GpuRows {
    /// By time, nanoseconds UTC since 1970.
    pub(crate) rows: BTreeMap<i64, LineRow>,
    /// Bytes that these rows take as lines if none merges with another. More is never written of them.
    pub(crate) lines_len: usize,
    /// Room in memory that they hold.
    pub(crate) permits: usize,
}

/// Rows by the key of their GPU.
#[derive(Debug, Default)]
pub(crate) struct Pending(pub(crate) BTreeMap<Arc<str>, GpuRows>);

impl Pending {
    /// Adds the rows of batches, to which the permits go in equal parts. Returns those that are left: there was no row.
    pub(crate) fn add(&mut self, batches: &[Batch], mut permits: usize) -> usize {
        let mut rows_left = batches.iter().map(Batch::rows).sum();
        for batch in batches {
            self.add_batch(batch, &mut permits, &mut rows_left);
        }
        permits
    }

    /// Adds the rows of a batch; of two values of a row the later stays.
    fn add_batch(&mut self, batch: &Batch, permits: &mut usize, rows_left: &mut usize) {
        let columns = columns(batch);
        let sources = batch.identity_column(IdentityColumn::Source);
        for (row, &timestamp_ns) in batch.timestamps().iter().enumerate() {
            let Some(key) = key(batch, row) else { continue };
            let mut len = LINE_LEN_MAX + ESCAPED_LEN_MAX * key.len();
            let gpu = self.of(&key);
            let LineRow { cells, is_simulated } = gpu.rows.entry(timestamp_ns).or_default();
            *is_simulated |= sources.and_then(|sources| text_at(sources, row)) == Some(SIMULATED);
            for (name, name_len, column) in &columns {
                if let Some(text) = column.json(row) {
                    len += name_len + ":,".len() + text.len();
                    cells.insert(Arc::clone(name), text);
                }
            }
            gpu.lines_len += len;
            let part = *permits / (*rows_left).max(1);
            gpu.permits += part;
            *permits -= part;
            *rows_left = rows_left.saturating_sub(1);
        }
    }

    fn of(&mut self, gpu: &str) -> &mut GpuRows {
        match self.0.entry(Arc::from(gpu)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(GpuRows::default()),
        }
    }
}

/// Key of the GPU of a row, as [`gpuvitals_core::Identity::key`] spells it.
fn key(batch: &Batch, row: usize) -> Option<Cow<'_, str>> {
    let text = |column| text_at(batch.identity_column(column)?, row);
    let uuid = text(IdentityColumn::Uuid).filter(|uuid| !uuid.is_empty())?;
    Some(match text(IdentityColumn::Partition) {
        None => Cow::Borrowed(uuid),
        Some(partition) => Cow::Owned(format!("{uuid}:{partition}")),
    })
}

/// About the bytes that a row and each of its values take in memory until they are lines.
const ROW_BYTES: usize = 128;
const VALUE_BYTES: usize = 80;
/// Most bytes of text that the lines of one batch may have: a text that every row has is sent once and written for each.
pub(crate) const TEXTS_LEN_MAX: usize = 64 << 20;

/// Checks that every row has a GPU whose name makes a file name, and that the lines do not take far more than the batch does.
/// Returns about the bytes that the rows take until they are lines.
///
/// # Errors
/// The first row or name that does not, or more than [`TEXTS_LEN_MAX`].
pub(crate) fn check(batch: &Batch) -> Result<usize, JsonlError> {
    let mut last = None;
    for row in 0..batch.rows() {
        let key = key(batch, row).ok_or(JsonlError::Nobody(row))?;
        if last.as_ref() != Some(&key) {
            name::stem(&key)?;
            last = Some(key);
        }
    }
    let texts_len = batch.extras().map(|(_, column)| texts_len(column, batch.rows())).sum();
    if texts_len > TEXTS_LEN_MAX {
        return Err(JsonlError::TooMuchText { len: texts_len, max: TEXTS_LEN_MAX });
    }
    Ok(batch.rows() * (ROW_BYTES + VALUE_BYTES * batch.records().num_columns()) + texts_len)
}

/// Bytes of text of all rows of a column.
fn texts_len(column: &ArrayRef, rows: usize) -> usize {
    let Some(texts) = column.as_dictionary_opt() else { return 0 };
    (0..rows).filter_map(|row| text_at(texts, row)).map(str::len).sum()
}

/// Most bytes of a byte of text in JSON (`\u001f`).
const ESCAPED_LEN_MAX: usize = 6;
/// Most bytes of a line beside its GPU and its values: the longest instant is `-009999-01-02T01:59:59.123456789Z`.
const LINE_LEN_MAX: usize = 128;

/// Appends the line of a row.
pub(crate) fn push_line(text: &mut Vec<u8>, gpu: &str, timestamp_ns: i64, row: &LineRow) {
    text.extend_from_slice(br#"{"gpu_id":"#);
    text.extend_from_slice(quoted(gpu).as_bytes());
    text.extend_from_slice(br#","metrics":{"#);
    for (at, (name, value)) in row.cells.iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        text.extend_from_slice(quoted(name).as_bytes());
        text.push(b':');
        text.extend_from_slice(value.as_bytes());
    }
    text.extend_from_slice(br#"},"timestamp":""#);
    text.extend_from_slice(time::format(timestamp_ns).as_bytes());
    text.extend_from_slice(if row.is_simulated { br#"","simulated":true}"# } else { br#""}"# });
    text.push(b'\n');
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A column of values that lines show.
enum Column<'a> {
    Metric(MetricColumn<'a>),
    Numbers(&'a Float64Array),
    /// Which of the texts, which are in JSON, each row has.
    Texts(&'a Int32Array, Vec<Arc<str>>),
}

/// The columns with their names, and the lengths of these in JSON.
fn columns(batch: &Batch) -> Vec<(Arc<str>, usize, Column<'_>)> {
    let metrics = batch.metrics().map(|(id, column)| (id.metric().column, Column::Metric(column)));
    let extras = batch.extras().filter_map(|(name, column)| Some((name, Column::extra(column)?)));
    metrics.chain(extras).map(|(name, column)| (Arc::from(name), quoted(name).len(), column)).collect()
}

impl<'a> Column<'a> {
    fn extra(column: &'a ArrayRef) -> Option<Self> {
        if let Some(numbers) = column.as_primitive_opt() {
            return Some(Self::Numbers(numbers));
        }
        let texts = column.as_dictionary_opt::<Int32Type>()?;
        let values = texts.values().as_string_opt::<i32>()?;
        let values = values.iter().map(|text| quoted(text.unwrap_or_default()).into());
        Some(Self::Texts(texts.keys(), values.collect()))
    }

    fn json(&self, row: usize) -> Option<Arc<str>> {
        match self {
            Self::Metric(column) => number(column.value(row)?),
            Self::Numbers(numbers) => number(
                (row < numbers.len() && numbers.is_valid(row)).then(|| Value::Float(numbers.value(row)))?,
            ),
            Self::Texts(keys, texts) => {
                let key = (row < keys.len() && keys.is_valid(row)).then(|| keys.value(row))?;
                texts.get(usize::try_from(key).ok()?).cloned()
            }
        }
    }
}

/// A number as JSON; a 32-bit float keeps its shortest decimal spelling. None: it is not finite.
fn number(value: Value) -> Option<Arc<str>> {
    let text = match value {
        Value::Int(value) => value.to_string(),
        Value::Float32(value) if value.is_finite() => serde_json::to_string(&value).ok()?,
        Value::Float(value) if value.is_finite() => serde_json::to_string(&value).ok()?,
        Value::Float32(_) | Value::Float(_) => return None,
    };
    Some(text.into())
}
