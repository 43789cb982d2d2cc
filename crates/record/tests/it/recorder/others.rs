//! Files that are not of the recording.

use gpuvitals_record::{RecordError, Recorder, repair};

use super::{Counting, config, parquet_rows, started};

#[test]
fn files_of_others_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let others = [
        "gpu_events.2024.parquet",
        "gpu_events.2024-01.parquet",
        "gpu_events.2.tmp",
        "gpu_events.old.parquet",
    ];
    for name in others {
        std::fs::write(dir.path().join(name), b"mine").unwrap();
    }
    let recorded = started(Counting::found(1), config(dir.path()), 300).stop().unwrap();
    assert_eq!(parquet_rows(&dir.path().join("gpu_events.parquet")) as u64, recorded.gpu_rows);
    for name in others {
        assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), b"mine", "{name}");
    }
    // Whose name a part would have.
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("gpu_events.000001.parquet"), b"mine").unwrap();
    let refused = Recorder::start_with(Counting::found(1), config(other.path()), |_| {});
    assert!(matches!(refused, Err(RecordError::Directory { .. })));
    // Of an earlier version, which named its journals otherwise.
    let old = tempfile::tempdir().unwrap();
    drop(started(Counting::found(1), config(old.path()), 1));
    std::fs::write(old.path().join("unfinished/gpu_events-000000.rows"), b"rows").unwrap();
    assert!(matches!(repair(old.path()), Err(RecordError::Directory { .. })));
    assert!(old.path().join("unfinished/gpu_events-000000.rows").exists());
}
