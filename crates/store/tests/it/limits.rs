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
async fn columns_under_ever_new_names_are_left_out_and_their_rows_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    for restart in 0..2 {
        let (store, _) = Store::open(quiet(dir.path())).unwrap();
        for n in 0..8 {
            let names: Vec<String> = (0..64).map(|column| format!("new {n} {column}")).collect();
            let names: Vec<(&'static str, f64)> =
                names.into_iter().map(|name| (&*Box::leak(name.into_boxed_str()), 1.0)).collect();
            let of_gpu = |columns: &[(&'static str, f64)]| {
                let columns = [columns, &[("power_w", 3.0)]].concat();
                [row(format!("GPU-{n}"), HOUR + restart * SECOND, &columns)]
            };
            store.append(vec![batch(&of_gpu(&names))]).await.unwrap();
            // One node has room for 128 names.
            model.add(&of_gpu(if n < 2 { &names } else { &[] }));
        }
        assert_is(&store, &model);
        assert_eq!(store.stats().values_left_out, 6 * 64);
        let reason = store.health().reason;
        assert!(reason.starts_with("columns of node-1 are left out, such as \"new 2 "), "{reason}");
    }
}

#[tokio::test]
async fn rows_that_contradict_each_other_are_counted_and_repeats_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    let add = async |at: i64, values: &[(&'static str, f64)]| {
        store.append(vec![batch(&[row("GPU-1", HOUR + at * SECOND, values)])]).await.unwrap();
    };
    let flush = async |overwritten: u64| {
        store.flush().await.unwrap();
        store.compact().await.unwrap();
        assert_eq!(store.stats().rows_overwritten, overwritten);
    };
    add(0, &[("power_w", 100.1), ("temperature_c", 40.0)]).await;
    add(1, &[("power_w", 100.0)]).await;
    // A repeat, and what the first row lacked.
    add(0, &[("power_w", 100.1), ("memory_used_mb", 7.0)]).await;
    flush(0).await;
    // Another value, of rows in memory.
    add(2, &[("power_w", 1.0), ("temperature_c", 40.0)]).await;
    add(2, &[("power_w", 2.0), ("temperature_c", 40.0)]).await;
    flush(1).await;
    // Of rows that are in files already: a repeat, and another value.
    add(0, &[("power_w", 100.1), ("temperature_c", 40.0)]).await;
    add(1, &[("power_w", 101.0)]).await;
    flush(2).await;
}
