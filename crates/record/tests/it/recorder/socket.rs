//! Marks, and the socket through which other processes set them.

use gpuvitals_record::{Recorder, repair, send_mark};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::{Counting, config, started};

#[test]
fn marks_come_from_the_process_and_through_the_socket() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::start_with(Counting::found(1), config(dir.path()), |_| {}).unwrap();
    recorder.mark("from inside").unwrap();
    let socket = recorder.mark_socket().unwrap();
    let path = socket.path().to_owned();
    for n in 0..5 {
        send_mark(&path, format!("step {n}")).unwrap();
    }
    drop(socket);
    assert!(!path.exists() && send_mark(&path, "too late").is_err());
    let recorded = recorder.stop().unwrap();
    assert_eq!((recorded.marks, recorded.progress.marks_dropped), (6, 0));
    let file = std::fs::File::open(dir.path().join("marks.parquet")).unwrap();
    let batch =
        ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().next().unwrap().unwrap();
    let texts = batch.column_by_name("text").unwrap();
    let texts: &arrow_array::StringArray = texts.as_any().downcast_ref().unwrap();
    let texts: Vec<_> = texts.iter().flatten().collect();
    assert_eq!(texts, ["from inside", "step 0", "step 1", "step 2", "step 3", "step 4"]);
}

#[test]
fn the_socket_of_a_recording_that_was_killed_goes_with_its_repair() {
    let dir = tempfile::tempdir().unwrap();
    let recorder = started(Counting::found(1), config(dir.path()), 1);
    let socket = recorder.mark_socket().unwrap();
    let path = socket.path().to_owned();
    assert!(path.starts_with(dir.path()) && path.exists());
    // A kill runs no destructor.
    std::mem::forget(socket);
    drop(recorder);
    repair(dir.path()).unwrap().unwrap();
    assert!(!path.exists());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "nothing is left");
}

#[test]
fn a_socket_finds_a_place_and_ends_even_after_its_recording() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("x".repeat(120));
    let recorder = started(Counting::found(1), config(&deep), 1);
    let socket = recorder.mark_socket().unwrap();
    assert!(!socket.path().starts_with(&deep), "the path would be too long for a socket");
    send_mark(socket.path(), "in time").unwrap();
    drop(socket);
    assert_eq!(recorder.stop().unwrap().marks, 1);

    let recorder = started(Counting::found(1), config(dir.path()), 1);
    let socket = recorder.mark_socket().unwrap();
    recorder.discard().unwrap();
    drop(socket);
}
