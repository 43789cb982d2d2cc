//! Recordings whose files have changed since they were written.

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;

use super::{open, record, said};

#[test]
fn a_recording_of_which_a_bit_has_changed_is_refused_by_whatever_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("telemetry");
    let recorded = record("rx7900xtx", &recording).args(["-q", "--duration", "300ms"]).finished().unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
    let file = recording.join("gpu_events.parquet");
    let (at, len) = open(&file).metadata().row_group(0).column(0).byte_range();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[usize::try_from(at + len / 2).unwrap()] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let words = format!("{}, row group 0: its bytes have changed since it was written", file.display());
    let (rows, data) = (dir.path().join("rows.csv"), dir.path().join("data"));
    for command in [
        &["report"][..],
        &["export", "--csv", "-o", rows.to_str().unwrap()],
        &["inspect"],
        &["store", "import", "--data-dir", data.to_str().unwrap()],
        &["stream", "--replay"],
    ] {
        let output = gpuvitals!().args(command).arg(&recording).finished().unwrap();
        let (stdout, stderr) = said(&output);
        assert_eq!(output.status.code(), Some(65), "{command:?}: {stdout}{stderr}");
        assert!(stdout.contains(&words) || stderr.contains(&words), "{command:?}: {stdout}{stderr}");
        assert!(!rows.exists(), "{command:?}");
    }
}
