//! The newest rows of each GPU stay in memory when they are in files.

use std::sync::Arc;

use gpuvitals_core::Table;
use gpuvitals_core::history::RowsQuery;
use gpuvitals_store::{Store, StoreConfig};

use crate::support::{self, HOUR, Model, SECOND, assert_ends, assert_is, batch, grid, quiet, row};

const ROWS: usize = 10;

fn recalling(dir: &std::path::Path) -> StoreConfig {
    StoreConfig { recent_rows: ROWS, ..quiet(dir) }
}

/// How many rows an end of a history has, and whether no file was read for them.
struct End {
    rows: usize,
    from_memory: bool,
}

/// The rows at an end of the history of `GPU-000N`.
fn end(store: &Store, gpu: usize, limit: usize, newest_first: bool) -> End {
    let gpus = vec![Arc::from(format!("GPU-{gpu:04}"))];
    let before = store.stats().ends_from_memory;
    let rows =
        support::rows_of(store, RowsQuery { gpus, newest_first, ..RowsQuery::of(Table::GpuEvents, limit) });
    End {
        rows: rows.answer.batch.map_or(0, |batch| batch.rows()),
        from_memory: store.stats().ends_from_memory > before,
    }
}

/// The newest rows of `GPU-000N`.
fn newest(store: &Store, gpu: usize, limit: usize) -> End {
    end(store, gpu, limit, true)
}

async fn add(store: &Store, gpus: usize, seconds: std::ops::Range<i64>) {
    for second in seconds {
        store.append(vec![batch(&grid(gpus, HOUR, second..second + 1))]).await.unwrap();
    }
    store.flush().await.unwrap();
}

#[tokio::test]
async fn the_newest_rows_come_from_memory_and_older_ones_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(recalling(dir.path())).unwrap();
    add(&store, 3, 0..5).await;
    let oldest_first = end(&store, 1, 100, false);
    assert!(oldest_first.from_memory && newest(&store, 1, 100).from_memory, "memory has all rows there are");
    add(&store, 3, 5..15).await;
    add(&store, 3, 15..32).await;
    assert_eq!((store.stats().recent_rows, store.stats().tail_rows), (3 * ROWS as u64, 0));
    for (limit, from_memory) in [(1, true), (ROWS, true), (ROWS + 1, false), (100, false)] {
        let end = newest(&store, 2, limit);
        assert_eq!((end.rows, end.from_memory), (limit.min(32), from_memory), "{limit}");
    }
    assert!(!end(&store, 1, 1, false).from_memory);
    let stats = store.stats();
    assert_eq!((stats.ends_asked, stats.ends_from_memory), (7, 4));
    // Rows that are not in files yet are in memory beside them.
    store.append(vec![batch(&grid(3, HOUR, 32..40))]).await.unwrap();
    assert!(newest(&store, 0, ROWS + 8).from_memory);
    assert_ends(&store);
}

#[tokio::test]
async fn a_late_row_changes_what_memory_says_only_above_its_oldest_row() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(recalling(dir.path())).unwrap();
    add(&store, 1, 0..30).await;
    let mut model = Model::default();
    model.add(&grid(1, HOUR, 0..30));
    for time in [3 * SECOND + 1, 25 * SECOND + 1, 27 * SECOND] {
        let late = [row("GPU-0000", HOUR + time, &[("energy_mj", 7.0)])];
        model.add(&late);
        store.append(vec![batch(&late)]).await.unwrap();
        assert_ends(&store);
        store.flush().await.unwrap();
        assert_ends(&store);
        assert!(newest(&store, 0, ROWS).from_memory);
    }
    assert_is(&store, &model);
}

#[tokio::test]
async fn after_a_restart_rows_that_come_stay_and_a_gpu_asked_for_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(recalling(dir.path())).unwrap();
    add(&store, 2, 0..30).await;
    drop(store);
    let (store, _) = Store::open(recalling(dir.path())).unwrap();
    assert_eq!(store.stats().recent_rows, 0);
    assert!(!newest(&store, 0, ROWS).from_memory);
    assert!(newest(&store, 0, ROWS).from_memory);
    add(&store, 2, 30..33).await;
    assert_eq!(store.stats().recent_rows, ROWS as u64 + 3, "all of the one, what came of the other");
    assert!(newest(&store, 0, ROWS).from_memory && newest(&store, 1, 3).from_memory);
    assert!(!newest(&store, 1, 4).from_memory);
    assert_ends(&store);
}

#[tokio::test]
async fn gpus_asked_for_longest_ago_leave_first() {
    // So many rows that what a column takes beside its values hardly counts.
    const MANY: i64 = 5_000;
    async fn add(store: &Store, seconds: std::ops::Range<i64>) {
        store.append(vec![batch(&grid(4, HOUR, seconds))]).await.unwrap();
        store.flush().await.unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let config = |name| StoreConfig { recent_rows: MANY as usize, ..quiet(&dir.path().join(name)) };
    let all = {
        let (store, _) = Store::open(config("all")).unwrap();
        add(&store, 0..MANY).await;
        usize::try_from(store.stats().recent_bytes).unwrap()
    };
    // Room for two of four, and for some rows of a third.
    let (store, _) = Store::open(StoreConfig { recent_bytes: all * 5 / 8, ..config("some") }).unwrap();
    add(&store, 0..2).await;
    assert!((0..4).all(|gpu| newest(&store, gpu, 1).from_memory), "there is room for all so far");
    for gpu in [0, 2, 3, 1] {
        newest(&store, gpu, 1);
    }
    add(&store, 2..MANY).await;
    let from_memory = [1, 3, 0, 2].map(|gpu| newest(&store, gpu, MANY as usize).from_memory);
    assert_eq!(from_memory, [true, true, false, false]);
    assert!(store.stats().recent_bytes as usize <= all * 5 / 8);
    assert_ends(&store);
}

#[tokio::test]
async fn the_room_of_few_rows_counts_what_their_columns_take() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { recent_bytes: 20_000, ..recalling(dir.path()) };
    let (store, _) = Store::open(config).unwrap();
    add(&store, 100, 0..1).await;
    let (rows, bytes) = (store.stats().recent_rows, store.stats().recent_bytes);
    assert!(rows < 20 && bytes <= 20_000, "{rows} rows, {bytes} bytes");
    assert!(newest(&store, 99, 1).rows == 1 && newest(&store, 99, 1).from_memory);
    assert_ends(&store);
}

#[tokio::test]
async fn latest_values_come_from_the_files_where_they_are_not_written_beside_them() {
    let dir = tempfile::tempdir().unwrap();
    let config = || StoreConfig { checkpoint: false, ..recalling(dir.path()) };
    let mut model = Model::default();
    for start in [0, 10] {
        let (store, found) = Store::open(config()).unwrap();
        assert_eq!(found.damage, Vec::<String>::new());
        assert_is(&store, &model);
        model.add(&grid(3, HOUR, start..start + 10));
        add(&store, 3, start..start + 10).await;
        assert_is(&store, &model);
        store.close().await.unwrap();
    }
    let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.map(|name| name.into_string().unwrap()).any(|name| name.starts_with("fleet-")));
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    assert_is(&store, &model);
}
