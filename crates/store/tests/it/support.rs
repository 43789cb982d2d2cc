//! Rows to put in, a simple model of what must come out, and a comparison of the two.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::batch::Value;
use gpuvitals_core::history::{
    Aggregate, BucketQuery, Buckets, ExtraValue, GroupColumn, History, Part, QueryError, Rows, RowsQuery,
    Selector,
};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table, catalogue};
use gpuvitals_log::FsDisk;
use gpuvitals_rig::waiting::soon;
use gpuvitals_store::{FileStep, FileSteps, Recovered, Store, StoreConfig};

/// 2026-11-20T10:00:00Z
pub(crate) const HOUR: i64 = 1_795_168_800_000_000_000;
pub(crate) const SECOND: i64 = 1_000_000_000;

/// One row: GPU, time, values by column.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) gpu: String,
    pub(crate) time: i64,
    pub(crate) values: Vec<(&'static str, f64)>,
}

pub(crate) fn row(gpu: impl Into<String>, time: i64, values: &[(&'static str, f64)]) -> Row {
    Row { gpu: gpu.into(), time, values: values.to_vec() }
}

pub(crate) fn batch(rows: &[Row]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for row in rows {
        let identity = Identity::default()
            .with(IdentityColumn::Uuid, &row.gpu)
            .and_then(|i| i.with(IdentityColumn::Node, "node-1"))
            .and_then(|i| i.with(IdentityColumn::Model, "H100"))
            .and_then(|i| i.with(IdentityColumn::Source, "simulated"))
            .unwrap();
        let identity = builder.intern(&identity);
        let id = builder.row(row.time, identity);
        for (column, value) in &row.values {
            match catalogue::by_column(column) {
                Some(metric) => builder.set(id, metric, Value::Float(*value)).unwrap(),
                None => builder.set_extra(id, column, *value).unwrap(),
            }
        }
    }
    builder.finish(Origin::default(), 0).unwrap()
}

/// What must be there: rows by GPU and time, columns joined.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Model(pub(crate) BTreeMap<(i64, String), BTreeMap<String, f64>>);

impl Model {
    pub(crate) fn add(&mut self, rows: &[Row]) {
        for row in rows {
            let joined = self.0.entry((row.time, row.gpu.clone())).or_default();
            for (column, value) in &row.values {
                // Through the column's own type, as the store does.
                let value = match catalogue::by_column(column).map(|id| id.metric().column_type) {
                    Some(catalogue::ColumnType::F32) => f64::from(*value as f32),
                    Some(catalogue::ColumnType::I32 | catalogue::ColumnType::I64) => value.round(),
                    _ => *value,
                };
                joined.insert((*column).to_owned(), value);
            }
        }
    }
}

/// All rows of a store, as a model.
pub(crate) fn contents(store: &dyn History) -> Model {
    let rows = rows_of(store, everything());
    assert_eq!(rows.missing, Vec::<String>::new());
    let found = rows.answer.batch.as_ref().map(model_of).unwrap_or_default();
    assert_eq!(rows.answer.total, Some(found.0.len()), "a key came twice");
    found
}

pub(crate) fn everything() -> RowsQuery {
    RowsQuery { with_total: true, ..RowsQuery::of(Table::GpuEvents, 1_000_000) }
}

/// The answer of a store.
pub(crate) fn rows_of(store: &dyn History, query: RowsQuery) -> Part<Rows> {
    answered(store.rows(query))
}

/// The answer of a store, by steps.
pub(crate) fn buckets_of(store: &dyn History, query: BucketQuery) -> Part<Buckets> {
    answered(store.buckets(query))
}

/// The outcome of a question, awaited on a thread of its own: checks are made inside a runtime and outside of one.
fn answered<T: Send>(question: impl Future<Output = Result<T, QueryError>> + Send) -> T {
    let wait = || tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(question).unwrap();
    std::thread::scope(|scope| scope.spawn(wait).join().unwrap())
}

pub(crate) fn model_of(batch: &Batch) -> Model {
    let mut model = Model::default();
    let times = batch.timestamps();
    let extras: Vec<_> = batch.extras().collect();
    for (row, time) in times.iter().enumerate() {
        let key = batch.identity(row).key().unwrap().as_ref().to_owned();
        let values = model.0.entry((*time, key)).or_default();
        for (id, column) in batch.metrics() {
            if let Some(value) = column.value(row) {
                values.insert(id.metric().column.to_owned(), value.as_f64());
            }
        }
        for (name, column) in &extras {
            use arrow_array::Array as _;
            let numbers = column.as_any().downcast_ref::<arrow_array::Float64Array>().unwrap();
            if numbers.is_valid(row) {
                values.insert((*name).to_owned(), numbers.value(row));
            }
        }
    }
    model
}

/// Latest values as the model has them.
pub(crate) fn latest(model: &Model) -> BTreeMap<(String, String), (f64, i64)> {
    let mut latest = BTreeMap::new();
    for ((time, gpu), values) in &model.0 {
        for (column, value) in values {
            latest.insert((gpu.clone(), column.clone()), (*value, *time));
        }
    }
    latest
}

/// Latest values as the store has them.
pub(crate) fn fleet(store: &dyn History) -> BTreeMap<(String, String), (f64, i64)> {
    let mut latest = BTreeMap::new();
    for gpu in &answered(store.fleet()).answer.gpus {
        for (id, value) in &gpu.latest {
            let key = (gpu.key.as_ref().to_owned(), id.metric().column.to_owned());
            latest.insert(key, (value.value.as_f64(), value.timestamp_ns));
        }
        for (name, value, time) in &gpu.extras {
            if let ExtraValue::Number(value) = value {
                latest.insert((gpu.key.as_ref().to_owned(), name.as_ref().to_owned()), (*value, *time));
            }
        }
    }
    latest
}

/// Asserts that rows and latest values are those of the model.
#[track_caller]
pub(crate) fn assert_is(store: &dyn History, model: &Model) {
    let found = contents(store);
    for (key, values) in &model.0 {
        assert_eq!(found.0.get(key), Some(values), "row {key:?}");
    }
    assert_eq!(found.0.len(), model.0.len(), "rows that nobody sent");
    assert_eq!(fleet(store), latest(model), "latest values");
}

const AGGREGATES: [Aggregate; 6] =
    [Aggregate::Min, Aggregate::Max, Aggregate::Mean, Aggregate::P99, Aggregate::Last, Aggregate::Count];

/// The text of a group by at most one column.
pub(crate) fn text(group: &[Option<Arc<str>>]) -> String {
    group.iter().flatten().map(ToString::to_string).collect()
}

/// Asserts that values by steps are those of the model.
#[track_caller]
pub(crate) fn assert_steps(store: &dyn History, model: &Model) {
    let about = |start: i64, end: i64, step: i64| (HOUR + start * SECOND, HOUR + end * SECOND, step * SECOND);
    for (start_ns, end_ns, step_ns) in [
        about(-86_400 * 366, 86_400, 86_400),
        about(-3_600, 7_199, 3_600),
        about(-5, 3_601, 60),
        about(-6, 3_609, 10),
        about(-3, 3_603, 7),
    ] {
        for (aggregates, group_by) in [
            (&AGGREGATES[..], vec![GroupColumn::Gpu]),
            (&AGGREGATES[..3], vec![]),
            (&AGGREGATES[4..5], vec![GroupColumn::Identity(IdentityColumn::Node)]),
        ] {
            let metrics = ["power_w", "temperature_c", "memory_used_mb"].map(MetricId::of).to_vec();
            let aggregates = aggregates.to_vec();
            let (table, gpus) = (Table::GpuEvents, Vec::new());
            let selector = Selector::default();
            let query = BucketQuery {
                table,
                gpus,
                selector,
                metrics,
                start_ns,
                end_ns,
                step_ns,
                phase_ns: 0,
                aggregates,
                group_by,
            };
            let found = buckets_of(store, query.clone());
            assert_eq!(found.missing, Vec::<String>::new());
            let rollup_ns = found.answer.rollup_ns();
            assert!(rollup_ns == 0 || step_ns % rollup_ns == 0, "{rollup_ns} for {step_ns}");
            let mut wanted = by_steps(model, &query);
            for line in found.answer.series(&query.aggregates) {
                for (at, value) in line.values.iter().enumerate() {
                    let time = found.answer.steps().time(at);
                    let key = (line.metric.metric().column, text(&line.group), line.aggregate, time);
                    match (value, wanted.remove(&key)) {
                        (None, None) => {}
                        (Some(found), Some(wanted)) => {
                            // A sketch says a quantile within 1 % of the value.
                            let bound = if line.aggregate.needs_sketch() { 0.01 } else { 1e-9 };
                            assert!(
                                (found - wanted).abs() <= wanted.abs() * bound,
                                "{key:?}: {found}, not {wanted}"
                            );
                        }
                        different => panic!("{key:?}: {different:?}"),
                    }
                }
            }
            assert!(wanted.is_empty(), "no {:?} by {step_ns}", wanted.first_key_value());
        }
    }
}

/// What a query of a model answers, by metric, group, aggregate and start of the step. No step has 100 values.
fn by_steps(model: &Model, query: &BucketQuery) -> BTreeMap<(&'static str, String, Aggregate, i64), f64> {
    type Values = Vec<(i64, f64)>;
    let mut values: BTreeMap<(&'static str, String, i64), Values> = BTreeMap::new();
    for ((time, gpu), row) in model.0.range((query.start_ns, String::new())..=(query.end_ns, "~".to_owned()))
    {
        let group = match query.group_by.as_slice() {
            [GroupColumn::Gpu] => gpu.clone(),
            [GroupColumn::Identity(IdentityColumn::Node)] => "node-1".to_owned(),
            _ => String::new(),
        };
        let step = time.div_euclid(query.step_ns) * query.step_ns;
        for metric in &query.metrics {
            let column = metric.metric().column;
            if let Some(value) = row.get(column) {
                values.entry((column, group.clone(), step)).or_default().push((*time, *value));
            }
        }
    }
    let mut answer = BTreeMap::new();
    for ((column, group, step), values) in values {
        let figures = values.iter().map(|(_, value)| *value);
        let count = values.len() as f64;
        let max = figures.clone().fold(f64::NEG_INFINITY, f64::max);
        let newest = values.iter().max_by(|a, b| (a.0, a.1).partial_cmp(&(b.0, b.1)).unwrap()).unwrap();
        for &aggregate in &query.aggregates {
            let value = match aggregate {
                Aggregate::Min => figures.clone().fold(f64::INFINITY, f64::min),
                Aggregate::Max | Aggregate::Quantile(_) => max,
                Aggregate::Mean => figures.clone().sum::<f64>() / count,
                Aggregate::Last => newest.1,
                Aggregate::Count => count,
                Aggregate::Rate | Aggregate::Increase | Aggregate::Delta => panic!("{aggregate:?}"),
            };
            answer.insert((column, group.clone(), aggregate, step), value);
        }
    }
    answer
}

/// Asserts that the rows at either end of each GPU's history are the same wherever they come from.
#[track_caller]
pub(crate) fn assert_ends(store: &Store) {
    for gpu in &store.fleet().gpus {
        for (limit, newest_first) in [(0, true), (1, true), (3, true), (4, true), (2, false), (9, false)] {
            let gpus = vec![Arc::clone(&gpu.key)];
            let query = RowsQuery { gpus, limit, newest_first, ..everything() };
            let end = rows_of(store, RowsQuery { with_total: false, ..query.clone() });
            let all = rows_of(store, query);
            let told = |rows: &Rows| rows.batch.as_ref().map(|b| (b.timestamps().to_vec(), model_of(b)));
            assert_eq!(told(&end.answer), told(&all.answer), "{} {limit} {newest_first}", gpu.key);
            assert_eq!((end.missing, end.answer.total), (all.missing, None));
        }
    }
}

/// No flush by itself, no merge; every merge has rollups.
pub(crate) fn quiet(dir: &Path) -> StoreConfig {
    StoreConfig { merge: false, rollup_rows: 1, flush_age: Duration::from_hours(24), ..StoreConfig::new(dir) }
}

/// Opens a store; the hook is asked before each step on a file.
pub(crate) fn open_asking(
    config: StoreConfig,
    hook: impl Fn(FileStep, &Path) -> std::io::Result<()> + Send + Sync + 'static,
) -> (Store, Recovered) {
    let log = FsDisk::open(config.dir.join("wal")).unwrap();
    Store::open_on(config, log, FileSteps::asking(hook)).unwrap()
}

/// Rows of `gpus` GPUs at `times` seconds from a start, four columns.
pub(crate) fn grid(gpus: usize, start: i64, seconds: std::ops::Range<i64>) -> Vec<Row> {
    let mut rows = Vec::new();
    for second in seconds {
        for gpu in 0..gpus {
            let n = second * 31 + gpu as i64;
            rows.push(row(
                format!("GPU-{gpu:04}"),
                start + second * SECOND,
                &[
                    ("power_w", 100.0 + (n % 97) as f64 / 8.0),
                    ("temperature_c", (30 + n % 50) as f64),
                    ("utilization_pct", (n % 101) as f64),
                    ("memory_used_mb", (n * 17 % 80_000) as f64),
                ],
            ));
        }
    }
    rows
}

/// Copies a directory. Answers whether every file was still there when its turn came.
pub(crate) fn copy(from: &Path, to: &Path) -> bool {
    std::fs::create_dir_all(to).unwrap();
    let mut is_whole = true;
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            is_whole &= copy(&path, &target);
        } else {
            match std::fs::copy(&path, &target) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => is_whole = false,
                copied => assert!(copied.is_ok(), "{copied:?}"),
            }
        }
    }
    is_whole
}

/// Looks at every change of what is visible.
pub(crate) async fn wait_for(store: &Store, done: impl Fn(&Store) -> bool) {
    let looking = async {
        while !done(store) {
            tokio::task::yield_now().await;
        }
    };
    soon("what is visible", looking).await;
}
