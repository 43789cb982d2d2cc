//! A copy of a store, made as in `docs/store.md`, has every row that was acknowledged before it was begun.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::support::{HOUR, Model, SECOND, assert_is, batch, contents, copy, grid, quiet, wait_for};
use gpuvitals_core::Table;
use gpuvitals_core::history::RowsQuery;
use gpuvitals_rig::program::Finished as _;
use gpuvitals_store::{Store, StoreConfig, StoreError, StoreView, check, contents as held, repair};
use tempfile::TempDir;

/// Copies a store that is open: the log, then the tables; again if a file went meanwhile.
fn back_up(dir: &Path) -> TempDir {
    loop {
        let backup = tempfile::tempdir().unwrap();
        let parts = ["wal", "raw"];
        if parts.iter().all(|part| copy(&dir.join(part), &backup.path().join(part))) {
            return backup;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_an_open_store_has_every_row_acknowledged_before_it() {
    let rounds = if std::env::var_os("GPUVITALS_TEST_LONG").is_some() { 40 } else { 5 };
    let dir = tempfile::tempdir().unwrap();
    // Flushes, merges and segments of the log follow each other closely.
    let config = StoreConfig {
        segment_bytes: 8 << 10,
        flush_rows: 60,
        merge: true,
        merge_files: 2,
        ..quiet(dir.path())
    };
    let (store, _) = Store::open(config).unwrap();
    let acknowledged = Arc::new(Mutex::new(Model::default()));
    let ended = Arc::new(tokio::sync::Notify::new());
    let writer = tokio::spawn({
        let (store, acknowledged, ended) = (store.clone(), Arc::clone(&acknowledged), Arc::clone(&ended));
        async move {
            let mut second = 0;
            loop {
                let rows = grid(3, HOUR + second % 3 * 3_600 * SECOND, second..second + 1);
                second += 1;
                tokio::select! {
                    biased;
                    () = ended.notified() => break,
                    appended = store.append(vec![batch(&rows)]) => drop(appended.unwrap()),
                }
                acknowledged.lock().unwrap().add(&rows);
            }
        }
    });
    for round in 0..rounds {
        let merges = store.stats().merges;
        wait_for(&store, |store| store.stats().merges >= merges + 2).await;
        let before = acknowledged.lock().unwrap().clone();
        let backup = back_up(dir.path());
        repair(backup.path(), |_| ()).unwrap();
        let (copied, found) = Store::open(quiet(backup.path())).unwrap();
        assert_eq!(found.damage, Vec::<String>::new());
        let rows = contents(&copied);
        for (key, values) in &before.0 {
            assert_eq!(rows.0.get(key), Some(values), "round {round}: {key:?}");
        }
    }
    ended.notify_one();
    writer.await.unwrap();
}

/// A closed store with rows in tables, merged and not.
async fn closed() -> (TempDir, Model) {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let (store, _) = Store::open(StoreConfig { merge: true, merge_files: 2, ..quiet(dir.path()) }).unwrap();
    for hour in 0..3 {
        let rows = grid(3, HOUR + hour / 2 * 3_600 * SECOND, hour * 10..hour * 10 + 10);
        store.append(vec![batch(&rows)]).await.unwrap();
        model.add(&rows);
        store.flush().await.unwrap();
    }
    store.close().await.unwrap();
    (dir, model)
}

#[tokio::test]
async fn a_copy_of_a_closed_store_is_that_store() {
    let (dir, model) = closed().await;
    let backup = tempfile::tempdir().unwrap();
    assert!(copy(dir.path(), backup.path()));
    let (store, found) = Store::open(quiet(backup.path())).unwrap();
    assert_eq!((found.damage, found.unlisted), (Vec::new(), Vec::new()));
    assert_is(&store, &model);
}

#[tokio::test]
async fn a_repair_lists_whole_files_wherever_they_are_and_sets_damaged_ones_aside() {
    let (dir, model) = closed().await;
    let whole = repair(dir.path(), |_| ()).unwrap();
    assert_eq!((whole.brought_back.len(), whole.set_aside.len()), (0, 0));
    assert!(whole.files >= 2 && whole.manifest.exists(), "{whole:?}");
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!((found.damage, found.removed, found.unlisted), (Vec::new(), Vec::new(), Vec::new()));
    assert_is(&store, &model);

    // Its directory belongs to that store.
    assert!(matches!(repair(dir.path(), |_| ()), Err(StoreError::Locked(_))));
    drop(store);

    // One file with a changed value, another set aside although it is whole.
    let day = dir.path().join("raw/gpu_events/2026-11-20");
    let mut tables: Vec<_> = std::fs::read_dir(&day).unwrap().map(|entry| entry.unwrap().path()).collect();
    tables.sort();
    let name = |at: usize| tables[at].file_name().unwrap().to_string_lossy().into_owned();
    let mut bytes = std::fs::read(&tables[0]).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&tables[0], bytes).unwrap();
    let aside =
        |at: usize| dir.path().join("quarantine").join(format!("raw+gpu_events+2026-11-20+{}", name(at)));
    std::fs::rename(&tables[1], aside(1)).unwrap();
    let mut steps = Vec::new();
    let repaired = repair(dir.path(), |progress| steps.push(progress)).unwrap();
    assert_eq!(repaired.files, whole.files - 1);
    assert_eq!(repaired.brought_back, [tables[1].clone()]);
    assert_eq!(repaired.set_aside.len(), 1);
    assert_eq!(repaired.set_aside[0].path, aside(0));
    assert!(repaired.set_aside[0].reason.contains("checksum of a block"), "{repaired:?}");
    let last = steps.last().unwrap();
    assert_eq!((last.files, last.bytes), (last.files_total, last.bytes_total));
    assert_eq!((steps[0].files, steps[0].bytes, last.files_total), (0, 0, whole.files));
}

#[tokio::test]
async fn a_repair_lists_no_table_without_rows() {
    let (dir, model) = closed().await;
    let table = dir.path().join("raw/gpu_events/2026-11-20/10h-L0-99.parquet");
    let schema = Arc::new(arrow_schema::Schema::empty());
    let file = std::fs::File::create(&table).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, schema, None).unwrap();
    for key in ["gpuvitals.row_groups", "gpuvitals.blocks"] {
        let none = parquet::file::metadata::KeyValue::new(key.to_owned(), "[]".to_owned());
        writer.append_key_value_metadata(none);
    }
    writer.close().unwrap();
    let repaired = repair(dir.path(), |_| ()).unwrap();
    let [aside] = repaired.set_aside.as_slice() else { panic!("{repaired:?}") };
    assert!(aside.path.ends_with("quarantine/raw+gpu_events+2026-11-20+10h-L0-99.parquet"), "{aside:?}");
    assert_eq!(aside.reason, "it has no rows");
    assert_is(&Store::open(quiet(dir.path())).unwrap().0, &model);
}

#[test]
fn a_repair_makes_no_store_where_none_is() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(repair(dir.path(), |_| ()), Err(StoreError::NoStore(_))));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    for name in ["raw", "wal"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    assert!(matches!(repair(dir.path(), |_| ()), Err(StoreError::NoStore(_))));
    assert!(matches!(repair(&dir.path().join("nowhere"), |_| ()), Err(StoreError::Io { .. })));
    assert!(!dir.path().join("nowhere").exists());
}

/// The rows that a view has.
fn rows_of(view: &StoreView) -> usize {
    let mut rows = view.all(RowsQuery::of(Table::GpuEvents, 0)).unwrap();
    assert_eq!(rows.missing().count(), 0);
    std::iter::from_fn(|| rows.next_batch().unwrap()).map(|batch| batch.rows()).sum()
}

#[tokio::test]
async fn a_copy_of_an_open_store_is_read_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    store.append(vec![batch(&grid(3, HOUR, 0..10))]).await.unwrap();
    store.flush().await.unwrap();
    store.append(vec![batch(&grid(3, HOUR, 10..20))]).await.unwrap();
    let backup = back_up(dir.path());
    let names = || {
        let entries = std::fs::read_dir(backup.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = names();
    let found = held(backup.path()).unwrap();
    assert_eq!((found.manifest, found.lost.len()), (None, 0));
    assert_eq!(found.tables.iter().map(|table| table.size.rows).sum::<u64>(), 30);
    let checked = check(backup.path(), |_| ()).unwrap();
    assert_eq!((checked.whole.files, checked.faults), (found.tables[0].size.files, Vec::new()));
    assert_eq!(rows_of(&StoreView::open(backup.path()).unwrap()), 60);
    assert_eq!(names(), before, "nothing is made there");

    let table = std::fs::read_dir(backup.path().join("raw/gpu_events/2026-11-20")).unwrap().next().unwrap();
    std::fs::write(table.unwrap().path(), b"PAR1 and no more").unwrap();
    assert_eq!(check(backup.path(), |_| ()).unwrap().faults.len(), 1);
    assert_eq!(held(backup.path()).unwrap().lost.len(), 1);
    let view = StoreView::open(backup.path()).unwrap();
    let mut rows = view.all(RowsQuery::of(Table::GpuEvents, 0)).unwrap();
    while rows.next_batch().unwrap().is_some() {}
    assert_eq!(rows.missing().count(), 1);
}

#[tokio::test]
async fn a_repair_leaves_a_store_of_another_format_as_it_is() {
    let (dir, _) = closed().await;
    let json = r#"{"format":999}"#;
    let list = dir.path().join("MANIFEST-0000009999");
    std::fs::write(&list, format!("{json}\n{:08x}\n", crc32c::crc32c(json.as_bytes()))).unwrap();
    let error = repair(dir.path(), |_| ()).unwrap_err();
    assert!(matches!(error, StoreError::Format { found: 999, .. }), "{error:?}");
    assert!(list.exists());
}

/// Puts a named pipe, which nobody writes into, in the place of a file.
fn pipe(path: &Path) {
    std::fs::remove_file(path).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(path).finished().unwrap().status.success());
}

/// What is done in time; a panic after half a minute.
fn in_time<T: Send + 'static>(what: &str, job: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || done.send(job()));
    outcome.recv_timeout(std::time::Duration::from_secs(30)).unwrap_or_else(|_| panic!("{what} waits"))
}

fn newest(dir: &Path, is_it: fn(&str) -> bool) -> PathBuf {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.file_name().unwrap().to_str().is_some_and(is_it)).max().unwrap()
}

#[tokio::test]
async fn a_pipe_in_the_place_of_a_file_makes_nobody_wait() {
    let list: fn(&Path) -> PathBuf = |dir| newest(dir, |name| name.starts_with("MANIFEST-"));
    let latest: fn(&Path) -> PathBuf = |dir| newest(dir, |name| name.starts_with("fleet-"));
    let table: fn(&Path) -> PathBuf = |dir| newest(&dir.join("raw/gpu_events/2026-11-20"), |_| true);
    for (what, file) in [("list", list), ("table", table), ("latest values", latest)] {
        let copied = || async {
            let (dir, _) = closed().await;
            pipe(&file(dir.path()));
            dir
        };
        let dir = copied().await;
        let path = dir.path().to_owned();
        let checked = in_time("check", move || (held(&path).map(drop), check(&path, |_| ())));
        match what {
            "table" => assert_eq!(checked.1.unwrap().faults.len(), 1, "{what}"),
            _ => assert!(checked.0.is_ok() || what == "list", "{what}: {:?}", checked.0),
        }
        let path = dir.path().to_owned();
        let repaired = in_time("repair", move || repair(&path, |_| ())).unwrap();
        assert_eq!(repaired.set_aside.len(), usize::from(what == "table"), "{what}: {repaired:?}");
        let path = copied().await;
        let root = path.path().to_owned();
        let runtime = tokio::runtime::Handle::current();
        let opened = in_time("opening", move || {
            let _inside = runtime.enter();
            Store::open(quiet(&root)).map(|(_, found)| found.damage)
        });
        let told = opened.unwrap_or_else(|error| vec![error.to_string()]);
        // The log still has the rows of the table.
        assert!(!told.is_empty() || what == "table", "{what}");
    }
}
