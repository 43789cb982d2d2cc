//! The list of GPUs as a table, for CSV and Arrow: each with the time of its newest row and what was asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, DictionaryArray, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
};
use arrow_schema::ArrowError;
use gpuvitals_core::batch::{TIMESTAMP_COLUMN, Value};
use gpuvitals_core::catalogue::{self, ColumnType};
use gpuvitals_core::history::{ExtraValue, Fleet, GpuState};

use super::judged::JudgedGpu;
use super::label::{Label, Latest};
use crate::columns::{self, TableColumn};
use crate::condition;
use crate::rack::RackPattern;

/// The GPUs with these labels and latest values. Without either, with what a list says of a GPU.
pub(super) fn of(
    gpus: &[JudgedGpu<'_>],
    labels: &[Label],
    latest: &Latest,
    racks: Option<&RackPattern>,
) -> Result<RecordBatch, ArrowError> {
    let judged = gpus;
    let gpus: Vec<&Arc<GpuState>> = judged.iter().map(|one| one.gpu).collect();
    let seen: Int64Array = gpus.iter().map(|gpu| Some(gpu.last_seen_ns)).collect();
    let mut columns = vec![
        text("id", "Identity of the GPU.", &gpus, |gpu| Some(&gpu.key)),
        TableColumn::of(TIMESTAMP_COLUMN, "Time of its newest row.", Arc::new(seen)),
    ];
    columns.extend(labels.iter().map(|label| {
        text(label.name(), "", &gpus, |gpu| label.text(|column| gpu.identity.get(column), racks))
    }));
    match latest {
        Latest::Of(names) => columns.extend(names.iter().map(|name| values(name, &gpus))),
        Latest::All => columns.extend(all_names(&gpus).iter().map(|name| values(name, &gpus))),
        Latest::None if labels.is_empty() => {
            columns.extend(facts(&gpus));
            columns.extend(how(judged));
        }
        Latest::None => {}
    }
    columns::table(columns)
}

fn text<'a>(
    name: &str,
    help: &'static str,
    gpus: &[&'a Arc<GpuState>],
    of: impl Fn(&'a GpuState) -> Option<&'a str>,
) -> TableColumn {
    TableColumn::texts(name, help, gpus.iter().map(|gpu| of(gpu)))
}

/// What a list says of each GPU, but for what is judged.
fn facts(gpus: &[&Arc<GpuState>]) -> Vec<TableColumn> {
    use gpuvitals_core::IdentityColumn::{Driver, Model, Node, Vendor};
    let index: Int32Array = gpus.iter().map(|gpu| gpu.identity.index).collect();
    let memory: Int64Array = gpus.iter().map(|gpu| condition::memory_mb(gpu)).collect();
    vec![
        text("hostname", "Host it is in.", gpus, |gpu| gpu.identity.get(Node)),
        TableColumn::of("index", "Its number on the host.", Arc::new(index)),
        text("model", "Product name.", gpus, |gpu| gpu.identity.get(Model)),
        text("vendor", "nvidia or amd.", gpus, |gpu| gpu.identity.get(Vendor)),
        text("driver_version", "Version of its driver.", gpus, |gpu| gpu.identity.get(Driver)),
        TableColumn::of("memory_mb", "Device memory in MiB.", Arc::new(memory)),
    ]
}

/// How they do.
fn how(gpus: &[JudgedGpu<'_>]) -> [TableColumn; 2] {
    let states = gpus.iter().map(|one| Some(one.state.name()));
    let judgements = gpus.iter().map(|one| Some(one.judgement.name()));
    [
        TableColumn::texts("state", "Its state.", states),
        TableColumn::texts("judgement", "The worst open finding about it, else its state.", judgements),
    ]
}

/// The columns of which some GPU has a value: those of the catalogue in its order, then others by name.
fn all_names(gpus: &[&Arc<GpuState>]) -> Vec<String> {
    let metrics: BTreeSet<_> = gpus.iter().flat_map(|gpu| gpu.latest.iter().map(|(id, _)| *id)).collect();
    let extras: BTreeSet<_> = gpus.iter().flat_map(|gpu| gpu.extras.iter().map(|(name, ..)| name)).collect();
    let metrics = metrics.into_iter().map(|id| id.metric().column.to_owned());
    metrics.chain(extras.into_iter().map(ToString::to_string)).collect()
}

/// The latest values of a column.
fn values(name: &str, gpus: &[&Arc<GpuState>]) -> TableColumn {
    if let Some(id) = catalogue::by_column(name) {
        let values = gpus.iter().map(|gpu| Fleet::latest(gpu, id).map(|latest| latest.value));
        return TableColumn::metric(name, id, numbers(id.metric().column_type, values));
    }
    TableColumn::of(name, "", foreign(name, gpus))
}

/// The latest values of a column that the catalogue does not know: texts, if one is.
fn foreign(name: &str, gpus: &[&Arc<GpuState>]) -> ArrayRef {
    let of = |gpu: &&Arc<GpuState>| {
        gpu.extras.iter().find(|(column, ..)| column.as_ref() == name).map(|(_, value, _)| value.clone())
    };
    let found: Vec<Option<ExtraValue>> = gpus.iter().map(of).collect();
    let is_text = found.iter().flatten().any(|value| matches!(value, ExtraValue::Text(_)));
    if is_text {
        let texts = found.iter().map(|value| match value {
            Some(ExtraValue::Text(text)) => Some(text.to_string()),
            Some(ExtraValue::Number(number)) => Some(number.to_string()),
            None => None,
        });
        let texts: Vec<Option<String>> = texts.collect();
        Arc::new(texts.iter().map(Option::as_deref).collect::<DictionaryArray<Int32Type>>())
    } else {
        let number = |value: &Option<ExtraValue>| match value {
            Some(ExtraValue::Number(number)) => Some(*number),
            _ => None,
        };
        Arc::new(found.iter().map(number).collect::<Float64Array>())
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a column's values fit its type")]
fn numbers(column_type: ColumnType, values: impl Iterator<Item = Option<Value>>) -> ArrayRef {
    let whole = |value: Value| if let Value::Int(whole) = value { whole } else { value.as_f64() as i64 };
    match column_type {
        ColumnType::I32 => {
            Arc::new(values.map(|value| value.map(|value| whole(value) as i32)).collect::<Int32Array>())
        }
        ColumnType::I64 => Arc::new(values.map(|value| value.map(whole)).collect::<Int64Array>()),
        ColumnType::F32 => Arc::new(
            values
                .map(|value| {
                    value.map(|value| match value {
                        Value::Float32(number) => number,
                        other => other.as_f64() as f32,
                    })
                })
                .collect::<Float32Array>(),
        ),
        ColumnType::F64 => Arc::new(values.map(|value| value.map(Value::as_f64)).collect::<Float64Array>()),
    }
}
