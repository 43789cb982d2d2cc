//! Batches to CSV, in the wide form and in the long form of a DCGM capture. The source can read everything
//! written here.

use std::io::{self, Write};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type};
use arrow_array::{Array, ArrayRef};
use gpuvitals_core::batch::{Value, text_at};
use gpuvitals_core::catalogue::{MetricId, by_dcgm};
use gpuvitals_core::identity::INDEX_COLUMN;
use gpuvitals_core::{Batch, Identity, IdentityColumn, time};

/// The header of a DCGM capture in the long form.
pub const LONG_HEADER: &str =
    "timestamp,metric_name,gpu_id,device,uuid,modelName,Hostname,container,pod,namespace,value,labels_raw";

/// An error while writing rows.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output does not take them.
    #[error("writing csv")]
    Io(#[from] io::Error),
    /// The header is written and lacks this column.
    #[error("the header, once written, has no column {0:?}")]
    Column(String),
}

#[derive(Debug, Clone, PartialEq)]
enum Column {
    Index,
    Identity(IdentityColumn),
    Metric(MetricId),
    Extra(Arc<str>),
}

impl Column {
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
    columns: Vec<Column>,
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
        let identity = IdentityColumn::ALL.into_iter().map(Column::Identity);
        let metrics = metrics.into_iter().map(Column::Metric);
        let columns = std::iter::once(Column::Index).chain(identity).chain(metrics).collect();
        Self { columns, ..Self::new(out) }
    }

    /// With these unknown columns in the header as well.
    pub fn and_columns(mut self, names: impl IntoIterator<Item = &'static str>) -> Self {
        self.columns.extend(names.into_iter().map(|name| Column::Extra(name.into())));
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
                    Column::Index => push_index(&mut self.line, array, row),
                    Column::Metric(id) => push_metric(&mut self.line, batch, *id, row, 1.0),
                    Column::Identity(_) | Column::Extra(_) => {
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

/// Writes batches in the long form of a DCGM capture: the same header, every field quoted, DCGM's names and
/// units if the metric has them, else the column name; metric by metric. `labels_raw` holds the driver, host,
/// UUID, name of the metric, device, index, `instance` and `job` (if `label_instance` and `label_job` are
/// given), model and, if the rows name it, the source.
#[derive(Debug)]
pub struct LongWriter<W: Write> {
    out: W,
    begun: bool,
    line: Vec<u8>,
}

impl<W: Write> LongWriter<W> {
    /// A writer that has written nothing yet.
    pub fn new(out: W) -> Self {
        Self { out, begun: false, line: Vec::new() }
    }

    /// Writes one line for each value of a batch, before the first the header.
    ///
    /// # Errors
    /// If the output fails.
    pub fn write(&mut self, batch: &Batch) -> Result<(), WriteError> {
        if !self.begun {
            self.begun = true;
            self.out.write_all(LONG_HEADER.as_bytes())?;
            self.out.write_all(b"\n")?;
        }
        let identities: Vec<(Identity, [String; 3])> = (0..batch.rows())
            .map(|row| {
                (batch.identity(row), ["device", "label_instance", "label_job"].map(|n| extra(batch, n, row)))
            })
            .collect();
        for (id, column) in batch.metrics() {
            let facts = id.metric();
            // A name that means another metric would be read back as that one.
            let mut names =
                facts.dcgm.iter().filter(|name| by_dcgm(name.name).is_some_and(|(read, _)| read == id));
            let dcgm = names.clone().find(|name| !name.modern).or_else(|| names.next());
            let (name, factor) = dcgm.map_or((facts.column, 1.0), |dcgm| (dcgm.name, dcgm.factor));
            for (row, (identity, extras)) in identities.iter().enumerate() {
                if column.value(row).is_some() {
                    self.line(batch, row, (id, name, factor), identity, extras)?;
                }
            }
        }
        Ok(())
    }

    /// The output; its buffer must still be flushed.
    pub fn into_inner(self) -> W {
        self.out
    }

    fn line(
        &mut self,
        batch: &Batch,
        row: usize,
        (id, name, factor): (MetricId, &str, f64),
        identity: &Identity,
        [device, instance, job]: &[String; 3],
    ) -> io::Result<()> {
        let get = |column| identity.get(column).unwrap_or_default();
        let index = identity.index.map(|index| index.to_string()).unwrap_or_default();
        let device =
            if device.is_empty() && !index.is_empty() { format!("nvidia{index}") } else { device.clone() };
        let (uuid, model) = (get(IdentityColumn::Uuid), get(IdentityColumn::Model));
        let node = get(IdentityColumn::Node);
        let mut value = Vec::new();
        push_metric(&mut value, batch, id, row, factor);
        let labels: String = [
            ("DCGM_FI_DRIVER_VERSION", get(IdentityColumn::Driver)),
            ("Hostname", node),
            ("UUID", uuid),
            ("__name__", name),
            ("device", &device),
            ("gpu", &index),
            ("instance", instance),
            ("job", job),
            ("modelName", model),
            ("source", get(IdentityColumn::Source)),
        ]
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")))
        .collect::<Vec<_>>()
        .join(",");
        let timestamp = batch.timestamps().get(row).copied().map(time::format).unwrap_or_default();
        let fields = [
            timestamp.as_str(),
            name,
            &index,
            &device,
            uuid,
            model,
            node,
            get(IdentityColumn::Container),
            get(IdentityColumn::Pod),
            get(IdentityColumn::Namespace),
            std::str::from_utf8(&value).unwrap_or_default(),
            &labels,
        ];
        self.line.clear();
        for (i, field) in fields.iter().enumerate() {
            if i > 0 {
                self.line.push(b',');
            }
            push_quoted(&mut self.line, field);
        }
        self.line.push(b'\n');
        self.out.write_all(&self.line)
    }
}

fn columns_of(batch: &Batch) -> Vec<Column> {
    let has = |name: &str| batch.records().column_by_name(name).is_some();
    let index = has(INDEX_COLUMN).then_some(Column::Index);
    let identity = IdentityColumn::ALL.into_iter().filter(|column| has(column.name())).map(Column::Identity);
    let mut metrics: Vec<MetricId> = batch.metrics().map(|(id, _)| id).collect();
    metrics.sort_unstable();
    let extras = batch.extras().map(|(name, _)| Column::Extra(name.into()));
    index.into_iter().chain(identity).chain(metrics.into_iter().map(Column::Metric)).chain(extras).collect()
}

fn extra(batch: &Batch, name: &str, row: usize) -> String {
    batch.extras().find(|(extra, _)| *extra == name).map(|(_, array)| text_of(array, row)).unwrap_or_default()
}

/// Text of a row of an identity or unknown column; empty if it is null.
fn text_of(array: &ArrayRef, row: usize) -> String {
    if let Some(texts) = array.as_dictionary_opt::<Int32Type>() {
        return text_at(texts, row).unwrap_or_default().to_owned();
    }
    let numbers = array.as_primitive_opt::<Float64Type>().filter(|a| row < a.len() && a.is_valid(row));
    numbers.map(|a| a.value(row).to_string()).unwrap_or_default()
}

fn push_index(line: &mut Vec<u8>, array: &ArrayRef, row: usize) {
    if let Some(a) = array.as_primitive_opt::<Int32Type>().filter(|a| row < a.len() && a.is_valid(row)) {
        line.extend_from_slice(a.value(row).to_string().as_bytes());
    }
}

fn push_metric(line: &mut Vec<u8>, batch: &Batch, id: MetricId, row: usize, factor: f64) {
    let Some(value) = batch.metric(id).and_then(|column| column.value(row)) else { return };
    #[expect(clippy::float_cmp, reason = "exactly one means: write the number as it is")]
    let text = match value {
        value if factor != 1.0 => (value.as_f64() * factor).to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float32(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
    };
    line.extend_from_slice(text.as_bytes());
}

fn push_field(line: &mut Vec<u8>, text: &str) {
    let quote = text.contains([',', ';', '\t', '"', '\n', '\r']) || text.trim() != text;
    if quote { push_quoted(line, text) } else { line.extend_from_slice(text.as_bytes()) }
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
