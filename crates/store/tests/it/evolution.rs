//! Files of another release: a metric they lack, one that is wider today, one that nobody knows today.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int32Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use gpuvitals_store::{Store, StoreConfig, repair};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use crate::support::{HOUR, Model, Row, SECOND, assert_is, assert_steps, batch, quiet, row, wait_for};

/// Writes a file anew with columns of other types.
fn rewrite(path: &Path, of: impl Fn(&str, &ArrayRef) -> Option<(String, ArrayRef)>) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let facts = reader.metadata().file_metadata().key_value_metadata().unwrap().clone();
    let batches: Vec<RecordBatch> = reader.build().unwrap().map(Result::unwrap).collect();
    let [found] = batches.as_slice() else { panic!("{} batches", batches.len()) };
    let schema = found.schema();
    let columns = schema.fields().iter().zip(found.columns()).filter_map(|(field, column)| {
        let (name, array) = of(field.name(), column)?;
        Some((Field::new(name, array.data_type().clone(), field.is_nullable()), array))
    });
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns.unzip();
    let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), schema.clone(), None).unwrap();
    writer.write(&RecordBatch::try_new(schema, arrays).unwrap()).unwrap();
    writer.flush().unwrap();
    writer.sync().unwrap();
    let group = std::fs::read(path).unwrap();
    for mut fact in facts.into_iter().filter(|fact| fact.key.starts_with("gpuvitals.")) {
        if fact.key == "gpuvitals.row_groups" {
            let mut groups: serde_json::Value = serde_json::from_str(&fact.value.unwrap()).unwrap();
            let first = groups.get_mut(0).unwrap().as_object_mut().unwrap();
            first.insert("len".to_owned(), group.len().into());
            fact.value = Some(groups.to_string());
        } else if fact.key == "gpuvitals.blocks" {
            fact.value = Some(serde_json::json!([crc32c::crc32c(&group)]).to_string());
        }
        writer.append_key_value_metadata(fact);
    }
    writer.close().unwrap();
}

/// What an older or newer release would have written.
fn elsewhere(name: &str, array: &ArrayRef) -> Option<(String, ArrayRef)> {
    let array: ArrayRef = match name {
        "memory_used_mb" | "energy_mj" => {
            let numbers = array.as_primitive::<Int64Type>();
            Arc::new(numbers.iter().map(|it| it.map(|it| i32::try_from(it).unwrap())).collect::<Int32Array>())
        }
        "memory_total_mb" => return None,
        "later_hz" => return Some(("of_tomorrow".to_owned(), Arc::clone(array))),
        _ => Arc::clone(array),
    };
    Some((name.to_owned(), array))
}

fn rows(from: i64) -> Vec<Row> {
    let values = |at: i64| {
        let at = f64::from(i16::try_from(at % 50).unwrap());
        [
            ("power_w", 100.5 + at),
            ("energy_mj", 40.0 + at),
            ("memory_used_mb", 1_000.0 + at),
            ("memory_total_mb", 2_000.0 + at),
        ]
    };
    (from..from + 40).map(|at| row(format!("GPU-{}", at % 2), HOUR + at * SECOND, &values(at))).collect()
}

#[tokio::test]
async fn files_of_other_releases_answer_and_merge_with_todays() {
    let dir = tempfile::tempdir().unwrap();
    let mut before = rows(0);
    for row in &mut before {
        row.values.push(("later_hz", 7.0));
    }
    let (store, _) = Store::open(quiet(dir.path())).unwrap();
    store.append(vec![batch(&before)]).await.unwrap();
    store.close().await.unwrap();
    drop(store);
    let day = dir.path().join("raw/gpu_events/2026-11-20");
    let file = std::fs::read_dir(&day).unwrap().map(|file| file.unwrap().path()).next().unwrap();
    rewrite(&file, elsewhere);
    // The list of files and the log are of that release as well.
    let repaired = repair(dir.path(), |_| ()).unwrap();
    assert_eq!((repaired.files, repaired.set_aside), (1, Vec::new()));
    std::fs::remove_dir_all(dir.path().join("wal")).unwrap();
    std::fs::remove_file(dir.path().join("LOCK")).unwrap();

    let mut model = Model::default();
    for row in &mut before {
        row.values.retain(|(name, _)| *name != "memory_total_mb");
        row.values.last_mut().unwrap().0 = "of_tomorrow";
    }
    model.add(&before);
    let now = rows(40);
    model.add(&now);
    let merging = StoreConfig { merge: true, merge_after: Duration::ZERO, day_bytes: 0, ..quiet(dir.path()) };
    let (store, found) = Store::open(quiet(dir.path())).unwrap();
    assert_eq!((found.damage, found.unlisted), (Vec::new(), Vec::new()));
    store.append(vec![batch(&now)]).await.unwrap();
    assert_is(&store, &model);
    assert_steps(&store, &model);
    store.close().await.unwrap();
    drop(store);
    let (store, _) = Store::open(merging).unwrap();
    wait_for(&store, |store| (store.stats().flushed.files, store.stats().merged.files) == (0, 1)).await;
    assert_is(&store, &model);
    assert_steps(&store, &model);
    let merged = std::fs::read_dir(&day).unwrap().map(|file| file.unwrap().path()).next().unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(merged).unwrap()).unwrap();
    let types = ["energy_mj", "memory_used_mb"]
        .map(|name| reader.schema().field_with_name(name).unwrap().data_type().clone());
    assert_eq!(types, [DataType::Int64, DataType::Int64], "the types of today");
}
