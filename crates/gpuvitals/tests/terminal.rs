//! Commands on a terminal that goes away, as after `tmux kill-server` or a lost `ssh`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::port::Port;
use gpuvitals_rig::program::Process;
use gpuvitals_rig::waiting::{ended, within};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Ten seconds, until which a command has ended. One is promised; the rest is for a machine that is busy with other tests.
const LOOKS_UNTIL_THE_DEADLINE: usize = 200;
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Most time of a processor from the hang-up on: some hundredths of a second are usual, and one that spins takes all that it gets.
const CPU_TICKS_MAX: u64 = 100;

/// A terminal, which goes away at the latest when the test ends.
struct Terminal(Child);

impl Drop for Terminal {
    fn drop(&mut self) {
        // After a failed assertion nobody else ends it.
        let _ended_before = self.0.kill();
        let _reaped_before = self.0.wait();
    }
}

/// The time of the processors that a process has taken, in hundredths of a second; none once it is gone.
fn cpu_ticks(id: Pid) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.as_raw_nonzero())).ok()?;
    // Behind the name, which may have spaces: the 12th field and the next, of the program and of the kernel for it.
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
    Some(fields.filter_map(|field| field.parse::<u64>().ok()).sum())
}

/// Runs a command in a shell on a terminal of its own, takes the terminal away once the command has written these words,
/// and waits for the command's end.
fn ends_with_its_terminal(shell: &str, words: &str) {
    ends_with_its_terminal_in(shell, words, &[]);
}

/// The same with more in its environment.
fn ends_with_its_terminal_in(shell: &str, words: &str, more: &[(&str, &str)]) {
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
        .envs(more.iter().copied())
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(terminal.stdout.take().unwrap());
    let mut terminal = Terminal(terminal);
    let (first, mut output) = within("the number of the shell", move || {
        let mut first = String::new();
        output.read_line(&mut first).unwrap();
        (first, output)
    });
    let id = Pid::from_raw(first.trim().parse().unwrap()).unwrap();
    let command = pidfd_open(id, PidfdFlags::empty()).unwrap();
    let wanted = words.to_owned();
    let _output = within(&format!("{words:?} of {shell}"), move || {
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains(&wanted) {
            let mut some = [0; 4096];
            let count = output.read(&mut some).unwrap();
            assert!(count > 0, "it ended early: {}", String::from_utf8_lossy(&seen));
            seen.extend(some.iter().take(count));
        }
        output
    });
    let before = cpu_ticks(id).unwrap();
    terminal.0.kill().unwrap();
    ended(&mut terminal.0);
    let mut taken = before;
    let has_ended = (0..LOOKS_UNTIL_THE_DEADLINE).any(|_| {
        taken = cpu_ticks(id).unwrap_or(taken);
        poll(&mut [PollFd::new(&command, PollFlags::IN)], Some(&LOOK)).unwrap() == 1
    });
    if !has_ended {
        rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
    }
    assert!(has_ended, "{shell} outlived its terminal");
    let ticks = taken - before;
    assert!(ticks <= CPU_TICKS_MAX, "{shell} took {ticks} hundredths of a second for its end");
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

/// Those that reload on SIGHUP, too. Each in a folder of its own.
#[test]
fn every_command_that_goes_on_ends_with_its_terminal() {
    let port = Port::new();
    let broker = Process::start(gpuvitals!().args(["broker", "--port", &port]));
    broker.says("queue: http");
    let queue = format!("http://127.0.0.1:{port}");
    let more = [("GPUVITALS_BROKER_PORT", &*port), ("QUEUE", &*queue)];
    for (command, words) in [
        (r#"exec "$GPUVITALS" sample --sysfs "$MACHINE" -i 50ms"#, "time (UTC)"),
        (r#"exec "$GPUVITALS" record --sysfs "$MACHINE" -o recorded"#, "late p99"),
        (r#"exec "$GPUVITALS" queue tail t --take --mq-url grpc://127.0.0.1:1"#, "is not reached"),
        (
            r#"printf 'timestamp,uuid,power_w\n2026-01-01T00:00:00Z,a,100\n' > rows.csv; exec "$GPUVITALS" stream --csv rows.csv --mq-url "$QUEUE" --metrics-port 0"#,
            "streaming rows.csv",
        ),
        (
            r#"GPUVITALS_BROKER_PORT=0 exec "$GPUVITALS" up --port 0 --sysfs "$MACHINE" --data-dir data"#,
            "API: http",
        ),
        (r#"exec "$GPUVITALS" collect --api-port 0 --data-dir data"#, "collector API"),
        (
            r#"exec "$GPUVITALS" serve --port 0 --collectors http://127.0.0.1:1 --mq-url "$QUEUE""#,
            "API: http",
        ),
        (r#"exec "$GPUVITALS" broker --port 0"#, "queue: http"),
        (r#"EXPORTER_PORT=0 exec "$GPUVITALS" agent --sysfs "$MACHINE""#, "metrics: http"),
    ] {
        ends_with_its_terminal_in(command, words, &more);
    }
    assert_eq!(broker.terminated().0, Some(0));
}
