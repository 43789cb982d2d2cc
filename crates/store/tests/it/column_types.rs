//! A column has one type in every file of a store, that of the catalogue, whatever its values are; and they come back bit
//! for bit.

use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow_schema::DataType;
use gpuvitals_core::Table;
use gpuvitals_core::batch::{data_type, type_of};
use gpuvitals_core::catalogue;
use gpuvitals_store::{Store, StoreConfig};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};

use crate::support::{HOUR, Model, Row, SECOND, assert_is, batch, quiet, row, wait_for};

/// The Parquet files under a folder.
fn tables(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    let is_table = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "parquet");
    let below = folders.iter().flat_map(|folder| tables(folder));
    files.into_iter().filter(is_table).chain(below).collect()
}

/// Columns and types of a file: `plain` as Parquet alone says them, else with what Arrow wrote beside.
fn types(file: &Path, plain: bool) -> Vec<(String, DataType)> {
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(plain);
    let file = std::fs::File::open(file).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options).unwrap();
    let fields = reader.schema().fields().iter();
    fields.map(|field| (field.name().clone(), field.data_type().clone())).collect()
}

/// The type that a column of a rollup has, if it is a value of a metric.
fn rolled(column: &str) -> Option<DataType> {
    let metric = ["_min", "_max", "_last", "_first"].iter().find_map(|figure| column.strip_suffix(figure));
    metric.and_then(catalogue::by_column).map(|id| data_type(id.metric().column_type))
}

/// That each file has the catalogue's types; how many there are.
fn assert_types(dir: &Path) -> (usize, usize) {
    let raw = tables(&dir.join("raw"));
    for file in &raw {
        let mut metrics = 0;
        for (name, found) in types(file, false) {
            let wanted = type_of(Table::GpuEvents, &name).unwrap_or(DataType::Float64);
            assert_eq!(found, wanted, "{name} in {}", file.display());
        }
        for (name, found) in types(file, true) {
            if let Some(id) = catalogue::by_column(&name) {
                assert_eq!(found, data_type(id.metric().column_type), "{name} in {}", file.display());
                metrics += 1;
            }
        }
        assert!(metrics > 0, "{}", file.display());
    }
    let rollups: Vec<PathBuf> =
        ["10s", "1m", "1h", "1d"].iter().flat_map(|grain| tables(&dir.join(grain))).collect();
    for file in &rollups {
        let values =
            types(file, true).into_iter().filter_map(|(name, found)| Some((rolled(&name)?, name, found)));
        for (wanted, name, found) in values {
            assert_eq!(found, wanted, "{name} in {}", file.display());
        }
    }
    (raw.len(), rollups.len())
}

/// A row a value; every metric of a GPU has it, as far as it is possible there.
fn rows(from: i64, values: &[f64]) -> Vec<Row> {
    let row = |(second, value): (i64, &f64)| {
        let metrics = catalogue::gpu_metrics().map(|(_, metric)| metric);
        let mut cells: Vec<_> =
            metrics.filter(|metric| metric.admits(*value)).map(|metric| (metric.column, *value)).collect();
        cells.push(("a column nobody knows", *value));
        row("GPU-1", HOUR + (from + second) * SECOND, &cells)
    };
    (0..).zip(values).map(row).collect()
}

async fn add(store: &Store, model: &mut Model, rows: &[Row]) {
    model.add(rows);
    store.append(vec![batch(rows)]).await.unwrap();
    store.flush().await.unwrap();
}

#[tokio::test]
async fn a_column_has_the_catalogues_type_in_every_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let flushing = quiet(dir.path());
    let (store, _) = Store::open(flushing.clone()).unwrap();
    // Whole numbers; thousandths, as sensors count; numbers that no sensor gives; the largest.
    let kinds = [
        &[0.0, 1.0, 61.0, 100.0, 0.0][..],
        &[0.5, 61.125, 72.137, 99.999],
        &[1.0 / 3.0, 100.0 / 7.0, -0.0, f64::MIN_POSITIVE],
        &[700.0, 8_999_999.0, 6_662_613_499_215.0, 9.0e15],
    ];
    for (from, values) in (0..).step_by(10).zip(kinds) {
        add(&store, &mut model, &rows(from, values)).await;
    }
    assert_eq!(assert_types(dir.path()), (4, 0));
    assert_is(&store, &model);
    store.close().await.unwrap();
    drop(store);

    let merging =
        StoreConfig { merge: true, merge_after: Duration::ZERO, day_bytes: 0, rollup_rows: 1, ..flushing };
    let (store, _) = Store::open(merging).unwrap();
    wait_for(&store, |store| (store.stats().flushed.files, store.stats().merged.files) == (0, 1)).await;
    assert_is(&store, &model);
    store.close().await.unwrap();
    let (raw, rollups) = assert_types(dir.path());
    assert!(raw == 1 && rollups >= 1, "{raw} and {rollups} rollups");
}
