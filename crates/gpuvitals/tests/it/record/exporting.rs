//! `gpuvitals export` of recordings that the recorder made.

use std::path::Path;
use std::process::Output;

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;

use super::{record, rows, said};

fn export(recording: &Path, flags: &[&str], file: &Path) -> Output {
    gpuvitals!().arg("export").arg(recording).args(flags).arg("-o").arg(file).finished().unwrap()
}

/// What was written; it has to go well.
fn exported(recording: &Path, flags: &[&str], file: &Path) -> Vec<u8> {
    let output = export(recording, flags, file);
    let (stdout, stderr) = said(&output);
    assert!(output.status.success() && stdout.contains(file.to_str().unwrap()), "{stdout}{stderr}");
    std::fs::read(file).unwrap()
}

#[test]
fn a_recording_is_exported_as_a_trace_and_as_rows_of_each_table() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("telemetry");
    let script = r#"until [ -s "$1" ]; do :; done; "$0" mark 'epoch 1, "warm"' --step 3 --value tokens=8192"#;
    let mut command = record("rx7900xtx", &recording);
    command.args(["-q", "--", "sh", "-c", script, env!("CARGO_BIN_EXE_gpuvitals")]);
    let output = command.arg(recording.join("unfinished/gpu_events.000001.rows")).finished().unwrap();
    assert!(output.status.success(), "{}", said(&output).1);

    let trace = exported(&recording, &["--perfetto"], &dir.path().join("run.pftrace"));
    let holds = |text: &str| trace.windows(text.len()).any(|window| window == text.as_bytes());
    for text in ["power_w", "memory_mb", "host n1", "marks", "epoch 1, \"warm\"", "tokens", "MHz"] {
        assert!(holds(text), "{text}");
    }

    let file = dir.path().join("rows.csv");
    for (table, column) in [("gpu_events", "power_w"), ("system_events", "cpu_pct")] {
        let flags = ["--csv", "--table", table, "--force"];
        let text = String::from_utf8(exported(&recording, &flags, &file)).unwrap();
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap().split(',').collect();
        for name in ["timestamp", "monotonic_ns", "node", column] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
        let count = i64::try_from(lines.count()).unwrap();
        assert_eq!(count, rows(&recording.join(table).with_extension("parquet")), "{table}");
    }
    let marks = exported(&recording, &["--csv", "--table", "marks", "--force"], &file);
    let marks = String::from_utf8(marks).unwrap();
    assert!(marks.starts_with("timestamp,monotonic_ns,text,phase,step,value_name,value\n"), "{marks}");
    assert!(marks.ends_with(",\"epoch 1, \"\"warm\"\"\",,3,tokens,8192\n"), "{marks}");
}

#[test]
fn an_export_replaces_no_file_unless_it_is_asked_to_and_leaves_no_half_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let (recording, file) = (dir.path().join("telemetry"), dir.path().join("out"));
    let recorded = record("rx7900xtx", &recording).args(["-q", "--duration", "300ms"]).finished().unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
    std::fs::write(&file, "mine").unwrap();
    let check = |flags: &[&str], recording: &Path, code: i32, words: &str| {
        let output = export(recording, flags, &file);
        let (_, stderr) = said(&output);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {stderr}");
        assert!(stderr.contains(words), "{words} is not in {stderr}");
        assert_eq!(std::fs::read(&file).unwrap(), b"mine", "{flags:?}");
        assert!(!file.with_extension("tmp").exists(), "{flags:?}");
    };
    check(&["--perfetto"], &recording, 65, "--force replaces it");
    check(&["--perfetto", "--force"], dir.path(), 65, "holds no recording");
    check(&["--csv", "--force"], dir.path(), 65, "holds no recording");
    check(&["--csv", "--table", "marks", "--force"], dir.path(), 65, "holds no recording");
    check(&[], &recording, 64, "--perfetto");
    check(&["--perfetto", "--csv"], &recording, 64, "--csv");
    check(&["--perfetto", "--table", "marks"], &recording, 64, "--table");
}
