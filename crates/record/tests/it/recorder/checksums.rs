//! What has changed in a file since it was written is refused, with file and row group.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arrow_array::RecordBatch;
use gpuvitals_core::batch::Value;
use gpuvitals_core::{Batch, BatchBuilder, Identity, IdentityColumn, Origin, Table};
use gpuvitals_record::{Data, RecordError, SeenColumns, TableFile, marks_of, repair, verify_recording};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::properties::WriterProperties;

use super::{Counting, POWER, config, parts, started};

/// What the checksums end with.
const TAG: &[u8] = b"gpuvsums";

/// Rows of one GPU from that number on.
fn batch(first: i64, rows: i64) -> Batch {
    let mut builder = BatchBuilder::new(Table::GpuEvents);
    let gpu = Identity::default().with(IdentityColumn::Node, "n1").unwrap();
    let gpu = builder.intern(&gpu.with(IdentityColumn::Uuid, "GPU-0").unwrap());
    for number in first..first + rows {
        let row = builder.row_at(number * 1_000_000, number * 1_000_000 + 17, gpu);
        builder.set(row, POWER, Value::Int(number * 7 % 500)).unwrap();
    }
    builder.finish(Origin::default(), 1).unwrap()
}

/// Writes a recording with so many rows between two times that the file is settled. Answers the file of the GPUs.
fn written(directory: &Path, settled: &[i64]) -> PathBuf {
    let host = directory.join("system_events.parquet");
    let host = TableFile { table: Table::SystemEvents, target: &host, facts: Vec::new() };
    host.begin(&SeenColumns::of(Table::SystemEvents)).unwrap().put().unwrap();
    let path = directory.join("gpu_events.parquet");
    let facts = vec![("node", "n1".to_owned())];
    let gpus = TableFile { table: Table::GpuEvents, target: &path, facts };
    let mut columns = SeenColumns::of(Table::GpuEvents);
    columns.add(&batch(0, 1));
    let mut gpus = gpus.begin(&columns).unwrap();
    let mut first = 0;
    for rows in settled {
        gpus.add(&batch(first, *rows)).unwrap();
        gpus.settle().unwrap();
        first += rows;
    }
    gpus.put().unwrap();
    path
}

fn read(directory: &Path) -> Result<Vec<RecordBatch>, RecordError> {
    Data::open(directory)?.map(|batch| Ok(batch?.records().clone())).collect()
}

/// The bytes of each row group.
fn row_groups(file: &Path) -> Vec<Range<usize>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap();
    let mut groups = Vec::new();
    for group in reader.metadata().row_groups() {
        let columns: Vec<(u64, u64)> = group.columns().iter().map(ColumnChunkMetaData::byte_range).collect();
        let begin = columns.iter().map(|(at, _)| *at).min().unwrap();
        let end = columns.iter().map(|(at, len)| at + len).max().unwrap();
        groups.push(usize::try_from(begin).unwrap()..usize::try_from(end).unwrap());
    }
    groups
}

fn middle(group: &Range<usize>) -> usize {
    usize::midpoint(group.start, group.end)
}

/// Changes a bit of a byte, another one in each.
fn flip(file: &Path, at: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at] ^= 1 << (at % 8);
    std::fs::write(file, bytes).unwrap();
}

/// What is seen while a bit is another.
fn while_flipped<T>(file: &Path, at: usize, look: impl FnOnce() -> T) -> T {
    flip(file, at);
    let seen = look();
    flip(file, at);
    seen
}

fn assert_damaged(error: &RecordError, file: &Path, wanted: Option<usize>) {
    let RecordError::Damaged { path, row_group } = error else { panic!("{error:?}") };
    assert_eq!((path.as_path(), *row_group), (file, wanted));
    let part = wanted.map_or("footer".to_owned(), |number| format!("row group {number}"));
    let begin = format!("{}, {part}: its bytes have changed since it was written; ", file.display());
    assert!(error.to_string().starts_with(&begin), "{error}");
}

#[test]
fn a_bit_that_changed_is_named_with_its_file_and_row_group() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), &[16_384; 3]);
    let groups = row_groups(&file);
    assert_eq!((groups.len(), groups[0].start), (3, 4), "{groups:?}");
    assert!(groups.windows(2).all(|pair| pair[0].end == pair[1].start), "{groups:?}");
    for (number, group) in groups.iter().enumerate() {
        for at in [group.start, middle(group), group.end - 1] {
            let error = while_flipped(&file, at, || read(dir.path())).unwrap_err();
            assert_damaged(&error, &file, Some(number));
            for path in [dir.path(), file.as_path()] {
                let error = while_flipped(&file, at, || verify_recording(path)).unwrap_err();
                assert_damaged(&error, &file, Some(number));
            }
        }
    }
    let len = std::fs::read(&file).unwrap().len();
    for at in [groups[2].end, groups[2].end + 3 * 12, len - 100] {
        let error = while_flipped(&file, at, || read(dir.path())).unwrap_err();
        assert_damaged(&error, &file, None);
    }
    verify_recording(dir.path()).unwrap();
    let rows: usize = read(dir.path()).unwrap().iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, 3 * 16_384);
}

#[test]
fn no_bit_of_a_file_changes_a_value_unnoticed() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), &[40]);
    let (whole, rows) = (std::fs::read(&file).unwrap(), read(dir.path()).unwrap());
    let tag = whole.windows(TAG.len()).position(|bytes| bytes == TAG).unwrap();
    // Some of all of them, and each of the checksums and of the last ones.
    let some = (0..whole.len()).step_by(whole.len() / 300 + 1);
    for at in some.chain(tag - 20..tag + TAG.len()).chain(whole.len() - 8..whole.len()) {
        // The first bytes of Parquet say nothing, and without the tag the file is as an earlier version wrote it.
        let is_harmless = at < 4 || (tag..tag + TAG.len()).contains(&at);
        match while_flipped(&file, at, || read(dir.path())) {
            Ok(found) => assert!(is_harmless && found == rows, "byte {at}"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert_eq!(std::fs::read(&file).unwrap(), whole);
}

#[test]
fn rows_that_another_program_has_written_anew_have_no_checksum_of_the_old_ones() {
    let dir = tempfile::tempdir().unwrap();
    let file = written(dir.path(), &[40]);
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(&file).unwrap()).unwrap();
    // All that the footer says is kept, as pandas keeps it.
    let footer = reader.metadata().file_metadata().clone();
    let rows = reader.build().unwrap().next().unwrap().unwrap().slice(1, 39);
    let properties = WriterProperties::builder()
        .set_created_by(footer.created_by().unwrap().to_owned())
        .set_key_value_metadata(footer.key_value_metadata().cloned())
        .build();
    let mut writer =
        ArrowWriter::try_new(File::create(&file).unwrap(), rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    verify_recording(dir.path()).unwrap();
    let found: usize = read(dir.path()).unwrap().iter().map(RecordBatch::num_rows).sum();
    assert_eq!(found, 39);
}

#[test]
fn a_part_that_changed_is_named_at_the_end_and_the_rest_is_repaired_without_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.part_span = Some(Duration::from_millis(100));
    let recorder = started(Counting::found(1), config, 600);
    let part = parts(dir.path()).remove(0);
    flip(&part, middle(&row_groups(&part)[0]));
    assert_damaged(&recorder.stop().unwrap_err(), &part, Some(0));
    assert_damaged(&repair(dir.path()).unwrap_err(), &part, Some(0));
    assert_damaged(&read(dir.path()).unwrap_err(), &part, Some(0));
    std::fs::rename(&part, dir.path().join("aside")).unwrap();
    let repaired = repair(dir.path()).unwrap().unwrap();
    assert!(repaired.gpu_rows > 0 && repaired.torn_bytes == 0, "{repaired:?}");
    verify_recording(dir.path()).unwrap();
}

#[test]
fn marks_have_checksums_too() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = started(Counting::found(1), config(dir.path()), 5);
    recorder.mark("epoch 1").unwrap();
    recorder.stop().unwrap();
    assert_eq!(marks_of(dir.path()).unwrap().count(), 1);
    let file = dir.path().join("marks.parquet");
    let at = middle(&row_groups(&file)[0]);
    let Err(error) = while_flipped(&file, at, || marks_of(dir.path())) else { panic!("they were read") };
    assert_damaged(&error, &file, Some(0));
}
