//! Whatever comes in whatever order, flushed and merged or not: the store has what a map of joined rows has.

use std::time::Duration;

use crate::support::{
    HOUR, Model, Row, SECOND, assert_ends, assert_is, assert_steps, batch, grid, quiet, row,
};
use gpuvitals_rig::rounds::rounds;
use gpuvitals_store::{Store, StoreConfig};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Action {
    Append(Vec<Vec<Row>>),
    Flush,
    Restart,
}

const COLUMNS: [&str; 6] =
    ["power_w", "temperature_c", "energy_mj", "memory_used_mb", "utilization_pct", "a column nobody knows"];

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let values = prop::collection::vec((0..COLUMNS.len(), 0_u32..90), 0..4);
    // Few GPUs and times, so that keys meet; times around the turn of an hour and far from it.
    let time = prop_oneof![-6_i64..6, 3_590_i64..3_610, Just(-86_400 * 365)];
    let one = (0_u8..6, time, values).prop_map(|(gpu, second, values)| {
        let values: Vec<_> =
            values.into_iter().filter_map(|(i, v)| Some((*COLUMNS.get(i)?, f64::from(v)))).collect();
        row(format!("GPU-{gpu}"), HOUR + second * SECOND, &values)
    });
    prop::collection::vec(one, 1..12)
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        6 => prop::collection::vec(rows(), 1..4).prop_map(Action::Append),
        2 => Just(Action::Flush),
        1 => Just(Action::Restart),
    ]
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

fn run(actions: &[Action], config: impl Fn(&std::path::Path) -> StoreConfig) {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let mut model = Model::default();
        let (mut store, _) = Store::open(config(dir.path())).unwrap();
        for action in actions {
            match action {
                Action::Append(batches) => {
                    for rows in batches {
                        model.add(rows);
                    }
                    store.append(batches.iter().map(|rows| batch(rows)).collect()).await.unwrap();
                }
                Action::Flush => store.flush().await.unwrap(),
                Action::Restart => {
                    drop(store);
                    let (again, found) = Store::open(config(dir.path())).unwrap();
                    assert_eq!(found.damage, Vec::<String>::new());
                    store = again;
                }
            }
            assert_is(&store, &model);
            if matches!(action, Action::Flush) {
                assert_steps(&store, &model);
            }
            if config(dir.path()).recent_rows > 0 {
                assert_ends(&store);
            }
        }
        store.close().await.unwrap();
        assert_is(&store, &model);
        assert_steps(&store, &model);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(32), ..ProptestConfig::default() })]

    #[test]
    fn unmerged(actions in prop::collection::vec(action(), 1..14)) {
        run(&actions, quiet);
    }

    #[test]
    fn merged_in_small_pieces(actions in prop::collection::vec(action(), 1..14)) {
        run(&actions, |dir| StoreConfig {
            merge: true,
            merge_files: 2,
            row_group_gpus: 2,
            row_group_rows: 3,
            page_rows: 2,
            ..quiet(dir)
        });
    }

    /// Hours and days are merged as soon as there are two files, each read in several pieces.
    #[test]
    fn merged_into_days(actions in prop::collection::vec(action(), 1..14)) {
        run(&actions, |dir| StoreConfig {
            merge: true,
            merge_after: Duration::ZERO,
            row_group_gpus: 3,
            page_rows: 1,
            ..quiet(dir)
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: rounds(24), ..ProptestConfig::default() })]

    #[test]
    fn some_rows_in_memory(actions in prop::collection::vec(action(), 1..20), bytes in 0_usize..2_000) {
        run(&actions, |dir| StoreConfig { recent_rows: 3, recent_bytes: bytes, ..quiet(dir) });
    }
}

#[tokio::test]
async fn the_same_rows_again_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let rows = grid(5, HOUR, 0..20);
    let mut model = Model::default();
    model.add(&rows);
    for _ in 0..3 {
        let (store, _) = Store::open(quiet(dir.path())).unwrap();
        for _ in 0..2 {
            store.append(vec![batch(&rows)]).await.unwrap();
            assert_is(&store, &model);
        }
        store.flush().await.unwrap();
        store.append(vec![batch(&rows)]).await.unwrap();
        assert_is(&store, &model);
    }
}

#[tokio::test]
async fn rows_come_in_any_order_and_late_ones_go_to_their_hour() {
    let dir = tempfile::tempdir().unwrap();
    let mut rows = grid(3, HOUR, 0..30);
    rows.extend(grid(3, HOUR - 7_200 * SECOND, 0..5));
    // A fixed shuffle.
    let len = rows.len();
    for i in 0..len {
        rows.swap(i, (i * 7_919 + 13) % len);
    }
    let mut model = Model::default();
    model.add(&rows);
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    for chunk in rows.chunks(4) {
        store.append(vec![batch(chunk)]).await.unwrap();
    }
    assert_is(&store, &model);
    store.close().await.unwrap();
    let mut names: Vec<_> = std::fs::read_dir(dir.path().join("raw/gpu_events/2026-11-20"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].starts_with("08h-L0-") && names[1].starts_with("10h-L0-"), "{names:?}");
    assert_is(&store, &model);
}

#[tokio::test]
async fn appends_that_come_at_once_all_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    let mut model = Model::default();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..20_i64 {
        let rows: Vec<Vec<Row>> = (0..10).map(|n| grid(4, HOUR, task * 10 + n..task * 10 + n + 1)).collect();
        for rows in &rows {
            model.add(rows);
        }
        let store = store.clone();
        tasks.spawn(async move {
            for rows in rows {
                store.append(vec![batch(&rows)]).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    assert_is(&store, &model);
    assert!(store.stats().log_syncs <= 200, "{}", store.stats().log_syncs);
    drop(store);
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    assert_is(&store, &model);
}
