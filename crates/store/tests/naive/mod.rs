//! The plainest store there is: a map from (GPU key, time) to columns. Queries are answered by looking at every row.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use gpuvitals_core::batch::{Value, text_at};
use gpuvitals_core::history::{Aggregate, BucketQuery, GroupColumn, Rows, RowsQuery};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table, catalogue};

/// Columns of a row, spelt.
pub(crate) type Cells = BTreeMap<String, String>;

/// Values by metric (as asked), aggregate and group.
pub(crate) type Lines = BTreeMap<(usize, Aggregate, String), Vec<Option<f64>>>;

/// The texts of a group as one.
pub(crate) fn group_text(texts: &[Option<Arc<str>>]) -> String {
    texts.iter().map(|text| text.as_deref().unwrap_or("-")).collect::<Vec<_>>().join(",")
}

/// A row to append.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) gpu: u8,
    pub(crate) partition: Option<u8>,
    pub(crate) has_node: bool,
    pub(crate) time_ns: i64,
    /// Eighths of a watt.
    pub(crate) power: Option<i16>,
    pub(crate) memory: Option<i32>,
    pub(crate) clock: Option<i16>,
    pub(crate) extra: Option<i8>,
    pub(crate) note: Option<u8>,
}

impl Row {
    pub(crate) fn key(&self) -> String {
        let gpu = self.gpu;
        self.partition.map_or_else(|| format!("GPU-{gpu}"), |partition| format!("GPU-{gpu}:p{partition}"))
    }
}

/// Rows as a batch, in order.
pub(crate) fn batch(rows: &[Row]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let id = |column: &str| catalogue::by_column(column).unwrap();
    for row in rows {
        let mut identity = Identity::default();
        identity.index = Some(row.gpu.into());
        identity.set(IdentityColumn::Uuid, &format!("GPU-{}", row.gpu)).unwrap();
        identity.set(IdentityColumn::Model, &format!("model {}", row.gpu % 3)).unwrap();
        if row.has_node {
            identity.set(IdentityColumn::Node, &format!("n{}", row.gpu % 2)).unwrap();
        }
        if let Some(partition) = row.partition {
            identity.set(IdentityColumn::Partition, &format!("p{partition}")).unwrap();
        }
        let identity = builder.intern(&identity);
        let to = builder.row(row.time_ns, identity);
        if let Some(power) = row.power {
            builder.set(to, id("power_w"), Value::Float(f64::from(power) / 8.0)).unwrap();
        }
        if let Some(memory) = row.memory {
            builder.set(to, id("memory_used_mb"), Value::Int(memory.into())).unwrap();
        }
        if let Some(clock) = row.clock {
            builder.set(to, id("gpu_clock_mhz"), Value::Int(clock.into())).unwrap();
        }
        if let Some(extra) = row.extra {
            builder.set_extra(to, "strange", f64::from(extra)).unwrap();
        }
        if let Some(note) = row.note {
            builder.set_extra_text(to, "note", &format!("note {note}")).unwrap();
        }
    }
    builder.finish(Origin::default(), 0).unwrap()
}

/// Columns of a batch's row that have a value.
pub(crate) fn cells(batch: &Batch, row: usize) -> Cells {
    let mut cells = Cells::from([("timestamp_ns".to_owned(), batch.timestamps()[row].to_string())]);
    let identity = batch.identity(row);
    cells.extend(identity.index.map(|index| ("gpu".to_owned(), index.to_string())));
    for column in IdentityColumn::ALL {
        cells.extend(identity.get(column).map(|text| (column.name().to_owned(), text.to_owned())));
    }
    for (metric, column) in batch.metrics() {
        cells.extend(
            column.value(row).map(|value| (metric.metric().column.to_owned(), value.as_f64().to_string())),
        );
    }
    for (name, array) in batch.extras() {
        use arrow_array::cast::AsArray as _;
        let text = if let Some(texts) = array.as_dictionary_opt() {
            text_at(texts, row).map(str::to_owned)
        } else {
            let numbers = array.as_primitive::<arrow_array::types::Float64Type>();
            arrow_array::Array::is_valid(numbers, row).then(|| numbers.value(row).to_string())
        };
        cells.extend(text.map(|text| (name.to_owned(), text)));
    }
    cells
}

/// Rows of an answer.
pub(crate) fn answer(rows: &Rows) -> Vec<Cells> {
    rows.batch.iter().flat_map(|batch| (0..batch.rows()).map(|row| cells(batch, row))).collect()
}

/// All rows there are, merged.
#[derive(Debug, Default)]
pub(crate) struct Model {
    rows: BTreeMap<(String, i64), Cells>,
}

impl Model {
    pub(crate) fn append(&mut self, rows: &[Row]) {
        let batch = batch(rows);
        for (at, row) in rows.iter().enumerate() {
            self.rows.entry((row.key(), row.time_ns)).or_default().extend(cells(&batch, at));
        }
    }

    /// Rows of the page, and how many there are in all.
    pub(crate) fn range(&self, query: &RowsQuery) -> (Vec<Cells>, usize) {
        let wanted = |key: &str| query.gpus.is_empty() || query.gpus.iter().any(|gpu| gpu.as_ref() == key);
        let mut found: Vec<(&(String, i64), &Cells)> = self
            .rows
            .iter()
            .filter(|((key, time), _)| {
                wanted(key)
                    && query.start_ns.is_none_or(|start| start <= *time)
                    && query.end_ns.is_none_or(|end| *time <= end)
            })
            .collect();
        if query.newest_first {
            found.sort_by_key(|((key, time), _)| (Reverse(*time), key.clone()));
        } else {
            found.sort_by_key(|((key, time), _)| (*time, key.clone()));
        }
        let total = found.len();
        let page = found.into_iter().skip(query.offset).take(query.limit);
        let known = |name: &str| {
            name == "timestamp_ns"
                || name == "gpu"
                || IdentityColumn::by_name(name).is_some()
                || query.metrics.as_ref().is_none_or(|names| names.iter().any(|n| n == name))
        };
        let slim = |cells: &Cells| {
            cells.iter().filter(|(n, _)| known(n)).map(|(n, v)| (n.clone(), v.clone())).collect()
        };
        (page.map(|(_, cells)| slim(cells)).collect(), total)
    }

    /// Bucket starts, and by (metric column, aggregate, group) the values.
    pub(crate) fn buckets(&self, query: &BucketQuery) -> (Vec<i64>, Lines) {
        let origin = query.start_ns.div_euclid(query.step_ns) * query.step_ns;
        let buckets = (query.end_ns - origin) / query.step_ns;
        let times: Vec<i64> = (0..=buckets).map(|bucket| origin + bucket * query.step_ns).collect();
        let mut found: BTreeMap<(usize, String, usize), Vec<(i64, f64)>> = BTreeMap::new();
        for ((key, time), cells) in &self.rows {
            let wanted = query.gpus.is_empty() || query.gpus.iter().any(|gpu| gpu.as_ref() == key);
            if !wanted || !(query.start_ns..=query.end_ns).contains(time) {
                continue;
            }
            let text = |column: &GroupColumn| match column {
                GroupColumn::Gpu => Some(Arc::from(key.as_str())),
                GroupColumn::Identity(column) => {
                    cells.get(column.name()).map(|text| Arc::from(text.as_str()))
                }
            };
            let group = group_text(&query.group_by.iter().map(text).collect::<Vec<_>>());
            let bucket = usize::try_from((time - origin) / query.step_ns).unwrap();
            for (at, metric) in query.metrics.iter().enumerate() {
                if let Some(value) = cells.get(metric.metric().column) {
                    let values = found.entry((at, group.clone(), bucket)).or_default();
                    values.push((*time, value.parse().unwrap()));
                }
            }
        }
        let mut series = BTreeMap::new();
        for ((metric, group, bucket), values) in found {
            for &aggregate in &query.aggregates {
                let line = series
                    .entry((metric, aggregate, group.clone()))
                    .or_insert_with(|| vec![None; times.len()]);
                line[bucket] = Some(aggregated(aggregate, &values));
            }
        }
        (times, series)
    }
}

fn aggregated(aggregate: Aggregate, values: &[(i64, f64)]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    sorted.sort_by(f64::total_cmp);
    let count = u32::try_from(sorted.len()).unwrap();
    match aggregate {
        Aggregate::Min => sorted[0],
        Aggregate::Max => sorted[sorted.len() - 1],
        Aggregate::Mean => sorted.iter().sum::<f64>() / f64::from(count),
        // The smallest value that at least 99 % of the values do not exceed.
        Aggregate::Quantile(_) => {
            let enough = |value: f64| {
                sorted.iter().filter(|&&other| other <= value).count() * 100 >= sorted.len() * 99
            };
            sorted.iter().copied().find(|&value| enough(value)).unwrap()
        }
        // Of several that were taken at once the largest.
        Aggregate::Last => {
            let newest = values.iter().map(|(time, _)| *time).max().unwrap();
            values
                .iter()
                .filter(|(time, _)| *time == newest)
                .map(|(_, value)| *value)
                .fold(f64::MIN, f64::max)
        }
        Aggregate::Count => f64::from(count),
        Aggregate::Rate | Aggregate::Increase | Aggregate::Delta => panic!("nobody asks for {aggregate:?}"),
    }
}
