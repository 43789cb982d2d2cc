//! A history in memory answers as the store does, within its bounds, and says what it does not keep.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use gpuvitals_collect::{CollectorSettings, MemoryHistory};
use gpuvitals_core::batch;
use gpuvitals_core::history::{
    Aggregate, BucketQuery, Change, ExtraValue, History, QueryError, RowsQuery, Selector,
};
use gpuvitals_core::ports::{Sink, SinkError};
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, MetricId, Origin, Table, catalogue};
use gpuvitals_settings::Section;
use gpuvitals_store::{Store, StoreConfig};
use gpuvitals_suite::{check_later_stays, check_rows_ahead, write_in_any_order};
use proptest::prelude::*;

const METRICS: [&str; 3] = ["power_w", "temperature_c", "memory_used_mb"];

/// A value of a row: GPU, time, column, value. The last two columns are unknown ones, of numbers and of texts.
type Cell = (u8, i64, usize, u8);

/// A row as anyone sees it: time, identity, values by column.
type Seen = (i64, Identity, BTreeMap<String, String>);

/// Each cell is a row of its own; equal keys are several rows of one key.
fn rows(cells: &[Cell]) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    for &(gpu, time_ns, column, value) in cells {
        // Not every row names a job.
        let job = if value > 1 { format!("job-{value}") } else { String::new() };
        let identity = Identity::default().with(IdentityColumn::Uuid, &format!("GPU-{gpu}"));
        let identity = identity.and_then(|identity| identity.with(IdentityColumn::Job, &job)).unwrap();
        let identity = builder.intern(&identity);
        let row = builder.row(time_ns, identity);
        match METRICS.get(column) {
            Some(name) => {
                let metric = catalogue::by_column(name).unwrap();
                builder.set(row, metric, batch::Value::Int(value.into())).unwrap();
            }
            None if column == METRICS.len() => builder.set_extra(row, "number", f64::from(value)).unwrap(),
            None => builder.set_extra_text(row, "text", &value.to_string()).unwrap(),
        }
    }
    builder.finish(Origin::default(), 0).unwrap()
}

fn seen(batch: Option<&Batch>) -> Vec<Seen> {
    let Some(batch) = batch else { return Vec::new() };
    let row = |row: usize| {
        let metrics = batch.metrics().filter_map(|(id, column)| {
            Some((id.metric().column.to_owned(), format!("{:?}", column.value(row)?)))
        });
        let extras = batch.extras().filter_map(|(name, column)| {
            Some((name.to_owned(), format!("{:?}", ExtraValue::of(column, row)?)))
        });
        (batch.timestamps()[row], batch.identity(row), metrics.chain(extras).collect())
    };
    (0..batch.rows()).map(row).collect()
}

struct World {
    store: Store,
    memory: MemoryHistory,
    _dir: tempfile::TempDir,
}

impl World {
    fn new(settings: &[(&str, serde_json::Value)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(StoreConfig::new(dir.path())).unwrap();
        let settings = CollectorSettings::of(settings).unwrap();
        Self { memory: MemoryHistory::new(Arc::new(store.clone()), &settings), store, _dir: dir }
    }

    async fn accept(&self, cells: &[Cell]) {
        self.memory.accept(vec![rows(cells)]).await.unwrap();
    }

    /// Times of the rows of a GPU, newest first.
    async fn times(&self, gpu: &str) -> Vec<i64> {
        let rows = self.memory.rows(newest(gpu)).await.unwrap();
        seen(rows.answer.batch.as_ref()).into_iter().map(|(time_ns, ..)| time_ns).collect()
    }

    fn bytes(&self) -> u64 {
        self.memory.stats().own["bytes_in_memory"].as_u64().unwrap()
    }
}

fn newest(gpu: &str) -> RowsQuery {
    let of_table = RowsQuery::of(Table::GpuEvents, 1_000);
    RowsQuery { gpus: vec![gpu.into()], newest_first: true, ..of_table }
}

fn questions() -> impl Strategy<Value = RowsQuery> {
    let gpus = proptest::collection::btree_set(0_u8..4, 0..3);
    let columns = ["power_w", "text", "number", "nothing"].map(str::to_owned).to_vec();
    let metrics = proptest::option::of(proptest::sample::subsequence(columns, 1..3));
    (gpus, metrics, 1_usize..12, 0_usize..4, any::<bool>()).prop_map(
        |(gpus, metrics, limit, offset, newest_first)| RowsQuery {
            gpus: gpus.into_iter().map(|gpu| Arc::from(format!("GPU-{gpu}"))).collect(),
            metrics,
            offset,
            newest_first,
            with_total: true,
            ..RowsQuery::of(Table::GpuEvents, limit)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn rows_and_fleet_are_those_that_the_store_tells(
        appends in proptest::collection::vec(
            proptest::collection::vec((0_u8..3, 0_i64..6, 0..METRICS.len() + 2, 0_u8..4), 1..8),
            1..8,
        ),
        questions in proptest::collection::vec(questions(), 1..6),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let world = World::new(&[]);
            for cells in &appends {
                world.accept(cells).await;
            }
            let (memory, store) = (&world.memory, &world.store);
            for question in questions {
                let kept = memory.rows(question.clone()).await.unwrap();
                let stored = store.rows(question).await.unwrap();
                assert_eq!(seen(kept.answer.batch.as_ref()), seen(stored.answer.batch.as_ref()));
                assert_eq!(kept.answer.total, stored.answer.total);
                assert!(kept.missing.is_empty());
            }
            let fleets = (memory.fleet().await.unwrap().answer, History::fleet(store).await.unwrap().answer);
            assert_eq!(fleets.0.gpus, fleets.1.gpus);
            assert_eq!((fleets.0.version, memory.version()), (appends.len() as u64, appends.len() as u64));
        });
    }
}

#[tokio::test]
async fn the_newest_rows_of_each_gpu_stay() {
    let world = World::new(&[("collector.max_entries", 3.into())]);
    for time_ns in [5, 1, 4, 2, 6, 3] {
        world.accept(&[(0, time_ns, 0, 1), (1, time_ns % 2, 0, 1)]).await;
    }
    assert_eq!(world.times("GPU-0").await, [6, 5, 4]);
    assert_eq!(world.times("GPU-1").await, [1, 0]);
    assert_eq!(world.memory.stats().rows_in_memory, Some(5));
}

#[tokio::test]
async fn gpus_share_the_room_equally_and_each_keeps_its_newest_row() {
    const ROOM: u64 = 20 << 10;
    let world = World::new(&[("collector.cache_bytes", "20KiB".into())]);
    for time_ns in 0..500 {
        world.accept(&[(0, time_ns, 0, 1)]).await;
    }
    let alone = world.times("GPU-0").await.len();
    assert!((50..500).contains(&alone) && world.bytes() <= ROOM, "{alone} rows");
    // It says nothing more while others come.
    for gpu in 1..10 {
        world.accept(&[(gpu, 0, 0, 1)]).await;
    }
    let share = world.times("GPU-0").await.len();
    assert!((alone / 12..=alone / 10).contains(&share) && world.bytes() <= ROOM, "{share} rows of {alone}");
    for gpu in 10..=u8::MAX {
        world.accept(&[(gpu, 0, 0, 1)]).await;
    }
    assert_eq!(world.memory.stats().rows_in_memory, Some(256));
    assert_eq!(world.memory.fleet().await.unwrap().answer.gpus.len(), 256);
}

#[tokio::test]
async fn ranges_and_other_tables_are_refused_with_the_remedy() {
    let world = World::new(&[]);
    world.accept(&[(0, 1, 0, 1)]).await;
    let buckets = BucketQuery {
        table: Table::GpuEvents,
        gpus: Vec::new(),
        selector: Selector::default(),
        metrics: vec![MetricId::of("power_w")],
        start_ns: 0,
        end_ns: 10,
        step_ns: 1,
        phase_ns: 0,
        aggregates: vec![Aggregate::Mean],
        group_by: Vec::new(),
    };
    let refused = [
        world.memory.rows(RowsQuery { start_ns: Some(0), ..newest("GPU-0") }).await.map(drop),
        world.memory.rows(RowsQuery { end_ns: Some(9), ..newest("GPU-0") }).await.map(drop),
        world.memory.rows(RowsQuery::of(Table::SystemEvents, 1)).await.map(drop),
        world.memory.buckets(buckets).await.map(drop),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(matches!(error, QueryError::NotKept { .. }), "{error}");
        assert!(error.to_string().contains("--sinks store,jsonl"), "{error}");
    }
}

#[tokio::test]
async fn rows_are_shown_when_the_sink_has_them_and_not_before() {
    let world = World::new(&[]);
    let mut changes = world.memory.changes();
    world.accept(&[(0, 1, 0, 1)]).await;
    let Some(Change::Rows(shown)) = changes.next().await else { panic!("no rows") };
    assert_eq!((shown.len(), shown[0].timestamps()), (1, [1].as_slice()));
    world.memory.close().await.unwrap();
    let late = world.memory.accept(vec![rows(&[(0, 2, 0, 1)])]).await;
    assert!(matches!(late, Err(SinkError::Closed)));
    assert_eq!((world.times("GPU-0").await, world.memory.version()), (vec![1], 1));
}

#[tokio::test]
async fn gpus_that_find_no_room_leave_with_their_rows_the_longest_silent_first() {
    let world = World::new(&[("collector.gpus_max", 2.into())]);
    for (gpu, time) in [(0, 1), (1, 2), (2, 3)] {
        world.accept(&[(gpu, time, 0, 1)]).await;
    }
    let fleet = world.memory.fleet().await.unwrap().answer;
    assert_eq!(fleet.gpus.iter().map(|gpu| gpu.key.as_ref()).collect::<Vec<_>>(), ["GPU-1", "GPU-2"]);
    assert_eq!((world.times("GPU-0").await, world.times("GPU-2").await), (vec![], vec![3]));
    assert_eq!(world.memory.stats().own["gpus_forgotten"], 1);
}

#[tokio::test]
async fn rows_of_a_clock_ahead_are_no_part_of_the_latest_state() {
    let world = World::new(&[]);
    check_rows_ahead(&world.memory, &world.memory).await;
}

#[tokio::test]
async fn sums_of_holders_go_to_the_sink_in_any_order_and_are_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(StoreConfig::new(dir.path())).unwrap().0;
    let memory = MemoryHistory::new(Arc::new(store.clone()), &CollectorSettings::of(&[]).unwrap());
    write_in_any_order(&[&memory], async || {}).await;
    check_later_stays(&store).await;
    let asked = memory.rows(RowsQuery::of(Table::GpuUsage, 1)).await;
    assert!(matches!(asked, Err(QueryError::NotKept { .. })), "{asked:?}");
}
