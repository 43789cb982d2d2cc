//! The disk under the log is full, or fails.

use std::io;

use crate::support::{HOUR, Model, assert_is, grid, ingest, quiet};
use gpuvitals_core::Status;
use gpuvitals_log::fault::{Fault, FaultDisk, Op};
use gpuvitals_store::{AppendError, Machine, Store, StoreConfig};

#[tokio::test]
async fn a_full_disk_acknowledges_nothing_and_recovers_when_space_returns() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new();
    let config = StoreConfig { segment_bytes: 16 << 10, ..quiet(dir.path()) };
    let (store, _) = Store::open_on(config, Machine::on_disk(disk.clone())).unwrap();
    let mut model = Model::default();
    let rows = grid(4, HOUR, 0..5);
    store.append(vec![ingest(&rows)]).await.unwrap();
    model.add(&rows);

    disk.set_capacity(Some(0));
    // The log uses up the space it has already.
    let mut second = 5;
    let more = loop {
        let rows = grid(20, HOUR, second..second + 10);
        second += 10;
        match store.append(vec![ingest(&rows)]).await {
            Ok(_) => model.add(&rows),
            Err(_) => break rows,
        }
    };
    for _ in 0..3 {
        let error = store.append(vec![ingest(&more[..8]), ingest(&more[8..])]).await.unwrap_err();
        assert!(matches!(error, AppendError::Log(_)) && error.is_retryable(), "{error}");
        assert_is(&store, &model);
        assert_eq!(store.health().status, Status::Degraded);
        assert!(store.health().reason.contains("rows are not taken"), "{}", store.health().reason);
    }
    disk.set_capacity(None);
    store.append(vec![ingest(&more)]).await.unwrap();
    model.add(&more);
    assert_is(&store, &model);
    assert_eq!(store.health().status, Status::Healthy);
    assert_eq!(store.stats().refused_batches, 7);

    drop(store);
    let (store, found) = Store::open_on(quiet(dir.path()), Machine::on_disk(disk)).unwrap();
    assert_eq!(found.damage, Vec::<String>::new());
    assert_is(&store, &model);
}

#[tokio::test]
async fn a_log_that_cannot_sync_is_opened_anew_by_a_later_append() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new();
    let (store, _) = Store::open_on(quiet(dir.path()), Machine::on_disk(disk.clone())).unwrap();
    let mut model = Model::default();
    let rows = grid(4, HOUR, 0..5);
    store.append(vec![ingest(&rows)]).await.unwrap();
    model.add(&rows);

    disk.fail_call(Some(Op::SyncData), 0, Fault::Error(io::ErrorKind::Other));
    let more = grid(4, HOUR, 5..10);
    let error = store.append(vec![ingest(&more)]).await.unwrap_err();
    assert!(matches!(error, AppendError::Log(_)) && error.is_retryable(), "{error}");
    assert_eq!(store.health().status, Status::Degraded);
    store.append(vec![ingest(&more)]).await.unwrap();
    model.add(&more);
    assert_is(&store, &model);
    assert_eq!(store.health().status, Status::Healthy);

    // Power cut: what was acknowledged is there.
    for seed in 0..20 {
        let after = disk.crashed(seed);
        let copy = tempfile::tempdir().unwrap();
        let (store, found) = Store::open_on(quiet(copy.path()), Machine::on_disk(after)).unwrap();
        assert_eq!(found.damage, Vec::<String>::new());
        assert_is(&store, &model);
    }
}

#[tokio::test]
async fn a_log_that_does_not_open_is_not_tried_at_every_append() {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new();
    let (store, _) = Store::open_on(quiet(dir.path()), Machine::on_disk(disk.clone())).unwrap();
    store.append(vec![ingest(&grid(1, HOUR, 0..1))]).await.unwrap();
    disk.fail_all(Op::SyncData, Some(io::ErrorKind::Other));
    disk.fail_all(Op::List, Some(io::ErrorKind::Other));
    let rows = grid(1, HOUR, 1..2);
    store.append(vec![ingest(&rows)]).await.unwrap_err();
    store.append(vec![ingest(&rows)]).await.unwrap_err();
    let lists = disk.calls(Op::List);
    store.append(vec![ingest(&rows)]).await.unwrap_err();
    assert_eq!(disk.calls(Op::List), lists, "the backoff was not kept");
    assert!(store.health().reason.contains("does not open"), "{}", store.health().reason);
}
