//! Commands on a terminal that goes away, as after `tmux kill-server` or a lost `ssh`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A second is promised; the rest is for a machine that is busy with other tests.
const LIMIT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Runs a command in a shell on a terminal of its own, takes the terminal away once the command has written these words,
/// and waits for the command's end.
fn ends_with_its_terminal(shell: &str, words: &str) {
    let machine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/amd/sysfs/rx7900xtx");
    let folder = tempfile::tempdir().unwrap();
    let ended_with = folder.path().join("code");
    let mut terminal = Command::new("script")
        .args([
            "--quiet",
            "--flush",
            "--command",
            &format!("stty rows 40 cols 120; echo $$; {shell}"),
            "/dev/null",
        ])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .envs([("TERM", "xterm"), ("SHELL", "/bin/sh")])
        .envs([("GPUVITALS", Path::new(env!("CARGO_BIN_EXE_gpuvitals"))), ("MACHINE", &machine)])
        .env("ENDED", &ended_with)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(terminal.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    let id = Pid::from_raw(first.trim().parse().unwrap()).unwrap();
    let command = pidfd_open(id, PidfdFlags::empty()).unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(words) {
        let mut some = [0; 4096];
        let count = output.read(&mut some).unwrap();
        assert!(count > 0, "{shell} ended early: {}", String::from_utf8_lossy(&seen));
        seen.extend(some.iter().take(count));
    }
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    let ended = poll(&mut [PollFd::new(&command, PollFlags::IN)], Some(&LIMIT)).unwrap();
    if ended == 0 {
        rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    }
    assert_eq!(ended, 1, "{shell} outlived its terminal");
    if shell.contains("$ENDED") {
        assert_eq!(std::fs::read_to_string(ended_with).unwrap(), "0\n", "the code of {shell}");
    }
}

#[test]
fn top_ends_with_its_terminal() {
    ends_with_its_terminal(r#"exec "$GPUVITALS" top --sysfs "$MACHINE" --node node-a"#, "node-a");
}

#[test]
fn top_ends_with_its_terminal_though_the_hangup_is_ignored() {
    ends_with_its_terminal(
        r#"trap "" HUP; exec "$GPUVITALS" top --sysfs "$MACHINE" --node node-a"#,
        "node-a",
    );
}

#[test]
fn top_ends_with_0_though_it_has_nowhere_left_to_complain() {
    ends_with_its_terminal(
        r#"trap "" HUP; "$GPUVITALS" top --sysfs "$MACHINE" --node node-a; echo $? > "$ENDED""#,
        "node-a",
    );
}

#[test]
fn a_broker_that_reloads_on_sighup_ends_with_its_terminal() {
    ends_with_its_terminal(r#"exec "$GPUVITALS" broker --port 0"#, "queue: http");
}

#[test]
fn an_agent_that_reloads_on_sighup_ends_with_its_terminal() {
    let agent = r#"EXPORTER_PORT=0 exec "$GPUVITALS" agent --sysfs "$MACHINE""#;
    ends_with_its_terminal(agent, "metrics: http");
}
