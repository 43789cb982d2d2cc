//! One file of a store is removed, emptied, cut or replaced by an older copy: nothing else is lost for it,
//! and the store names the remedy.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::support::{
    HOUR, Model, SECOND, batch, copy, everything, grid, model_of, open_asking, quiet, rows_of, wait_for,
};
use gpuvitals_core::Status;
use gpuvitals_core::history::Part;
use gpuvitals_store::{FileStep, Recovered, Store, StoreConfig, StoreError, repair};
use tempfile::TempDir;

/// Two moments of a store, and the rows acknowledged at the second one.
struct History {
    older: TempDir,
    newer: TempDir,
    model: Model,
}

fn small_segments(dir: &Path) -> StoreConfig {
    StoreConfig { segment_bytes: 4 << 10, ..quiet(dir) }
}

/// Every kind of file: merged and flushed tables, tables that a merge has just replaced, lists and latest values of
/// before and after, several segments of the log, rows in the log alone. With `merge` the newer moment is right after a
/// merge was listed; without it the store was killed later.
async fn history(merge: bool) -> History {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let (store, _) = Store::open(small_segments(dir.path())).unwrap();
    let add = async |store: &Store, model: &mut Model, seconds: std::ops::Range<i64>| {
        for second in seconds {
            // Every other row again, with other values.
            let mut rows = grid(3, HOUR + second / 2 * SECOND, second..second + 1);
            rows.extend(grid(1, HOUR + 3_600 * SECOND, second..second + 1));
            store.append(vec![batch(&rows)]).await.unwrap();
            model.add(&rows);
        }
    };
    for flush in 0..3 {
        add(&store, &mut model, flush * 8..flush * 8 + 8).await;
        store.flush().await.unwrap();
    }
    add(&store, &mut model, 24..26).await;
    drop(store);
    let older = tempfile::tempdir().unwrap();
    assert!(copy(dir.path(), older.path()));
    let listed = Arc::new(Mutex::new(None));
    let (kept, path) = (Arc::clone(&listed), dir.path().to_owned());
    let config = StoreConfig { merge: true, merge_files: 3, ..small_segments(dir.path()) };
    let (store, _) = open_asking(config, move |step, file| {
        if step == FileStep::Remove && file.file_name().unwrap().to_string_lossy().starts_with("MANIFEST-") {
            let mut kept = kept.lock().unwrap();
            let moment = kept.get_or_insert_with(|| tempfile::tempdir().unwrap());
            let _is_whole = moment.path().join("LOCK").exists() || copy(&path, moment.path());
        }
        Ok(())
    });
    wait_for(&store, |store| store.stats().merges == 2).await;
    let newer = if merge {
        drop(store);
        listed.lock().unwrap().take().unwrap()
    } else {
        add(&store, &mut model, 26..32).await;
        store.flush().await.unwrap();
        add(&store, &mut model, 32..40).await;
        drop(store);
        dir
    };
    History { older, newer, model }
}

/// Files of a store by their names in it; its lock is none.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().unwrap() != "LOCK" {
                files.push(path.strip_prefix(dir).unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Removed,
    Emptied,
    Cut,
    Older,
}

/// Applies the fault to a file; false: there is no older copy that differs.
fn harm(dir: &Path, name: &Path, fault: Fault, older: &Path) -> bool {
    let path = dir.join(name);
    let bytes = std::fs::read(&path).unwrap();
    match fault {
        Fault::Removed => std::fs::remove_file(&path).unwrap(),
        Fault::Emptied => std::fs::write(&path, b"").unwrap(),
        Fault::Cut => std::fs::write(&path, bytes.get(..bytes.len() / 2).unwrap()).unwrap(),
        Fault::Older => {
            // A list has another name at each moment: the newest one gives way to the newest one of before.
            let kind = name.to_string_lossy().split_once('-').map(|(kind, _)| kind.to_owned());
            let before = match kind.filter(|kind| ["MANIFEST", "fleet"].contains(&kind.as_str())) {
                Some(kind) => {
                    files(older).into_iter().rfind(|file| file.to_string_lossy().starts_with(&kind))
                }
                None => Some(name.to_owned()),
            };
            let Some(copy) = before.and_then(|name| Some((std::fs::read(older.join(&name)).ok()?, name)))
            else {
                return false;
            };
            if copy.0 == bytes {
                return false;
            }
            std::fs::remove_file(&path).unwrap();
            std::fs::write(dir.join(copy.1), copy.0).unwrap();
        }
    }
    true
}

/// Opens a store, and returns the rows it shows.
fn open(dir: &Path) -> Result<(Model, Recovered, gpuvitals_core::Health), StoreError> {
    let (store, found) = Store::open(small_segments(dir))?;
    let Part { answer: rows, missing } = rows_of(&store, everything());
    let lost = found.damage.iter().filter(|text| text.contains(" rows is ")).count();
    assert_eq!(missing.len(), lost, "answers name what the opening names: {missing:?} {found:?}");
    let shown = rows.batch.as_ref().map(model_of).unwrap_or_default();
    assert_eq!(rows.total, Some(shown.0.len()), "a key came twice");
    Ok((shown, found, store.health()))
}

/// All rows that the disk still has: a manifest is rebuilt, and the log is read from its beginning.
fn salvaged(dir: &Path) -> Model {
    repair(dir, |_| ()).unwrap();
    open(dir).unwrap().0
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    files(dir).into_iter().filter(|name| name.starts_with("wal")).collect()
}

#[tokio::test]
async fn one_file_of_a_store_is_harmed() {
    for merge in [false, true] {
        let history = history(merge).await;
        let (newer, model) = (history.newer.path(), &history.model);
        let last = segments(newer).pop().unwrap();
        let mut cases = 0;
        for name in files(newer) {
            for fault in [Fault::Removed, Fault::Emptied, Fault::Cut, Fault::Older] {
                let case = format!("{fault:?} {} merge {merge}", name.display());
                let (dir, twin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
                copy(newer, dir.path());
                if !harm(dir.path(), &name, fault, history.older.path()) {
                    continue;
                }
                cases += 1;
                copy(dir.path(), twin.path());
                let mut left = salvaged(twin.path());
                let has_rows = name.extension().is_some();
                assert!(has_rows || left == *model, "{case}: rows are lost without a file of rows");
                for (key, values) in &left.0 {
                    assert!(model.0.contains_key(key) && !values.is_empty(), "{case}: {key:?}");
                }
                match open(dir.path()) {
                    Ok((shown, found, health)) => {
                        // Records at the end of the log leave no trace elsewhere until they are in tables.
                        let is_silent = name == last && fault != Fault::Emptied;
                        let is_told = found
                            .damage
                            .iter()
                            .any(|text| text.contains("gpuvitals store repair") || text.contains("log "));
                        assert!(shown == *model || is_told || is_silent, "{case}: {found:?}");
                        assert_eq!(health.status == Status::Healthy, found.damage.is_empty(), "{case}");
                    }
                    Err(error @ StoreError::NoManifest { .. }) => {
                        assert!(error.to_string().contains("no manifest that verifies"), "{case}: {error}");
                    }
                    Err(error) => panic!("{case}: {error}"),
                }
                // The store continues, and nothing that was set aside is overwritten.
                let fresh = grid(1, HOUR + 7_200 * SECOND, 0..3);
                if let Ok((store, _)) = Store::open(small_segments(dir.path())) {
                    store.append(vec![batch(&fresh)]).await.unwrap();
                    store.close().await.unwrap();
                    left.add(&fresh);
                }
                let found = salvaged(dir.path());
                let lost: Vec<_> = left.0.iter().filter(|(key, row)| found.0.get(key) != Some(row)).collect();
                assert_eq!(
                    (lost.first(), found.0.len()),
                    (None, left.0.len()),
                    "{case}: the opening cost rows"
                );
            }
        }
        assert!(cases > 20, "{cases}");
    }
}
