//! A real gpuvitals, its output, and its end.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use crate::waiting::{self, PATIENCE};

/// The program, with only `PATH` of this environment. Only the tests of the crate `gpuvitals` know where it is, so this
/// is a macro.
#[macro_export]
macro_rules! gpuvitals {
    () => {
        $crate::program::clean(env!("CARGO_BIN_EXE_gpuvitals"))
    };
}

/// A program with only `PATH` of this environment.
pub fn clean(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// A command that runs to its end. `Command::output` would wait for ever for one that hangs.
pub trait Finished {
    /// How it ended, and what it wrote; it has no input. One that does not end is killed, and the test fails.
    ///
    /// # Errors
    /// If it cannot be started.
    fn finished(&mut self) -> io::Result<Output>;
}

impl Finished for Command {
    fn finished(&mut self) -> io::Result<Output> {
        self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.spawn()?;
        Ok(waiting::outcome_of(&format!("{self:?}"), child))
    }
}

/// A process whose output is kept; killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: Arc<OutputLog>,
}

#[derive(Debug, Default)]
struct OutputLog {
    lines: Mutex<Vec<String>>,
    came: Condvar,
}

impl Process {
    /// Starts a command and reads its output: standard output, and standard error if that is piped.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(OutputLog::default());
        let out = child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>);
        let error = child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>);
        for stream in out.into_iter().chain(error) {
            let log = Arc::clone(&log);
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    log.lines.lock().unwrap().push(line);
                    log.came.notify_all();
                }
            });
        }
        Self { child, log }
    }

    /// The result of `find` in the lines, once there is one.
    pub fn said<T>(&self, what: &str, find: impl Fn(&[String]) -> Option<T>) -> T {
        let mut lines = self.log.lines.lock().unwrap();
        loop {
            if let Some(found) = find(&lines) {
                return found;
            }
            let waited = self.log.came.wait_timeout(lines, PATIENCE).unwrap();
            assert!(!waited.1.timed_out(), "{what:?} never came: {:#?}", waited.0);
            lines = waited.0;
        }
    }

    /// The line with these words, once it is there.
    pub fn says(&self, words: &str) -> String {
        self.said(words, |lines| lines.iter().find(|line| line.contains(words)).cloned())
    }

    /// A signal by name.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).finished().unwrap();
        assert!(sent.status.success(), "{sent:?}");
    }

    /// Ends it with SIGKILL, and waits for that.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        waiting::ended(&mut self.child);
    }

    /// Waits for its end: exit code, and all output.
    pub fn ended(mut self) -> (Option<i32>, String) {
        let status = waiting::ended(&mut self.child);
        // The threads that read have seen the end soon after.
        waiting::until("the end of its output", || Arc::strong_count(&self.log), |holders| *holders == 1);
        let lines = self.log.lines.lock().unwrap();
        (status.code(), lines.join("\n"))
    }

    /// SIGTERM, and its end.
    pub fn terminated(self) -> (Option<i32>, String) {
        self.signal("TERM");
        self.ended()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // After a failed assertion nobody else ends it.
        let _ended_before = self.child.kill();
        let _reaped_before = self.child.wait();
    }
}
