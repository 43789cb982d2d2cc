//! The power goes between any two steps: every acknowledged row is there, once.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpuvitals_rig::waiting::{received, retried};

use crate::support::{
    HOUR, Model, SECOND, assert_is, assert_steps, batch, copy, grid, open_asking, quiet, wait_for,
};
use gpuvitals_core::ports::SinkError;
use gpuvitals_store::{FileStep, Store, StoreConfig};
use tempfile::TempDir;

/// The steps of a file that comes, and of the list that names it.
const WRITING: [FileStep; 5] =
    [FileStep::Create, FileStep::Write, FileStep::Sync, FileStep::Rename, FileStep::Switch];

/// Copies of the directory as it was before each step.
#[derive(Clone, Default)]
struct Moments(Arc<Mutex<Vec<(FileStep, String, TempDir)>>>);

impl Moments {
    fn watch(&self, config: StoreConfig) -> Store {
        let (moments, dir) = (self.clone(), config.dir.clone());
        let watching = move |step, path: &Path| {
            let kept = tempfile::tempdir().unwrap();
            // A file may go while the directory is read.
            let _is_whole = copy(&dir, kept.path());
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            moments.0.lock().unwrap().push((step, name, kept));
            Ok(())
        };
        open_asking(config, watching).0
    }

    fn all(&self) -> Vec<(FileStep, String, TempDir)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Opens the store as it was before each step: all rows are there, and no table file was removed but merged ones.
fn check(moments: &Moments, model: &Model, config: impl Fn(&Path) -> StoreConfig) -> Vec<FileStep> {
    let mut steps = Vec::new();
    for (step, name, dir) in moments.all() {
        eprintln!("power goes before {step:?} of {name}");
        // Twice: recovery itself must leave a whole store.
        for _ in 0..2 {
            let (store, found) = Store::open(config(dir.path())).unwrap();
            assert_eq!(found.damage, Vec::<String>::new());
            assert_is(&store, model);
            assert_steps(&store, model);
        }
        steps.push(step);
    }
    steps
}

#[tokio::test]
async fn between_any_two_steps_of_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let moments = Moments::default();
    let store = moments.watch(quiet(dir.path()));
    let mut model = Model::default();
    assert_eq!(check(&moments, &model, quiet), [FileStep::Create, FileStep::Sync, FileStep::Switch]);
    for flush in 0..3 {
        // Two hours, and rows that were flushed before come again.
        let rows = grid(4, HOUR - 5 * SECOND, flush * 5..flush * 5 + 10);
        store.append(rows.chunks(7).map(batch).collect()).await.unwrap();
        model.add(&rows);
        store.flush().await.unwrap();
        let steps = check(&moments, &model, quiet);
        for step in WRITING.iter().chain(&[FileStep::Truncate]) {
            assert!(steps.contains(step), "{step:?} was not taken");
        }
    }
}

/// Opens the store as it was between any two steps of a merge of four files, from as many hours.
async fn between_steps_of_a_merge(hours: i64, config: impl Fn(&Path) -> StoreConfig, name: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    for flush in 0..4 {
        let rows = grid(3, HOUR + flush % hours * 3_600 * SECOND, flush * 5..flush * 5 + 10);
        store.append(vec![batch(&rows)]).await.unwrap();
        model.add(&rows);
        store.flush().await.unwrap();
    }
    store.close().await.unwrap();
    let moments = Moments::default();
    let store = moments.watch(StoreConfig { merge: true, ..config(dir.path()) });
    wait_for(&store, |store| store.stats().merges == 1).await;
    assert_is(&store, &model);
    store.close().await.unwrap();
    assert_eq!((store.stats().merged.files, store.stats().flushed.files), (1, 0));
    drop(store);
    let steps = check(&moments, &model, quiet);
    assert!(steps.len() > 5, "{steps:?}");
    let day = std::fs::read_dir(dir.path().join("raw/gpu_events/2026-11-20")).unwrap();
    let left: Vec<_> = day.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert!(matches!(left.as_slice(), [only] if only.contains(name)), "{left:?}");
}

#[tokio::test]
async fn between_any_two_steps_of_a_merge() {
    between_steps_of_a_merge(1, |dir| StoreConfig { merge_files: 2, ..quiet(dir) }, "h-L1-").await;
    between_steps_of_a_merge(2, |dir| StoreConfig { merge_after: Duration::ZERO, ..quiet(dir) }, "day-L2-")
        .await;
}

#[tokio::test]
async fn a_step_that_fails_loses_nothing_and_is_tried_again() {
    for failing in WRITING {
        let dir = tempfile::tempdir().unwrap();
        let full = Arc::new(Mutex::new(false));
        let disk = Arc::clone(&full);
        let (store, _) = open_asking(quiet(dir.path()), move |step, _| {
            if step == failing && *disk.lock().unwrap() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(())
        });
        *full.lock().unwrap() = true;
        let rows = grid(3, HOUR, 0..10);
        let mut model = Model::default();
        model.add(&rows);
        store.append(vec![batch(&rows)]).await.unwrap();
        let error = store.flush().await.unwrap_err();
        assert!(matches!(error, gpuvitals_store::StoreError::Unflushed(_)), "{error}");
        let health = store.health();
        assert_eq!(health.status, gpuvitals_core::Status::Degraded);
        assert!(health.reason.contains("rows stay in the log"), "{}", health.reason);
        assert_is(&store, &model);
        // More rows while nothing can be written.
        let more = grid(3, HOUR, 10..20);
        store.append(vec![batch(&more)]).await.unwrap();
        model.add(&more);
        assert_is(&store, &model);
        *full.lock().unwrap() = false;
        wait_for(&store, |store| store.stats().flushes > 0).await;
        store.flush().await.unwrap();
        assert_eq!(store.health().status, gpuvitals_core::Status::Healthy);
        assert_eq!(store.stats().tail_rows, 0);
        assert_is(&store, &model);
        drop(store);
        let (store, found) = Store::open(quiet(dir.path())).unwrap();
        assert_eq!((found.damage, found.removed, found.unlisted), (Vec::new(), Vec::new(), Vec::new()));
        assert_is(&store, &model);
    }
}

#[tokio::test]
async fn memory_full_of_rows_that_cannot_be_written_refuses_more_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let full = Arc::new(Mutex::new(false));
    let disk = Arc::clone(&full);
    let config = StoreConfig { flush_bytes: 16 << 10, ..quiet(dir.path()) };
    let (store, _) = open_asking(config, move |step, _| {
        if step == FileStep::Create && *disk.lock().unwrap() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    });
    *full.lock().unwrap() = true;
    let mut model = Model::default();
    let mut refused = None;
    for second in 0..10_000 {
        let rows = grid(10, HOUR, second..second + 1);
        match store.append(vec![batch(&rows)]).await {
            Ok(_) => model.add(&rows),
            Err(error) => {
                refused = Some((error, rows));
                break;
            }
        }
    }
    let (error, rows) = refused.unwrap();
    let error = SinkError::from(error);
    assert!(matches!(error, SinkError::Busy(_)), "{error}");
    assert!(error.to_string().contains("memory is full"), "{error}");
    assert_is(&store, &model);
    *full.lock().unwrap() = false;
    wait_for(&store, |store| store.stats().flushes > 0).await;
    store.append(vec![batch(&rows)]).await.unwrap();
    model.add(&rows);
    assert_is(&store, &model);
}

#[tokio::test]
async fn a_merge_that_ends_while_the_store_closes_leaves_no_unlisted_table() {
    let dir = tempfile::tempdir().unwrap();
    let (reached, merging) = std::sync::mpsc::sync_channel(1);
    let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
    let (released, raw) = (Mutex::new(released), dir.path().join("raw"));
    let config = StoreConfig { merge: true, merge_files: 2, ..quiet(dir.path()) };
    let (store, _) = open_asking(config, move |step, path| {
        let is_merged = |path: &Path| path.to_string_lossy().contains("-L1-");
        if step == FileStep::Rename && path.starts_with(&raw) && is_merged(path) {
            reached.send(()).unwrap();
            received("the end of the test", &released.lock().unwrap());
        }
        Ok(())
    });
    let mut model = Model::default();
    for flush in 0..2 {
        let rows = grid(3, HOUR, flush * 10..flush * 10 + 10);
        store.append(vec![batch(&rows)]).await.unwrap();
        model.add(&rows);
        store.flush().await.unwrap();
    }
    received("a merge", &merging);
    let closing = tokio::spawn({
        let store = store.clone();
        async move { store.close().await }
    });
    // Once a flush is refused, the thread that would list the merge has been asked to end.
    retried("a flush that is refused", async || store.flush().await.err()).await;
    release.send(()).unwrap();
    closing.await.unwrap().unwrap();
    drop(store);
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!((found.unlisted, found.damage, found.files), (Vec::new(), Vec::new(), 1));
    assert_is(&store, &model);
}
