//! Old files are deleted, by age and by the room they take, and nothing else is.

use std::path::Path;
use std::time::Duration;

use gpuvitals_store::{Store, StoreConfig};

use crate::support::{
    HOUR, Model, Row, SECOND, assert_is, batch, everything, grid, quiet, rows_of, wait_for,
};

const DAYS: i64 = 86_400 * SECOND;

/// Rows of three GPUs on a day.
fn day(day: i64) -> Vec<Row> {
    grid(3, HOUR + day * DAYS, 0..10)
}

/// Folders of days that the store has.
fn folders(dir: &Path) -> Vec<String> {
    let folders = std::fs::read_dir(dir.join("raw/gpu_events")).unwrap();
    let mut folders: Vec<_> = folders.map(|day| day.unwrap().file_name().into_string().unwrap()).collect();
    folders.sort_unstable();
    folders
}

async fn append(store: &Store, rows: &[Row]) {
    store.append(vec![batch(rows)]).await.unwrap();
    store.flush().await.unwrap();
}

#[tokio::test]
async fn rows_go_when_newer_ones_have_come_by_what_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let config = || StoreConfig { keep: Some(Duration::from_hours(36)), ..quiet(dir.path()) };
    let (store, _) = Store::open(config()).unwrap();
    append(&store, &day(0)).await;
    append(&store, &day(1)).await;
    assert_eq!(rows_of(&store, everything()).answer.total, Some(60), "a day is kept");
    append(&store, &day(2)).await;
    wait_for(&store, |store| store.stats().flushed.files == 2).await;
    store.close().await.unwrap();
    let mut model = Model::default();
    model.add(&day(1));
    model.add(&day(2));
    assert_eq!((store.stats().rows_too_old, store.stats().rows_too_many), (30, 0));
    assert_eq!(rows_of(&store, everything()).answer.total, Some(60));
    drop(store);
    assert_eq!(folders(dir.path()), ["2026-11-21", "2026-11-22"]);
    let (store, found) = Store::open(config()).unwrap();
    assert_eq!(found.damage, Vec::<String>::new());
    assert_is(&store, &model);
}

#[tokio::test]
async fn beyond_the_room_the_oldest_go_and_a_reader_reads_on() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    for at in 0..3 {
        append(&store, &day(at)).await;
    }
    let bytes = store.stats().flushed.bytes;
    store.close().await.unwrap();
    drop(store);
    let (store, _) = Store::open(StoreConfig { max_bytes: Some(bytes), ..quiet(dir.path()) }).unwrap();
    append(&store, &day(3)).await;
    wait_for(&store, |store| store.stats().flushed.files == 3).await;
    store.close().await.unwrap();
    assert!(store.stats().flushed.bytes <= bytes);
    assert_eq!((store.stats().rows_too_old, store.stats().rows_too_many), (0, 30));
    let mut model = Model::default();
    (1..4).for_each(|at| model.add(&day(at)));
    assert_eq!(rows_of(&store, everything()).answer.total, Some(90));
    drop(store);
    assert_eq!(folders(dir.path()).len(), 3);
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    assert_is(&store, &model);
}

/// Rows of three GPUs in four hours, as many small files.
async fn in_small_files(store: &Store) -> Model {
    let mut model = Model::default();
    for hour in 0..4 {
        for minute in 0..10 {
            let rows = grid(3, HOUR + (hour * 3_600 + minute * 60) * SECOND, 0..5);
            append(store, &rows).await;
            model.add(&rows);
        }
    }
    model
}

#[tokio::test]
async fn what_can_be_merged_is_merged_before_anything_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    in_small_files(&store).await;
    let small = store.stats().flushed.bytes;
    store.compact().await.unwrap();
    wait_for(&store, |store| store.stats().flushed.files == 0 && store.stats().merged.files > 0).await;
    let merged = store.stats().merged.bytes + store.stats().rollups.bytes;
    assert!(merged * 3 < small, "{merged} of {small}");
    store.close().await.unwrap();

    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        merge: true,
        merge_files: 1_000,
        merge_after: Duration::from_hours(100),
        max_bytes: Some(merged * 2),
        ..quiet(dir.path())
    };
    let (store, _) = Store::open(config).unwrap();
    let model = in_small_files(&store).await;
    let bytes = |store: &Store| {
        let stats = store.stats();
        stats.flushed.bytes + stats.merged.bytes + stats.rollups.bytes
    };
    wait_for(&store, |store| bytes(store) <= merged * 2).await;
    assert_eq!((store.stats().rows_too_many, store.health().reason), (0, String::new()));
    assert_is(&store, &model);
}

#[tokio::test]
async fn of_a_newest_hour_that_is_too_large_nothing_is_deleted_and_the_health_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(StoreConfig { max_bytes: Some(1_000), ..quiet(dir.path()) }).unwrap();
    append(&store, &day(0)).await;
    append(&store, &day(1)).await;
    wait_for(&store, |store| store.stats().rows_too_many == 30).await;
    wait_for(&store, |store| !store.health().reason.is_empty()).await;
    let reason = store.health().reason;
    assert!(reason.starts_with("the newest hour alone takes ") && reason.contains("(1000)"), "{reason}");
    let mut model = Model::default();
    model.add(&day(1));
    assert_eq!(rows_of(&store, everything()).answer.total, Some(30));
}
