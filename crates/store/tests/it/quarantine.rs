//! Damaged files are set aside; the rest is served, and the answer says what is missing.

use std::path::PathBuf;
use std::sync::Arc;

use crate::support::{
    HOUR, Model, SECOND, assert_is, batch, buckets_of, everything, grid, model_of, quiet, rows_of, wait_for,
};
use gpuvitals_core::history::{Aggregate, BucketQuery, History, RowsQuery, Selector};
use gpuvitals_core::{MetricId, Status, Table};
use gpuvitals_store::{Store, StoreError, repair};
use tempfile::TempDir;

/// A closed store with one file per hour, and the rows of each. Its log has let go of the first hour.
async fn two_hours() -> (TempDir, Vec<PathBuf>, [Model; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let mut models = [Model::default(), Model::default()];
    for (hour, model) in models.iter_mut().enumerate() {
        // Each opening begins a segment of the log.
        let (store, _) = Store::open(quiet(dir.path())).unwrap();
        let rows = grid(3, HOUR + hour as i64 * 3_600 * SECOND, 0..20);
        model.add(&rows);
        store.append(vec![batch(&rows)]).await.unwrap();
        store.close().await.unwrap();
    }
    let mut files: Vec<_> = std::fs::read_dir(dir.path().join("raw/gpu_events/2026-11-20"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert_eq!(files.len(), 2);
    (dir, files, models)
}

fn set_aside(dir: &TempDir) -> usize {
    std::fs::read_dir(dir.path().join("quarantine")).unwrap().count()
}

#[tokio::test]
async fn cut_off_or_gone_it_is_found_when_the_store_opens() {
    for cut in [Some(100), None] {
        let (dir, files, models) = two_hours().await;
        match cut {
            Some(len) => {
                std::fs::OpenOptions::new().write(true).open(&files[0]).unwrap().set_len(len).unwrap();
            }
            None => std::fs::remove_file(&files[0]).unwrap(),
        }
        let (store, found) = Store::open(quiet(dir.path())).unwrap();
        assert_eq!(found.damage.len(), 1, "{found:?}");
        assert_eq!(set_aside(&dir), usize::from(cut.is_some()));
        assert_eq!(store.health().status, Status::Degraded);
        let rows = rows_of(&store, everything());
        assert!(model_of(rows.answer.batch.as_ref().unwrap()) == models[1]);
    }
}

#[tokio::test]
async fn a_changed_footer_is_found_when_the_store_opens() {
    let (dir, files, models) = two_hours().await;
    let mut bytes = std::fs::read(&files[1]).unwrap();
    let at = bytes.len() - 60;
    bytes[at] ^= 4;
    std::fs::write(&files[1], bytes).unwrap();
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    // The log still has the rows of the last file, and gives them back: nothing is missing.
    assert_eq!((found.damage, set_aside(&dir)), (Vec::new(), 1));
    assert_eq!(store.health().status, Status::Healthy);
    let rows = rows_of(&store, everything());
    let mut model = models[0].clone();
    model.0.extend(models[1].0.clone());
    assert!(model_of(rows.answer.batch.as_ref().unwrap()) == model);
    store.close().await.unwrap();
    drop(store);
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!((found.damage, store.health().status), (Vec::new(), Status::Healthy));
    assert_is(&store, &model);
}

#[tokio::test]
async fn a_changed_value_is_found_by_the_query_that_reads_it() {
    let (dir, files, models) = two_hours().await;
    let mut bytes = std::fs::read(&files[0]).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&files[0], bytes).unwrap();
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!(found.damage, Vec::<String>::new());
    let rows = rows_of(&store, everything());
    assert_eq!(rows.missing.len(), 1, "{:?}", rows.missing);
    assert!(model_of(rows.answer.batch.as_ref().unwrap()) == models[1]);
    wait_for(&store, |store| store.stats().quarantined > 0 && store.stats().flushed.files == 1).await;
    assert_eq!((set_aside(&dir), store.stats().flushed.files), (1, 1));
    assert!(store.health().reason.contains("damaged"), "{}", store.health().reason);
    drop(store);
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!((found.damage.len(), found.files), (1, 1));
    assert!(found.damage[0].contains("is damaged (") && found.damage[0].contains("quarantine"), "{found:?}");
    assert!(store.health().reason.contains("is damaged ("), "{}", store.health().reason);
}

#[tokio::test]
async fn what_the_start_found_is_told_beside_what_is_found_later() {
    let (dir, files, _) = two_hours().await;
    std::fs::remove_file(&files[0]).unwrap();
    let mut bytes = std::fs::read(&files[1]).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&files[1], bytes).unwrap();
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!((found.damage.len(), found.files), (1, 1), "{found:?}");
    assert_eq!(rows_of(&store, everything()).missing.len(), 2);
    wait_for(&store, |store| store.stats().quarantined > 0 && store.stats().flushed.files == 0).await;
    let reason = store.health().reason;
    let told = ["is missing", "is damaged ("].map(|words| reason.contains(words));
    assert_eq!(told, [true; 2], "{reason}");
}

#[tokio::test]
async fn answers_name_the_file_that_they_lack_until_a_repair() {
    let (dir, files, models) = two_hours().await;
    let name = files[0].file_name().unwrap().to_str().unwrap();
    let mut bytes = std::fs::read(&files[0]).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&files[0], bytes).unwrap();
    for start in 0..2 {
        let (store, _) = Store::open(quiet(dir.path())).unwrap();
        drop(rows_of(&store, everything()));
        wait_for(&store, |store| store.stats().flushed.files == 1).await;
        let check = |query: RowsQuery, lacks: bool| {
            let missing = rows_of(&store, query.clone()).missing;
            assert_eq!(missing.len(), usize::from(lacks), "start {start}, {query:?}: {missing:?}");
            assert!(missing.iter().all(|words| words.contains(name)), "{missing:?}");
        };
        let page = |limit| RowsQuery::of(Table::GpuEvents, limit);
        let newest = |limit| RowsQuery { newest_first: true, ..page(limit) };
        let of = |gpu: &str, query| RowsQuery { gpus: vec![Arc::from(gpu)], ..query };
        check(everything(), true);
        check(page(1), true);
        // Its rows would come after the page, if the page is full; they would be in the total.
        check(newest(60), false);
        check(newest(61), true);
        check(RowsQuery { with_total: true, ..newest(1) }, true);
        check(RowsQuery { start_ns: Some(HOUR + 20 * SECOND), ..everything() }, false);
        check(RowsQuery { end_ns: Some(HOUR - 1), ..everything() }, false);
        check(of("GPU-zzz", everything()), false);
        check(RowsQuery::of(Table::SystemEvents, 1), false);
        let gpu = models[1].0.keys().next().unwrap().1.as_str();
        for _from_files_then_from_memory in 0..2 {
            check(of(gpu, newest(20)), false);
            check(of(gpu, newest(21)), true);
            check(of(gpu, page(1)), true);
        }
        for (end_ns, lacks) in [(HOUR - 1, 0), (HOUR, 1)] {
            let missing = buckets_of(&store, power(HOUR - 60 * SECOND, end_ns)).missing;
            assert_eq!(missing.len(), lacks, "{missing:?}");
        }
        store.close().await.unwrap();
    }
    repair(dir.path(), |_| ()).unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    assert_is(&store, &models[1]);
}

#[tokio::test]
async fn a_fleet_read_from_files_names_those_that_could_not_be_read_until_a_repair() {
    for with_checkpoint in [true, false] {
        let (dir, files, _) = two_hours().await;
        let name = files[0].file_name().unwrap().to_str().unwrap();
        std::fs::OpenOptions::new().write(true).open(&files[0]).unwrap().set_len(100).unwrap();
        for entry in std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()) {
            if !with_checkpoint && entry.file_name().unwrap().to_str().unwrap().starts_with("fleet-") {
                std::fs::write(&entry, "damaged").unwrap();
            }
        }
        for start in 0..3 {
            if start == 2 {
                repair(dir.path(), |_| ()).unwrap();
            }
            let (store, _) = Store::open(quiet(dir.path())).unwrap();
            let rows = grid(1, HOUR + 7_200 * SECOND, start..start + 1);
            store.append(vec![batch(&rows)]).await.unwrap();
            let missing = History::fleet(&store).await.unwrap().missing;
            let lacks = !with_checkpoint && start < 2;
            assert_eq!(missing.len(), usize::from(lacks), "{with_checkpoint} {start}: {missing:?}");
            assert!(missing.iter().all(|words| words.contains(name)), "{missing:?}");
            store.close().await.unwrap();
        }
    }
}

/// Mean power of all GPUs by the minute.
fn power(start_ns: i64, end_ns: i64) -> BucketQuery {
    BucketQuery {
        table: Table::GpuEvents,
        gpus: Vec::new(),
        selector: Selector::default(),
        metrics: vec![MetricId::of("power_w")],
        start_ns,
        end_ns,
        step_ns: 60 * SECOND,
        phase_ns: 0,
        aggregates: vec![Aggregate::Mean],
        group_by: Vec::new(),
    }
}

#[tokio::test]
async fn a_lost_file_is_named_at_every_start_until_it_is_back_or_a_repair() {
    for (cut, comes_back) in [(Some(100), true), (Some(100), false), (None, true), (None, false)] {
        let (dir, files, mut models) = two_hours().await;
        let bytes = std::fs::read(&files[0]).unwrap();
        match cut {
            Some(len) => std::fs::write(&files[0], &bytes[..len]).unwrap(),
            None => std::fs::remove_file(&files[0]).unwrap(),
        }
        let name = files[0].file_name().unwrap().to_string_lossy();
        for start in 0..3 {
            let (store, found) = Store::open(quiet(dir.path())).unwrap();
            let [damage] = found.damage.as_slice() else { panic!("start {start}: {found:?}") };
            for words in [name.as_ref(), "60 rows", "start again", "gpuvitals store repair"] {
                assert!(damage.contains(words), "start {start}: {damage}");
            }
            assert_eq!(damage.contains("quarantine"), cut.is_some(), "start {start}: {damage}");
            assert_eq!(store.health().reason, *damage);
            // The log is read from its beginning until its rows are in files again.
            assert_eq!(found.log_rows, if start == 0 { 60 } else { 0 });
            let rows = grid(1, HOUR + 7_200 * SECOND, start..start + 1);
            models[1].add(&rows);
            store.append(vec![batch(&rows)]).await.unwrap();
            store.close().await.unwrap();
        }
        if comes_back {
            std::fs::write(&files[0], &bytes).unwrap();
            let back = std::mem::take(&mut models[0].0);
            models[1].0.extend(back);
        } else {
            repair(dir.path(), |_| ()).unwrap();
        }
        for _ in 0..2 {
            let (store, found) = Store::open(quiet(dir.path())).unwrap();
            assert_eq!((found.damage, found.unlisted.len()), (Vec::new(), 0));
            assert_eq!(store.health().status, Status::Healthy);
            let rows = rows_of(&store, everything());
            assert!(
                model_of(rows.answer.batch.as_ref().unwrap()) == models[1],
                "cut {cut:?} back {comes_back}"
            );
            store.flush().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_damaged_file_that_cannot_be_set_aside_stays_where_it_is() {
    let (dir, files, models) = two_hours().await;
    std::fs::OpenOptions::new().write(true).open(&files[0]).unwrap().set_len(100).unwrap();
    let name = files[0].file_name().unwrap().to_string_lossy();
    let taken = dir.path().join("quarantine").join(format!("raw+gpu_events+2026-11-20+{name}"));
    std::fs::write(&taken, "an earlier one").unwrap();
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert!(found.damage[0].contains("not set aside"), "{found:?}");
    assert!(files[0].exists(), "what a person may want to look at was removed");
    assert_eq!(std::fs::read(&taken).unwrap(), b"an earlier one");
    let rows = rows_of(&store, everything());
    assert!(model_of(rows.answer.batch.as_ref().unwrap()) == models[1]);
}

#[tokio::test]
async fn files_that_cannot_be_looked_at_are_not_taken_for_damaged() {
    let (dir, _, models) = two_hours().await;
    let day = dir.path().join("raw/gpu_events/2026-11-20");
    let away = dir.path().join("raw/gpu_events/away");
    std::fs::rename(&day, &away).unwrap();
    std::fs::write(&day, "in the way").unwrap();
    assert!(matches!(Store::open(quiet(dir.path())), Err(StoreError::Io { .. })));
    std::fs::remove_file(&day).unwrap();
    std::fs::rename(&away, &day).unwrap();
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!((found.damage, found.files), (Vec::new(), 2));
    let mut model = models[0].clone();
    model.0.extend(models[1].0.clone());
    assert_is(&store, &model);
}
