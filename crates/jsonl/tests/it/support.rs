//! Rows, and what a reader of the files finds.

use std::collections::BTreeMap;

use gpuvitals_core::batch::Value;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table, catalogue, time};

/// GPU, time in seconds, values.
pub(crate) type Row<'a> = (&'a str, i64, &'a [(&'a str, f64)]);

pub(crate) const SECOND: i64 = 1_000_000_000;
/// 2026-01-01T00:00:00Z
pub(crate) const START: i64 = 1_767_225_600 * SECOND;

pub(crate) fn batch(rows: &[Row<'_>]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for (gpu, second, values) in rows {
        let (uuid, partition) = gpu.split_once(':').unwrap_or((gpu, ""));
        let identity = Identity::default()
            .with(IdentityColumn::Uuid, uuid)
            .and_then(|id| id.with(IdentityColumn::Partition, partition))
            .and_then(|id| id.with(IdentityColumn::Node, "node-1"));
        let id = builder.intern(&identity.unwrap());
        let row = builder.row(START + second * SECOND, id);
        for (name, value) in *values {
            match catalogue::by_column(name) {
                Some(metric) => builder.set(row, metric, Value::Float(*value)).unwrap(),
                None => builder.set_extra(row, name, *value).unwrap(),
            }
        }
    }
    builder.finish(Origin::default(), 0).unwrap()
}

/// Values by GPU, second and metric.
pub(crate) type Kept = BTreeMap<(String, i64), BTreeMap<String, f64>>;

/// Reads lines as anyone would: equal keys merge, the later line counts. Panics at a line that is none, and at a value that
/// an earlier line has and no line since changed: that is a row written twice.
pub(crate) fn read(kept: &mut Kept, lines: &str) {
    assert!(lines.is_empty() || lines.ends_with('\n'), "the last line is cut: {lines}");
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        let time = time::parse(line["timestamp"].as_str().unwrap()).unwrap();
        let key = (line["gpu_id"].as_str().unwrap().to_owned(), (time - START) / SECOND);
        let values = line["metrics"].as_object().unwrap();
        let is_new = !kept.contains_key(&key);
        let known = kept.entry(key).or_default();
        assert!(is_new || !values.is_empty(), "a line that says nothing new: {line}");
        for (name, value) in values {
            let value = value.as_f64().unwrap();
            assert_ne!(known.insert(name.clone(), value), Some(value), "{name} is there twice: {line}");
        }
    }
}
