//! A `/sys` that has faults by rule, mounted over a captured tree. `faulty_sysfs.py` beside this file
//! describes the rules.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};

use serde_json::Value;

use crate::waiting;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/faulty_sysfs.py");
/// Debian's Python, which has Debian's modules; another may come first in `PATH`.
const PYTHON: &str = "/usr/bin/python3";

/// A mounted look-alike; unmounted when dropped.
#[derive(Debug)]
pub struct FaultySysfs {
    child: Child,
    rules: Option<ChildStdin>,
    answers: Receiver<String>,
    at: tempfile::TempDir,
}

impl FaultySysfs {
    /// Mounts it over a tree. None, and a line on standard error, if this machine has no FUSE: the test is
    /// skipped.
    pub fn over(base: &Path) -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            return skip("there is no /dev/fuse");
        }
        let python = if Path::new(PYTHON).exists() { PYTHON } else { "python3" };
        let at = tempfile::tempdir().unwrap();
        let started = Command::new(python)
            .args([Path::new(PROGRAM), &base.canonicalize().unwrap(), at.path()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = started else { return skip("there is no python3") };
        let rules = child.stdin.take();
        let answers = lines_of(child.stdout.take().unwrap());
        let sysfs = Self { child, rules, answers, at };
        let first = sysfs.answer();
        if let Some(missing) = first["missing"].as_str() {
            return skip(missing);
        }
        assert_eq!(first["ready"], true, "{first}");
        Some(sysfs)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        self.at.path()
    }

    /// Gives it a line, and returns when it is in force: how many reads of the path that is named there have begun.
    #[expect(clippy::needless_pass_by_value, reason = "a line is written where it is passed")]
    pub fn tell(&mut self, line: Value) -> u64 {
        writeln!(self.rules.as_mut().unwrap(), "{line}").unwrap();
        self.answer()["reads"].as_u64().unwrap()
    }

    fn answer(&self) -> Value {
        let line = waiting::received("an answer of the look-alike", &self.answers);
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: the look-alike said {line:?}"))
    }
}

impl Drop for FaultySysfs {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.rules = None;
        waiting::clean_up(|| {
            waiting::ended(&mut self.child);
        });
    }
}

/// What it answers, line by line, so that a test waits no longer than it should.
fn lines_of(stdout: ChildStdout) -> Receiver<String> {
    let (told, lines) = sync_channel(1);
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if told.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// Prints it even though a test's own output is captured.
fn skip<T>(why: &str) -> Option<T> {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    std::io::stderr().write_all(format!("skipped {test}: {why}\n").as_bytes()).unwrap();
    None
}
