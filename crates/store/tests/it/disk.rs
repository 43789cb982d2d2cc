//! The disk is full, or fails.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{
    HOUR, Model, assert_is, batch, contents, everything, grid, open_asking, quiet, rows_of,
};
use gpuvitals_core::Status;
use gpuvitals_core::ports::SinkError;
use gpuvitals_log::fault::{Fault, FaultDisk, Op};
use gpuvitals_store::{AppendError, FileStep, FileSteps, Store, StoreConfig, StoreError};

#[tokio::test]
async fn a_full_disk_acknowledges_nothing_and_recovers_when_space_returns() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new();
    let config = StoreConfig { segment_bytes: 16 << 10, ..quiet(dir.path()) };
    let (store, _) = Store::open_on(config, disk.clone(), FileSteps::default()).unwrap();
    let mut model = Model::default();
    let rows = grid(4, HOUR, 0..5);
    store.append(vec![batch(&rows)]).await.unwrap();
    model.add(&rows);

    disk.set_capacity(Some(0));
    // The log uses up the space it has already.
    let mut second = 5;
    let more = loop {
        let rows = grid(20, HOUR, second..second + 10);
        second += 10;
        match store.append(vec![batch(&rows)]).await {
            Ok(_) => model.add(&rows),
            Err(_) => break rows,
        }
    };
    for _ in 0..3 {
        let error = store.append(vec![batch(&more[..8]), batch(&more[8..])]).await.unwrap_err();
        assert!(matches!(error, AppendError::Log(_)), "{error}");
        assert!(matches!(SinkError::from(error), SinkError::Busy(_)));
        assert_is(&store, &model);
        assert_eq!(store.health().status, Status::Degraded);
        assert!(store.health().reason.contains("rows are not taken"), "{}", store.health().reason);
    }
    disk.set_capacity(None);
    store.append(vec![batch(&more)]).await.unwrap();
    model.add(&more);
    assert_is(&store, &model);
    assert_eq!(store.health().status, Status::Healthy);

    drop(store);
    let (store, found) = Store::open_on(quiet(dir.path()), disk, FileSteps::default()).unwrap();
    assert_eq!(found.damage, Vec::<String>::new());
    assert_is(&store, &model);
}

#[tokio::test]
async fn a_log_whose_sync_failed_takes_nothing_more_until_the_next_start() {
    // For lack of space too: the contents of the disk are unknown then.
    for kind in [io::ErrorKind::Other, io::ErrorKind::StorageFull] {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultDisk::new();
        let (store, _) = Store::open_on(quiet(dir.path()), disk.clone(), FileSteps::default()).unwrap();
        let mut model = Model::default();
        let rows = grid(4, HOUR, 0..5);
        store.append(vec![batch(&rows)]).await.unwrap();
        model.add(&rows);

        disk.fail_call(Some(Op::SyncData), 0, Fault::Error(kind));
        let more = grid(4, HOUR, 5..10);
        for _ in 0..2 {
            let error = store.append(vec![batch(&more)]).await.unwrap_err();
            assert!(matches!(error, AppendError::Failed(_)), "{error}");
            assert!(matches!(SinkError::from(error), SinkError::Failed(_)));
            let health = store.health();
            assert_eq!(health.status, Status::Degraded);
            assert!(health.reason.contains("rows are not taken: the log failed"), "{}", health.reason);
        }
        assert_is(&store, &model);
        assert!(matches!(store.close().await, Err(StoreError::Log(_))));
        drop(store);

        // After a power cut or without one, acknowledged rows are there; others may be.
        for seed in 0..20 {
            let after = if seed == 0 { disk.clone() } else { disk.crashed(seed) };
            let copy = tempfile::tempdir().unwrap();
            let (store, found) = Store::open_on(quiet(copy.path()), after, FileSteps::default()).unwrap();
            assert_eq!(found.damage, Vec::<String>::new());
            let found = contents(&store);
            assert!(model.0.iter().all(|(key, row)| found.0.get(key) == Some(row)), "seed {seed}");
            store.append(vec![batch(&more)]).await.unwrap();
            let mut whole = model.clone();
            whole.add(&more);
            assert_is(&store, &whole);
            assert_eq!(store.health().status, Status::Healthy);
        }
    }
}

#[tokio::test]
async fn files_that_cannot_be_read_for_a_while_are_named_and_stay() {
    let dir = tempfile::tempdir().unwrap();
    let failing = Arc::new(AtomicBool::new(false));
    let (fails, config) = (Arc::clone(&failing), StoreConfig { merge_files: 2, ..quiet(dir.path()) });
    let (store, _) = open_asking(config, move |step, _| {
        let is_due = step == FileStep::Read && fails.load(Ordering::Relaxed);
        if is_due { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    });
    let mut model = Model::default();
    for part in 0..3 {
        let rows = grid(4, HOUR, part * 10..part * 10 + 10);
        store.append(vec![batch(&rows)]).await.unwrap();
        model.add(&rows);
        if part < 2 {
            store.flush().await.unwrap();
        }
    }
    // The footers are known: the rows cannot be read.
    assert_is(&store, &model);
    failing.store(true, Ordering::Relaxed);
    let found = rows_of(&store, everything());
    assert_eq!(found.missing.len(), 2, "{:?}", found.missing);
    assert!(found.missing.iter().all(|words| words.contains("Input/output error")), "{:?}", found.missing);
    let error = store.compact().await.unwrap_err();
    assert!(matches!(error, StoreError::File(_)), "{error}");
    assert_eq!(store.health().status, Status::Degraded);
    assert!(store.health().reason.contains("small files stay"), "{}", store.health().reason);
    failing.store(false, Ordering::Relaxed);
    assert_eq!(store.stats().quarantined, 0);
    assert_is(&store, &model);
    store.compact().await.unwrap();
    assert_is(&store, &model);
    assert_eq!(store.health().status, Status::Healthy);
}
