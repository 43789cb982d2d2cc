//! Recording while a command runs: its streams, signals, exit code and marks; and being killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;
use gpuvitals_rig::waiting::{ended, outcome, until, within};
use rustix::process::{Pid, Signal, kill_process};

use super::{open, record, rows, said};

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn piped(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Reads lines until one has this text, and gives the rest.
fn wait_for<R: Read + Send + 'static>(stream: R, text: &str) -> BufReader<R> {
    let (mut lines, wanted) = (BufReader::new(stream), text.to_owned());
    within(&format!("{text:?}"), move || {
        let mut line = String::new();
        while !line.contains(&wanted) {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "{wanted} never came");
        }
        lines
    })
}

fn texts(directory: &Path) -> Vec<String> {
    let mut texts = Vec::new();
    for batch in open(&directory.join("marks.parquet")).build().unwrap() {
        let batch = batch.unwrap();
        let column = batch.column_by_name("text").unwrap();
        let column: &arrow_array::StringArray = column.as_any().downcast_ref().unwrap();
        texts.extend(column.iter().flatten().map(str::to_owned));
    }
    texts
}

#[test]
fn the_exit_code_of_the_command_is_passed_on_and_the_files_are_whole() {
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("kill -TERM $$", 143)] {
        let dir = tempfile::tempdir().unwrap();
        let output =
            record("rx7900xtx", dir.path()).args(["-q", "--", "sh", "-c", script]).finished().unwrap();
        assert_eq!(output.status.code(), Some(code), "{script}");
        for name in ["gpu_events.parquet", "system_events.parquet", "marks.parquet"] {
            assert!(rows(&dir.path().join(name)) >= 0);
        }
        assert!(!dir.path().join("unfinished").exists());
    }
    let dir = tempfile::tempdir().unwrap();
    let output = record("rx7900xtx", dir.path()).args(["--", "no-such-command"]).finished().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(said(&output).1.contains("no-such-command"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "no recording of nothing");
    let output =
        record("rx7900xtx", &dir.path().join("runs/1")).args(["--", "no-such-command"]).finished().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the directories it made are gone");
}

#[test]
fn the_command_keeps_its_streams_and_sets_marks() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"cat; "$0" mark "phase one"; "$0" mark "phase två"; "$0" mark --phase train --step 3 --value tokens=8e3"#;
    let mut command = record("rx7900xtx", dir.path());
    command.args(["--", "sh", "-c", script, env!("CARGO_BIN_EXE_gpuvitals")]);
    let mut child = piped(&mut command);
    child.stdin.take().unwrap().write_all(b"through and through\n").unwrap();
    let output = outcome(child);
    let (stdout, stderr) = said(&output);
    assert_eq!((output.status.code(), stdout.as_str()), (Some(0), "through and through\n"), "{stderr}");
    assert!(stderr.contains("3 marks"), "the summary stands beside the command's output: {stderr}");
    assert_eq!(texts(dir.path()), ["phase one", "phase två", "train, step 3, tokens 8000"]);
    let (marks, _) = gpuvitals_record::recorded_marks(dir.path(), 9).unwrap();
    let last = &marks[2].content;
    assert_eq!((last.phase.as_deref(), last.step), (Some("train"), Some(3)));
    assert_eq!((last.value_name.as_deref(), last.value), (Some("tokens"), Some(8_000.0)));
}

#[test]
fn signals_go_on_to_the_command() {
    for (number, name, code) in
        [(Signal::TERM, "TERM", 9), (Signal::INT, "INT", 9), (Signal::USR1, "USR1", 9)]
    {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("trap 'exit {code}' {name}; echo ready; read nothing");
        let mut child = piped(record("rx7900xtx", dir.path()).args(["-q", "--", "sh", "-c", &script]));
        let _stdout = wait_for(child.stdout.take().unwrap(), "ready");
        signal(&child, number);
        // Its standard input stays open: only the signal ends it.
        let stdin = child.stdin.take();
        assert_eq!(ended(&mut child).code(), Some(code), "{name}");
        drop(stdin);
        assert!(!dir.path().join("unfinished").exists(), "{name}");
    }
}

#[test]
fn a_signal_ends_a_recording_without_a_command_as_it_should() {
    for number in [Signal::INT, Signal::TERM] {
        let dir = tempfile::tempdir().unwrap();
        let mut child = piped(&mut record("rx7900xtx", dir.path()));
        let _stderr = wait_for(child.stderr.take().unwrap(), "recording to");
        let _stdin = child.stdin.take();
        signal(&child, number);
        let output = outcome(child);
        assert_eq!(output.status.code(), Some(0));
        let (stdout, _) = said(&output);
        assert!(stdout.starts_with("recorded "), "{stdout}");
        assert!(rows(&dir.path().join("gpu_events.parquet")) >= 0);
    }
}

#[test]
fn a_recording_beside_a_process_ends_with_it_and_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut beside = piped(Command::new("sh").args(["-c", "echo ready; read nothing"]));
    let _stdout = wait_for(beside.stdout.take().unwrap(), "ready");
    let pid = beside.id().to_string();
    let mut child = piped(record("rx7900xtx", dir.path()).args(["--pid", &pid]));
    let _stderr = wait_for(child.stderr.take().unwrap(), "recording to");
    drop(beside.stdin.take());
    let output = outcome(child);
    assert_eq!(output.status.code(), Some(0), "the process has ended, and nobody has asked for its code");
    ended(&mut beside);
    let facts = gpuvitals_record::RecordingFacts::read(dir.path()).unwrap();
    assert_eq!((facts.get("command"), facts.get("ended")), (Some("sh"), Some("stopped")));
}

#[test]
fn killed_it_is_repaired_by_the_command() {
    let dir = tempfile::tempdir().unwrap();
    // The line of progress after five seconds would be late; the test waits for the journal of the GPU's
    // rows.
    let mut child =
        piped(record("rx7900xtx", dir.path()).args(["--", "sh", "-c", "echo ready; read nothing"]));
    let _stdout = wait_for(child.stdout.take().unwrap(), "ready");
    let journal = dir.path().join("unfinished/gpu_events.000001.rows");
    until("rows", || std::fs::metadata(&journal).map_or(0, |meta| meta.len()), |length| *length > 0);
    let refused = gpuvitals!().arg("repair").arg(dir.path()).finished().unwrap();
    assert_eq!(refused.status.code(), Some(69), "it still runs");
    child.kill().unwrap();
    drop(child.stdin.take());
    ended(&mut child);

    let refused = record("rx7900xtx", dir.path()).args(["--duration", "100ms"]).finished().unwrap();
    assert_eq!(refused.status.code(), Some(65));
    assert!(said(&refused).1.contains("gpuvitals repair"), "{}", said(&refused).1);
    let repaired = gpuvitals!().arg("repair").arg(dir.path()).finished().unwrap();
    assert!(repaired.status.success(), "{}", said(&repaired).1);
    assert!(said(&repaired).0.contains("repaired"));
    assert!(rows(&dir.path().join("gpu_events.parquet")) > 0);
    let again = gpuvitals!().arg("repair").arg(dir.path()).finished().unwrap();
    assert!(again.status.success() && said(&again).0.contains("nothing to do"));
}

#[test]
fn a_full_disk_ends_the_recording_and_what_was_written_is_given_back() {
    // A limit on the length of files imitates a full disk; ignored, its signal becomes an error of the write.
    let limited = |dir: &Path, more: &[&str]| {
        let recording = record("rx7900xtx", dir);
        let mut command = Command::new("sh");
        command.args(["-c", r#"trap '' XFSZ; ulimit -f 8; exec "$@""#, "sh"]).arg(recording.get_program());
        command.args(recording.get_args()).arg("-q").args(more);
        piped(&mut command)
    };
    for (more, code) in [(&[][..], 74), (&["--", "sh", "-c", "read nothing; exit 5"], 5)] {
        let dir = tempfile::tempdir().unwrap();
        let mut child = limited(dir.path(), more);
        let mut told = wait_for(child.stderr.take().unwrap(), "recording has stopped");
        drop(child.stdin.take());
        let rest = within("the end of what it says", move || {
            let mut rest = String::new();
            told.read_to_string(&mut rest).unwrap();
            rest
        });
        assert_eq!(ended(&mut child).code(), Some(code), "{rest}");
        assert!(rest.contains("gpuvitals repair") && rest.contains("File too large"), "{rest}");
        let repaired = gpuvitals!().arg("repair").arg(dir.path()).finished().unwrap();
        assert!(repaired.status.success(), "{}", said(&repaired).1);
        assert!(said(&repaired).0.contains(" 0 bytes were no whole record"), "{}", said(&repaired).0);
        assert!(rows(&dir.path().join("gpu_events.parquet")) > 0);
    }
}
