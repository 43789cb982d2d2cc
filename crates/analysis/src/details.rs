//! Values of single links, blocks and peers of a GPU, which are rows of `gpu_details`: the newest of each.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gpuvitals_core::batch::{RowKeys, numbers};
use gpuvitals_core::history::{ExtraValue, RowsQuery};
use gpuvitals_core::time::MINUTE_NS;
use gpuvitals_core::{Batch, MetricId, Table};

/// How long back the newest details are looked for. One that does not change is published every ten minutes, at the next rare reading.
const BACK_NS: i64 = 21 * MINUTE_NS;

/// The newest value of each instance, by GPU and by the instance's name.
pub type NewestDetails = HashMap<Arc<str>, BTreeMap<Arc<str>, f64>>;

/// What to ask a history for the details of these GPUs as they are at `now_ns` (nanoseconds UTC since 1970): at most so many rows, the
/// newest first.
pub fn query(gpus: Vec<Arc<str>>, now_ns: i64, rows_max: usize) -> RowsQuery {
    RowsQuery {
        gpus,
        start_ns: Some(now_ns.saturating_sub(BACK_NS)),
        newest_first: true,
        ..RowsQuery::of(Table::GpuDetails, rows_max)
    }
}

/// The newest values of a metric in rows of details, the newest first.
pub fn newest(batch: &Batch, metric: MetricId) -> NewestDetails {
    let mut found = NewestDetails::new();
    let column = |name: &str| batch.records().column_by_name(name);
    let text = |name: &str, row| match ExtraValue::of(column(name)?, row)? {
        ExtraValue::Text(text) => Some(text),
        ExtraValue::Number(_) => None,
    };
    let keys = RowKeys::of(batch.records(), batch.table());
    let (Ok(keys), Some(values)) = (keys, column("value").and_then(numbers)) else { return found };
    for (row, id) in keys.ids.iter().enumerate() {
        let is_asked = text("metric", row).as_deref() == Some(metric.metric().column);
        if let (true, Some(gpu), Some(instance), Some(value)) =
            (is_asked, keys.keys.get(*id as usize), text("instance", row), values.value(row))
        {
            found.entry(Arc::clone(gpu)).or_default().entry(instance).or_insert(value.as_f64());
        }
    }
    found
}
