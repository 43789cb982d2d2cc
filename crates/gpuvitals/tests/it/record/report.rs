//! `gpuvitals report` and `record --report`, of recordings that the recorder made.

use std::path::Path;

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;
use serde_json::Value;

use super::{record, said};

/// What `gpuvitals report` says of a recording.
fn report(recording: &Path, flags: &[&str]) -> String {
    let output = gpuvitals!().arg("report").arg(recording).args(flags).finished().unwrap();
    let (stdout, stderr) = said(&output);
    assert!(output.status.success(), "{stderr}");
    stdout
}

#[test]
fn a_recording_ends_with_its_report_and_marks_in_it_are_texts() {
    let dir = tempfile::tempdir().unwrap();
    let (recording, page) = (dir.path().join("telemetry"), dir.path().join("run.html"));
    // Not before the first rows are written.
    let script = r#"until [ -s "$1" ]; do :; done
        "$0" mark "</script><script>alert(1)</script>"; "$0" mark "epoch 2""#;
    let journal = recording.join("unfinished/gpu_events.000001.rows");
    let mut command = record("rx7900xtx", &recording);
    command.arg("--report").arg(&page).args([
        "-q",
        "--",
        "sh",
        "-c",
        script,
        env!("CARGO_BIN_EXE_gpuvitals"),
    ]);
    command.arg(&journal);
    let output = command.finished().unwrap();
    assert!(output.status.success(), "{}", said(&output).1);

    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!doctype html>") && text.contains("default-src 'none'"), "{text}");
    assert!(!text.contains("<script") && text.contains("&lt;/script&gt;"), "{text}");
    assert!(text.contains("epoch 2") && text.contains("on n1</h1>"), "{text}");
    assert_eq!(report(&recording, &[]), text, "the same later");

    let json: Value = serde_json::from_str(&report(&recording, &["--json"])).unwrap();
    assert_eq!(json["marks"][1]["text"], "epoch 2");
    assert_eq!(json["gpus"][0]["power_w"]["max"], 68.0);
    assert_eq!(json["recordings"][0]["facts"]["node"], "n1");
    assert!(json["duration_s"].as_f64().unwrap() > 0.0, "{json:#}");
    std::fs::write(&page, "mine").unwrap();
    let file = page.to_str().unwrap();
    let kept = gpuvitals!().arg("report").arg(&recording).args(["-o", file]).finished().unwrap();
    assert_eq!(kept.status.code(), Some(65), "{kept:?}");
    assert!(said(&kept).1.contains("run.html exists; --force replaces it"), "{kept:?}");
    assert_eq!(std::fs::read(&page).unwrap(), b"mine");
    assert_eq!(report(&recording, &["-o", file, "--force"]), "");
    assert_eq!(std::fs::read_to_string(&page).unwrap(), text);

    let markdown = report(&recording, &["--markdown"]);
    assert!(markdown.starts_with("### ") && markdown.contains("| GPU | Model |"), "{markdown}");
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_anything_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let recording = dir.path().join("telemetry");
    let mut command = record("rx7900xtx", &recording);
    let output = command.arg("--report").arg(dir.path().join("nowhere/run.html")).finished().unwrap();
    assert_eq!(output.status.code(), Some(64), "{}", said(&output).1);
    let page = dir.path().join("run.html");
    std::fs::write(&page, "mine").unwrap();
    let output = record("rx7900xtx", &recording).arg("--report").arg(&page).finished().unwrap();
    assert_eq!(output.status.code(), Some(65), "{}", said(&output).1);
    assert_eq!(std::fs::read(&page).unwrap(), b"mine");
    assert!(!recording.exists());
    for (arguments, code, words) in [
        (&["no-such-recording"][..], 65, "no-such-recording holds no recording; name a directory"),
        (&["--json", "--markdown"], 64, "--markdown"),
    ] {
        let output = gpuvitals!().arg("report").args(arguments).current_dir(dir.path()).finished().unwrap();
        let (_, stderr) = said(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(words), "{arguments:?}: {stderr}");
    }
}
