//! Bounds hold, and what is at a bound goes on.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::support::{HOUR, Model, SECOND, assert_is, batch, grid, open_asking, quiet, row};
use arrow_array::{DictionaryArray, Int64Array, RecordBatch, types::Int32Type};
use gpuvitals_core::batch::TIMESTAMP_COLUMN;
use gpuvitals_core::merge::MergeError;
use gpuvitals_core::ports::SinkError;
use gpuvitals_core::{Batch, IdentityColumn, Origin, Table};
use gpuvitals_store::{AppendError, FileStep, Store, StoreConfig};

/// A store on a disk that is full for some steps.
fn open_failing(
    config: StoreConfig,
    fails: impl Fn(FileStep, &str) -> bool + Send + Sync + 'static,
) -> Store {
    let asking = move |step, path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if fails(step, &name) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    };
    open_asking(config, asking).0
}

fn table_files(dir: &Path) -> usize {
    let days = std::fs::read_dir(dir.join("raw/gpu_events")).unwrap();
    days.map(|day| std::fs::read_dir(day.unwrap().path()).unwrap().count()).sum()
}

#[tokio::test]
async fn many_small_appends_start_a_flush_before_they_have_taken_all_room() {
    let dir = tempfile::tempdir().unwrap();
    // Room for 3 × 64 appends, however small: in bytes of columns that is not enough for a flush.
    let config = StoreConfig { flush_bytes: 64 << 10, ..quiet(dir.path()) };
    let (store, _) = Store::open(config).unwrap();
    let mut model = Model::default();
    for second in 0..400 {
        let rows = [row("GPU-1", HOUR + second * SECOND, &[("power_w", 100.0)])];
        store.append(vec![batch(&rows)]).await.unwrap();
        model.add(&rows);
    }
    store.flush().await.unwrap();
    assert!(store.stats().flushes > 2, "{:?}", store.stats());
    assert_is(&store, &model);
}

#[tokio::test]
async fn what_the_log_brought_back_does_not_widen_the_bound_of_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    let rows = grid(10, HOUR, 0..1_000);
    store.append(vec![batch(&rows)]).await.unwrap();
    let brought = store.stats().tail_bytes;
    assert!(brought > 200 << 10, "{brought}");
    drop(store);

    let full = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let disk = Arc::clone(&full);
    let config = StoreConfig { flush_bytes: 16 << 10, ..quiet(dir.path()) };
    let store = open_failing(config, move |step, _| {
        step == FileStep::Create && disk.load(std::sync::atomic::Ordering::Relaxed)
    });
    store.flush().await.unwrap();
    assert_eq!(store.stats().tail_bytes, 0);
    full.store(true, std::sync::atomic::Ordering::Relaxed);
    for second in 1_000..10_000 {
        let refused = store.append(vec![batch(&grid(10, HOUR, second..second + 1))]).await.is_err();
        assert!(store.stats().tail_bytes <= 3 * (16 << 10), "{:?}", store.stats());
        if refused {
            return;
        }
    }
    panic!("nothing was refused");
}

#[tokio::test]
async fn tries_that_end_before_the_list_of_files_leave_no_files() {
    let dir = tempfile::tempdir().unwrap();
    let store =
        open_failing(quiet(dir.path()), |step, name| step == FileStep::Create && name.starts_with("fleet-"));
    let rows = grid(3, HOUR - 5 * SECOND, 0..10);
    store.append(vec![batch(&rows)]).await.unwrap();
    store.flush().await.unwrap_err();
    drop(store);
    assert_eq!(table_files(dir.path()), 0);
    let mut model = Model::default();
    model.add(&rows);
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    assert_is(&store, &model);
}

#[tokio::test]
async fn an_empty_uuid_names_no_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    let uuids: DictionaryArray<Int32Type> = ["GPU-1", ""].into_iter().collect();
    let records = RecordBatch::try_from_iter([
        (TIMESTAMP_COLUMN, Arc::new(Int64Array::from(vec![HOUR, HOUR])) as _),
        (IdentityColumn::Uuid.name(), Arc::new(uuids) as _),
    ]);
    let batch = Batch::new(Table::GpuEvents, records.unwrap(), Origin::default(), 0).unwrap();
    let error = store.append(vec![batch]).await.unwrap_err();
    assert!(matches!(error, AppendError::Rows(MergeError::Nobody { row: 1, .. })), "{error}");
    assert!(matches!(SinkError::from(error), SinkError::Refused(_)));
}

#[tokio::test]
async fn a_query_of_more_files_than_may_be_open_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    let rows: Vec<_> =
        (0..400).map(|hour| row("GPU-1", HOUR + hour * 3_600 * SECOND, &[("power_w", 1.0)])).collect();
    store.append(vec![batch(&rows)]).await.unwrap();
    store.flush().await.unwrap();
    assert_eq!(store.stats().flushed.files, 400);
    let mut model = Model::default();
    model.add(&rows);
    assert_is(&store, &model);
    // All at once would be more than a process may have.
    let mine = dir.path().canonicalize().unwrap();
    let handles = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let open = handles.filter_map(|fd| std::fs::read_link(fd.path()).ok()).filter(|to| to.starts_with(&mine));
    let open = open.count();
    assert!(open < 270, "{open} files are open");
}

#[tokio::test]
async fn columns_under_ever_new_names_are_refused_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    for restart in 0..2 {
        let (store, _) = Store::open(quiet(dir.path())).unwrap();
        for n in 0..20 {
            let names: Vec<String> = (0..100).map(|column| format!("new {n} {column}")).collect();
            let names: Vec<(&'static str, f64)> =
                names.into_iter().map(|name| (&*Box::leak(name.into_boxed_str()), 1.0)).collect();
            let rows = [row(format!("GPU-{n:02}"), HOUR + restart * SECOND, &names)];
            match store.append(vec![batch(&rows)]).await {
                Ok(_) => model.add(&rows),
                Err(error) => {
                    assert!(n >= 5, "{error}");
                    assert!(matches!(error, AppendError::TooManyColumns { max: 512, .. }), "{error}");
                    assert!(matches!(SinkError::from(error), SinkError::Refused(_)));
                }
            }
        }
        assert_eq!(model.0.len(), if restart == 0 { 5 } else { 11 });
        // Names that are known, and none, are taken all the same.
        let rows = [row("other", HOUR + restart * SECOND, &[("new 0 7", 2.0), ("power_w", 3.0)])];
        store.append(vec![batch(&rows)]).await.unwrap();
        model.add(&rows);
        assert_is(&store, &model);
    }
}
