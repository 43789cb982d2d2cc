//! Questions to a store: what the suite of all histories leaves open.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Float32Array, RecordBatch};
use gpuvitals_core::history::{
    Aggregate, BUCKETS_MAX, BucketQuery, Buckets, GroupColumn, History, Part, QueryError, Rows, RowsQuery,
    Selector,
};
use gpuvitals_core::{Batch, IdentityColumn, MetricId, Origin, Table, catalogue};
use gpuvitals_rig::rounds::rounds;
use gpuvitals_store::{ROWS_MAX, Store, StoreConfig};
use gpuvitals_suite::{BASE_NS, Model, TestRow, Write, answer, batch, cases, check_buckets, check_values};
use proptest::prelude::*;

const SECOND_NS: i64 = 1_000_000_000;
const ALL_AGGREGATES: [Aggregate; 6] =
    [Aggregate::Min, Aggregate::Max, Aggregate::Mean, Aggregate::P99, Aggregate::Last, Aggregate::Count];

const GPU: GroupColumn = GroupColumn::Gpu;
const NODE: GroupColumn = GroupColumn::Identity(IdentityColumn::Node);
const MODEL: GroupColumn = GroupColumn::Identity(IdentityColumn::Model);

fn metric(column: &str) -> MetricId {
    catalogue::by_column(column).unwrap()
}

struct Bench {
    runtime: tokio::runtime::Runtime,
    store: Store,
    dir: tempfile::TempDir,
    model: Model,
}

impl Bench {
    /// TestRow groups and pages so small that a handful of rows makes use of them.
    fn new(merge: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            row_group_gpus: 2,
            row_group_rows: 32,
            page_rows: 4,
            merge_files: 2,
            merge,
            ..StoreConfig::new(dir.path())
        };
        Self::over(dir, config)
    }

    fn over(dir: tempfile::TempDir, config: StoreConfig) -> Self {
        let (store, _) = Store::open(config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { runtime, store, dir, model: Model::default() }
    }

    fn append(&mut self, rows: &[TestRow]) {
        self.store_rows(rows);
        self.model.add(rows);
    }

    fn store_rows<'a>(&self, rows: impl IntoIterator<Item = &'a TestRow>) {
        let rows: Vec<TestRow> = rows.into_iter().cloned().collect();
        if !rows.is_empty() {
            self.runtime.block_on(self.store.append(vec![batch(&rows)])).unwrap();
        }
    }

    fn flush(&self) {
        self.runtime.block_on(self.store.flush()).unwrap();
    }

    fn rows(&self, query: &RowsQuery) -> Result<Part<Rows>, QueryError> {
        self.runtime.block_on(self.store.rows(query.clone()))
    }

    fn buckets(&self, query: &BucketQuery) -> Result<Part<Buckets>, QueryError> {
        self.runtime.block_on(self.store.buckets(query.clone()))
    }

    fn check_buckets(&self, query: &BucketQuery) {
        self.runtime.block_on(check_buckets(&self.store, &self.model, query));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(48), ..ProptestConfig::default() })]
    #[test]
    fn answers_of_several_stores_merge_into_the_answer_of_all_rows(case in cases(), stores in 2..4_u8) {
        let mut model = Model::default();
        let benches: Vec<Bench> = (0..stores).map(|_| Bench::new(false)).collect();
        for write in &case.writes {
            let Write::Rows(rows) = write else { continue };
            model.add(rows);
            for (bench, store) in benches.iter().zip(0..) {
                bench.store_rows(rows.iter().filter(|row| row.gpu % stores == store));
            }
        }
        for query in &case.buckets {
            let mut parts = benches.iter().map(|bench| bench.buckets(query).unwrap().answer);
            let mut whole = parts.next().unwrap();
            for part in parts {
                whole.merge(part).unwrap();
            }
            check_values(&whole, &model, query);
        }
    }
}

fn row(gpu: u8, second: i64, power: i16) -> TestRow {
    TestRow { power: Some(power), ..TestRow::of(gpu, second) }
}

fn everything() -> RowsQuery {
    RowsQuery { with_total: true, ..RowsQuery::of(Table::GpuEvents, 1000) }
}

fn power_buckets(start_ns: i64, end_ns: i64, step_ns: i64, group_by: &[GroupColumn]) -> BucketQuery {
    BucketQuery {
        table: Table::GpuEvents,
        gpus: Vec::new(),
        selector: Selector::default(),
        metrics: vec![metric("power_w")],
        start_ns,
        end_ns,
        step_ns,
        phase_ns: 0,
        aggregates: ALL_AGGREGATES.to_vec(),
        group_by: group_by.to_vec(),
    }
}

#[test]
fn an_empty_store_has_empty_answers() {
    let bench = Bench::new(false);
    let rows = bench.rows(&everything()).unwrap();
    assert!(rows.answer.batch.is_none() && rows.answer.total == Some(0) && rows.missing.is_empty());
    let buckets = bench.buckets(&power_buckets(0, 99, 10, &[])).unwrap().answer;
    assert_eq!((buckets.steps().count, buckets.groups().len()), (10, 0));
}

#[test]
fn percentiles_of_many_values_are_close_across_files_and_memory() {
    let mut bench = Bench::new(false);
    let noise =
        |gpu: u8, second: i64| i16::try_from((i64::from(gpu) * 7919 + second * 104_729) % 4001).unwrap();
    for round in 0..3_i64 {
        for gpu in 0..5 {
            // Every round writes some of the seconds of the round before once more.
            let rows: Vec<TestRow> =
                (round * 50..round * 50 + 70).map(|s| row(gpu, s, noise(gpu, s + round))).collect();
            bench.append(&rows);
        }
        if round < 2 {
            bench.flush();
        }
    }
    for step in [7, 60, 500] {
        for group_by in [&[GPU][..], &[NODE], &[MODEL], &[]] {
            bench.check_buckets(&power_buckets(
                BASE_NS,
                BASE_NS + 200 * SECOND_NS,
                step * SECOND_NS,
                group_by,
            ));
        }
    }
}

#[test]
fn some_seconds_of_many_columns_are_the_rows_of_these_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { merge: false, ..StoreConfig::new(dir.path()) };
    let mut bench = Bench::over(dir, config);
    // Minutes of each GPU on one page; one has a gap.
    let rows = (0..3_u8).flat_map(|gpu| (0..300_i16).map(move |second| (gpu, second)));
    let rows = rows.filter(|(gpu, second)| *gpu != 1 || !(100..200).contains(second));
    let rows: Vec<TestRow> = rows
        .map(|(gpu, second)| TestRow {
            pod: Some(u8::from(second >= 130)),
            memory: Some(i32::from(second) * 7),
            clock: (second % 4 == 0).then_some(second),
            ..row(gpu, second.into(), second)
        })
        .collect();
    bench.append(&rows);
    bench.flush();
    let pod = GroupColumn::Identity(IdentityColumn::Pod);
    for (start, end) in [(120, 134), (0, 4), (295, 310), (130, 130), (196, 204)] {
        for gpus in [Vec::new(), vec![Arc::from("GPU-0"), Arc::from("GPU-1")]] {
            let (start_ns, end_ns) = (BASE_NS + start * SECOND_NS, BASE_NS + end * SECOND_NS);
            let metrics = ["power_w", "memory_used_mb", "gpu_clock_mhz"].map(metric).to_vec();
            let of_power = power_buckets(start_ns, end_ns, 10 * SECOND_NS, &[GPU, NODE, MODEL, pod]);
            bench.check_buckets(&BucketQuery { gpus, metrics, ..of_power });
        }
    }
}

#[test]
fn pages_of_rows_join_without_gaps() {
    let mut bench = Bench::new(false);
    for second in 0..30 {
        bench.append(&(0..5).map(|gpu| row(gpu, second, 8)).collect::<Vec<_>>());
        if second % 10 == 9 {
            bench.flush();
        }
    }
    for newest_first in [false, true] {
        let whole = answer(&bench.rows(&RowsQuery { newest_first, ..everything() }).unwrap().answer);
        assert_eq!(whole.len(), 150);
        let mut pages = Vec::new();
        for offset in (0..160).step_by(16) {
            let query = RowsQuery { newest_first, offset, limit: 16, ..everything() };
            pages.extend(answer(&bench.rows(&query).unwrap().answer));
        }
        assert_eq!(pages, whole);
    }
}

#[test]
fn a_value_that_is_no_number_is_none() {
    let bench = Bench::new(false);
    let good = batch(&[row(0, 0, 8), row(0, 1, 16), row(0, 2, 24)]);
    let power: ArrayRef = Arc::new(Float32Array::from(vec![f32::NAN, 2.0, f32::INFINITY]));
    let columns: Vec<ArrayRef> = good
        .records()
        .schema()
        .fields()
        .iter()
        .zip(good.records().columns())
        .map(
            |(field, column)| if field.name() == "power_w" { Arc::clone(&power) } else { Arc::clone(column) },
        )
        .collect();
    let records = RecordBatch::try_new(good.schema(), columns).unwrap();
    let odd = Batch::new(Table::GpuEvents, records, Origin::default(), 0).unwrap();
    bench.runtime.block_on(bench.store.append(vec![odd])).unwrap();
    let query = power_buckets(BASE_NS, BASE_NS + 9 * SECOND_NS, SECOND_NS, &[GPU]);
    for series in bench.buckets(&query).unwrap().answer.series(&ALL_AGGREGATES) {
        let expected = if series.aggregate == Aggregate::Count { 1.0 } else { 2.0 };
        let values: Vec<f64> = series.values.into_iter().flatten().collect();
        assert_eq!(values, [expected], "{:?}", series.aggregate);
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_what_to_change() {
    let bench = Bench::new(false);
    let range = |query: RowsQuery| bench.rows(&query).unwrap_err();
    let backward = RowsQuery { start_ns: Some(2), end_ns: Some(1), ..everything() };
    assert!(matches!(range(backward), QueryError::Range { .. }));
    let far = RowsQuery { offset: usize::try_from(ROWS_MAX).unwrap(), limit: 1, ..everything() };
    assert!(range(far).to_string().contains("take a smaller limit"));

    let buckets = |query: BucketQuery| bench.buckets(&query).unwrap_err();
    assert!(matches!(buckets(power_buckets(1, 0, 1, &[])), QueryError::Range { .. }));
    assert!(matches!(buckets(power_buckets(0, 1, 0, &[])), QueryError::Range { .. }));
    let fine = power_buckets(0, i64::try_from(BUCKETS_MAX).unwrap(), 1, &[]);
    assert!(buckets(fine).to_string().contains("take a larger step"));
    let (host, _) = catalogue::host_metrics().next().unwrap();
    let foreign = BucketQuery { metrics: vec![host], ..power_buckets(0, 1, 1, &[]) };
    assert!(matches!(buckets(foreign), QueryError::UnknownMetric { .. }));
}

#[test]
fn too_many_points_are_refused() {
    let mut bench = Bench::new(false);
    bench.append(&(0..5).map(|gpu| row(gpu, 0, 8)).collect::<Vec<_>>());
    // 90,000 buckets of six aggregates are few for one series each and too many for five GPUs.
    let query = |group_by| power_buckets(BASE_NS, BASE_NS + 89_999 * SECOND_NS, SECOND_NS, group_by);
    assert!(bench.buckets(&query(&[])).is_ok());
    let error = bench.buckets(&query(&[GPU])).unwrap_err();
    assert!(matches!(error, QueryError::TooManyPoints { .. }), "{error}");
}

fn table_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.join("raw")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { dirs.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

#[test]
fn a_damaged_file_is_left_out_and_named() {
    let mut bench = Bench::new(false);
    // One file before the full hour, one after it.
    bench.append(&[row(0, 0, 8), row(1, 1, 8)]);
    bench.append(&[row(0, 30, 16)]);
    bench.flush();
    let files = table_files(bench.dir.path());
    assert_eq!(files.len(), 2, "{files:?}");
    let mut bytes = std::fs::read(&files[0]).unwrap();
    bytes[10] ^= 0x55;
    std::fs::write(&files[0], bytes).unwrap();

    let Part { answer: rows, missing } = bench.rows(&everything()).unwrap();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].contains("checksum"), "{missing:?}");
    assert_eq!(rows.total, Some(1));
    assert_eq!(answer(&rows)[0]["power_w"], "2");
    let buckets = bench.buckets(&power_buckets(BASE_NS, BASE_NS + 60 * SECOND_NS, SECOND_NS, &[GPU]));
    assert_eq!(buckets.unwrap().answer.series(&ALL_AGGREGATES).len(), 6);
}
