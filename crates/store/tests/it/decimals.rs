//! Power and energy on a decimal grid take half the room, and come back bit for bit.

use std::path::Path;
use std::time::Duration;

use gpuvitals_store::{Store, StoreConfig};
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::support::{HOUR, Model, Row, SECOND, assert_is, batch, quiet, row, wait_for};

/// What the Parquet files under a folder say of a column's type, by folder.
fn types(dir: &Path, column: &str) -> Vec<String> {
    let mut types = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "parquet") {
                let reader = SerializedFileReader::new(std::fs::File::open(entry).unwrap()).unwrap();
                let schema = reader.metadata().file_metadata().schema_descr_ptr();
                let of = schema.columns().iter().find(|of| of.name() == column).unwrap();
                types.push(format!("{} {:?}", of.physical_type(), of.logical_type_ref()));
            }
        }
    }
    types.sort();
    types
}

fn rows(from: i64, power: &[f64]) -> Vec<Row> {
    let row = |(second, power): (i64, &f64)| {
        let energy = 9_000_000.125 + power * f64::from(u32::try_from(second).unwrap());
        row(
            "GPU-1",
            HOUR + (from + second) * SECOND,
            &[("power_w", *power), ("energy_j", (energy * 1e3).round() / 1e3)],
        )
    };
    (0..).zip(power).map(row).collect()
}

async fn add(store: &Store, model: &mut Model, rows: &[Row]) {
    model.add(rows);
    store.append(vec![batch(rows)]).await.unwrap();
    store.flush().await.unwrap();
}

#[tokio::test]
async fn values_on_the_grid_are_decimals_at_every_level_and_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut model = Model::default();
    let flushing = quiet(dir.path());
    let (store, _) = Store::open(flushing.clone()).unwrap();
    add(&store, &mut model, &rows(0, &[61.5, 72.25, 300.0])).await;
    add(&store, &mut model, &rows(10, &[61.0, 72.0, 700.0])).await;
    let of = |digits: u8, scale: u8| {
        format!("Some(Decimal(DecimalType {{ scale: {scale}, precision: {digits} }}))")
    };
    let raw = dir.path().join("raw");
    assert_eq!(types(&raw, "power_w"), [format!("INT32 {}", of(9, 0)), format!("INT32 {}", of(9, 3))]);
    assert_is(&store, &model);
    store.close().await.unwrap();

    let merging =
        StoreConfig { merge: true, merge_after: Duration::ZERO, day_bytes: 0, rollup_rows: 1, ..flushing };
    let (store, _) = Store::open(merging.clone()).unwrap();
    let is_merged = |store: &Store| (store.stats().flushed.files, store.stats().merged.files) == (0, 1);
    wait_for(&store, is_merged).await;
    assert_is(&store, &model);
    store.close().await.unwrap();
    assert_eq!(types(&raw, "power_w"), [format!("INT32 {}", of(9, 3))]);
    assert_eq!(types(&raw, "energy_j"), [format!("INT64 {}", of(18, 3))]);
    assert_eq!(types(&dir.path().join("10s"), "power_w_max"), [format!("INT32 {}", of(9, 3))]);

    // A value off the grid: the whole file has floats again, and all earlier values are what they were.
    let (store, _) = Store::open(merging).unwrap();
    add(&store, &mut model, &rows(20, &[61.125, 100.0 / 3.0])).await;
    wait_for(&store, is_merged).await;
    assert_is(&store, &model);
    store.close().await.unwrap();
    assert_eq!(types(&raw, "power_w"), ["FLOAT None"]);
    assert_eq!(types(&raw, "energy_j"), [format!("INT64 {}", of(18, 3))]);
}
