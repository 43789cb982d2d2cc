//! What was acknowledged is there after any restart, once.

use crate::support::{HOUR, Model, SECOND, assert_is, batch, grid, quiet, row};
use gpuvitals_core::IdentityColumn;
use gpuvitals_core::history::{Change, History};
use gpuvitals_store::{AppendError, Store, StoreConfig, StoreError};

#[tokio::test]
async fn rows_are_visible_once_they_are_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!((found.files, found.log_rows, found.damage.len()), (0, 0, 0));
    let mut news = store.changes();
    let rows = grid(3, HOUR, 0..10);
    let before = store.version();
    let version = store.append(vec![batch(&rows)]).await.unwrap();
    assert_eq!(version, store.version());
    assert!(version > before);
    let mut model = Model::default();
    model.add(&rows);
    assert_is(&store, &model);
    let Some(Change::Rows(batches)) = news.next().await else { panic!("no rows came") };
    assert_eq!(batches.iter().map(gpuvitals_core::Batch::rows).sum::<usize>(), 30);
}

#[tokio::test]
async fn dropped_without_a_flush_the_log_has_everything() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    for restart in 0..4 {
        let (store, found) = Store::open(quiet(dir.path())).unwrap();
        assert_eq!((found.log_rows as usize, found.damage.clone()), (model.0.len(), Vec::new()));
        assert_is(&store, &model);
        let rows = grid(5, HOUR, restart * 10..restart * 10 + 10);
        store.append(vec![batch(&rows[..20]), batch(&rows[20..])]).await.unwrap();
        model.add(&rows);
        assert_is(&store, &model);
    }
}

#[tokio::test]
async fn flushed_rows_are_in_files_and_not_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    for (restart, files) in [(0, 0), (1, 3), (2, 5)] {
        let (store, found) = Store::open(quiet(dir.path())).unwrap();
        assert_eq!((found.files, found.log_rows), (files, 0));
        assert_is(&store, &model);
        // The first time three hours, then two.
        let rows = grid(4, HOUR - 5 * SECOND, restart * 10..restart * 10 + 10);
        let late = grid(2, HOUR + 3_600 * SECOND, restart..restart + 1);
        store.append(vec![batch(&rows)]).await.unwrap();
        store.append(vec![batch(&late)]).await.unwrap();
        model.add(&rows);
        model.add(&late);
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn the_latest_value_of_each_column_survives_however_old_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let old = [row("GPU-1", HOUR, &[("power_w", 75.5), ("foreign", 3.5)])];
    let new = [row("GPU-1", HOUR + 3_600 * SECOND, &[("temperature_c", 61.0)])];
    for rows in [&old, &new] {
        let (store, _) = Store::open(quiet(dir.path())).unwrap();
        store.append(vec![batch(rows)]).await.unwrap();
        model.add(rows);
        store.flush().await.unwrap();
        assert_is(&store, &model);
    }
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!((found.log_rows, found.gpus), (0, 1));
    assert_is(&store, &model);
    let gpu = store.fleet().get("GPU-1").cloned().unwrap();
    assert_eq!((gpu.first_seen_ns, gpu.last_seen_ns), (HOUR, HOUR + 3_600 * SECOND));
    assert_eq!(gpu.identity.get(IdentityColumn::Model), Some("H100"));
}

#[tokio::test]
async fn a_damaged_checkpoint_is_made_anew_from_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let rows = grid(3, HOUR, 0..10);
    let mut model = Model::default();
    model.add(&rows);
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    store.append(vec![batch(&rows)]).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let fleet = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.file_name().unwrap().to_string_lossy().starts_with("fleet-"))
        .unwrap();
    let mut bytes = std::fs::read(&fleet).unwrap();
    bytes[20] ^= 1;
    std::fs::write(&fleet, bytes).unwrap();
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!(found.damage.len(), 1, "{:?}", found.damage);
    assert!(store.health().reason.contains("latest values"), "{:?}", store.health());
    assert_is(&store, &model);
}

#[tokio::test]
async fn a_lost_log_does_not_swallow_what_comes_after() {
    let dir = tempfile::tempdir().unwrap();
    let rows = grid(2, HOUR, 0..10);
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    for row in &rows {
        store.append(vec![batch(std::slice::from_ref(row))]).await.unwrap();
    }
    store.close().await.unwrap();
    drop(store);
    std::fs::remove_dir_all(dir.path().join("wal")).unwrap();
    let mut model = Model::default();
    model.add(&rows);
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!(found.damage.len(), 1);
    let more = grid(1, HOUR, 20..21);
    store.append(vec![batch(&more)]).await.unwrap();
    model.add(&more);
    drop(store);
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!(found.log_rows, 1);
    assert_is(&store, &model);
}

#[tokio::test]
async fn a_log_without_its_first_segment_is_not_taken_for_whole() {
    let dir = tempfile::tempdir().unwrap();
    let config = || StoreConfig { segment_bytes: 4 << 10, ..quiet(dir.path()) };
    let (store, _) = Store::open(config()).unwrap();
    for second in 0..20 {
        store.append(vec![batch(&grid(2, HOUR, second..second + 1))]).await.unwrap();
    }
    drop(store);
    std::fs::remove_file(dir.path().join("wal/0000000000000001.wal")).unwrap();
    let (store, found) = Store::open(config()).unwrap();
    assert_eq!(found.damage.len(), 1, "{found:?}");
    assert!(found.damage[0].contains("neither in the log nor in files"), "{found:?}");
    assert_eq!(store.health().status, gpuvitals_core::Status::Degraded);
    // It is told once: later rows reach beyond the gap.
    store.flush().await.unwrap();
    drop(store);
    assert_eq!(Store::open(config()).unwrap().1.damage, Vec::<String>::new());
}

#[tokio::test]
async fn one_store_one_writer() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    assert!(matches!(Store::open(quiet(dir.path())), Err(StoreError::Locked(_))));
    store.close().await.unwrap();
    assert!(matches!(store.append(vec![batch(&grid(1, HOUR, 0..1))]).await, Err(AppendError::Closed)));
    drop(store);
    Store::open(quiet(dir.path())).unwrap();
}

#[tokio::test]
async fn a_store_of_another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(quiet(dir.path())).unwrap());
    let json = r#"{"format":9,"whatever":"comes then"}"#;
    let text = format!("{json}\n{:08x}\n", crc32c::crc32c(json.as_bytes()));
    std::fs::write(dir.path().join("MANIFEST-0000000009"), text).unwrap();
    let error = Store::open(quiet(dir.path())).unwrap_err();
    assert!(error.to_string().contains("MANIFEST-0000000009 has format 9"), "{error}");
}

#[tokio::test]
async fn unfinished_files_go_and_others_are_set_aside_or_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    let rows = grid(2, HOUR, 0..2);
    store.append(vec![batch(&rows)]).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let day = dir.path().join("raw/gpu_events/2026-11-20");
    for name in ["09h-L0-77.tmp", "09h-L1-78.parquet", "notes.txt"] {
        std::fs::write(day.join(name), b"x").unwrap();
    }
    std::fs::write(dir.path().join("fleet-0000000099"), b"x").unwrap();
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!(found.removed, [day.join("09h-L0-77.tmp")]);
    assert_eq!(found.unlisted.len(), 2, "{found:?}");
    for name in ["raw+gpu_events+2026-11-20+09h-L1-78.parquet", "fleet-0000000099"] {
        assert_eq!(std::fs::read(dir.path().join("quarantine").join(name)).unwrap(), b"x");
    }
    assert_eq!(found.foreign, [day.join("notes.txt")]);
    assert_eq!((store.stats().quarantined, found.damage), (2, Vec::new()));
    assert_eq!(store.health().status, gpuvitals_core::Status::Healthy);
    let mut model = Model::default();
    model.add(&rows);
    assert_is(&store, &model);
    // The numbers of files that were set aside are not given again.
    let more = grid(2, HOUR, 2..4);
    store.append(vec![batch(&more)]).await.unwrap();
    store.flush().await.unwrap();
    assert!(day.join("10h-L0-79.parquet").exists());
    assert!(dir.path().join("MANIFEST-0000000100").exists());
}
