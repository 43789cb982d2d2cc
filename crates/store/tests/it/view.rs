//! A store read beside its writer.

use std::path::Path;
use std::time::Duration;

use gpuvitals_core::history::{History, RowsQuery};
use gpuvitals_core::{Status, Table};
use gpuvitals_rig::waiting::within;
use gpuvitals_store::{Store, StoreConfig, StoreError, StoreView};

use crate::support::{
    HOUR, Model, SECOND, assert_is, assert_steps, batch, contents, everything, grid, model_of, quiet, row,
    rows_of, wait_for,
};

/// Hours are merged at once, with rollups; days are not.
fn merging(dir: &Path) -> StoreConfig {
    StoreConfig { merge: true, merge_after: Duration::ZERO, day_bytes: 0, ..quiet(dir) }
}

/// A store with a merged hour, a file of another one, and rows that only the log has.
async fn filled(dir: &Path, model: &mut Model) -> Store {
    let (store, _) = Store::open(merging(dir)).unwrap();
    let hours = [grid(3, HOUR, 0..40), grid(3, HOUR, 40..80), grid(3, HOUR, 3_600..3_660)];
    for rows in &hours {
        model.add(rows);
        store.append(vec![batch(rows)]).await.unwrap();
        store.flush().await.unwrap();
    }
    wait_for(&store, |store| (store.stats().flushed.files, store.stats().merged.files) == (0, 2)).await;
    // The last of a GPU, a value that comes late, and a column that nobody knows.
    let rest = [
        row("GPU-0001", HOUR + 3_700 * SECOND, &[("power_w", 7.0), ("fan_hz", 3.0)]),
        row("GPU-0002", HOUR + 5 * SECOND, &[("memory_total_mb", 80_000.0)]),
    ];
    model.add(&rest);
    store.append(vec![batch(&rest)]).await.unwrap();
    store
}

#[tokio::test]
async fn any_number_of_views_answer_as_the_writer_does_and_stay_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let store = filled(dir.path(), &mut model).await;
    let views = [(); 3].map(|()| StoreView::open(dir.path()).unwrap());
    for view in &views {
        assert_is(view, &model);
        assert_steps(view, &model);
        assert_eq!((view.health().status, view.version()), (Status::Healthy, 0));
        assert!(view.changes().next().await.is_none());
    }
    // More rows, and the files that the views name are merged away.
    let more = [row("GPU-0000", HOUR + 20 * SECOND, &[("memory_total_mb", 1.0)])];
    store.append(vec![batch(&more)]).await.unwrap();
    store.flush().await.unwrap();
    store.compact().await.unwrap();
    for view in &views {
        assert_is(view, &model);
        assert_steps(view, &model);
    }
    model.add(&more);
    let view = StoreView::open(dir.path()).unwrap();
    assert_is(&view, &model);
    // Batch by batch, too.
    let mut all = Model::default();
    let mut rows = view.all(RowsQuery::of(Table::GpuEvents, 0)).unwrap();
    while let Some(batch) = rows.next_batch().unwrap() {
        all.0.extend(model_of(&batch).0);
    }
    assert_eq!((all, rows.missing().count()), (model, 0));
}

#[tokio::test]
async fn a_view_lacks_nothing_that_its_writer_merges_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(StoreConfig { merge_files: 2, ..merging(dir.path()) }).unwrap();
    let path = dir.path().to_owned();
    let (done, is_done) = std::sync::mpsc::sync_channel::<()>(0);
    let opener = std::thread::spawn(move || {
        let mut rows = Vec::new();
        while is_done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let view = StoreView::open(&path).unwrap();
            let mut all = view.all(RowsQuery::of(Table::GpuEvents, 0)).unwrap();
            rows.push(0);
            while let Some(batch) = all.next_batch().unwrap() {
                *rows.last_mut().unwrap() += batch.rows();
            }
            assert_eq!(all.missing().collect::<Vec<_>>(), [""; 0]);
        }
        rows
    });
    for second in 0..60 {
        store
            .append(vec![batch(&[row("GPU-0000", HOUR + second * SECOND, &[("power_w", 1.0)])])])
            .await
            .unwrap();
        store.flush().await.unwrap();
    }
    drop(done);
    let rows = within("the last view", move || opener.join().unwrap());
    assert!(rows.is_sorted());
}

#[tokio::test]
async fn a_view_names_what_it_lacks_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let store = filled(dir.path(), &mut model).await;
    let hour = dir.path().join("raw/gpu_events/2026-11-20");
    let file = std::fs::read_dir(&hour).unwrap().map(|file| file.unwrap().path()).min().unwrap();
    let whole = std::fs::read(&file).unwrap();
    let mut bytes = whole.clone();
    bytes[100] ^= 0x40;
    std::fs::write(&file, &bytes).unwrap();
    let view = StoreView::open(dir.path()).unwrap();
    let rows = rows_of(&view, everything());
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(rows.missing.iter().any(|words| words.contains(name)), "{:?}", rows.missing);
    let found = model_of(&rows.answer.batch.unwrap());
    assert_eq!(found.0.len(), 3 * 60 + 2, "the rest answers");
    assert_eq!(std::fs::read(&file).unwrap(), bytes);
    std::fs::write(&file, &whole).unwrap();
    assert_eq!(contents(&StoreView::open(dir.path()).unwrap()), model);
    drop(store);
    let nowhere = dir.path().join("nowhere");
    assert!(matches!(StoreView::open(&nowhere), Err(StoreError::Io { .. })));
    assert!(!nowhere.exists());
}
