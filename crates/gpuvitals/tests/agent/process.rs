//! A real `gpuvitals agent` on a free port.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::Value;

/// Longest wait for something that comes by itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Agent {
    pub child: Child,
    /// `http://127.0.0.1:1234/metrics`.
    pub url: String,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    lines: Mutex<Vec<Value>>,
    came: Condvar,
}

/// What curl got.
pub(crate) struct Got {
    pub status: u16,
    /// Names in lower case.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Got {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// Path of a fixture of the project.
pub(crate) fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(path).canonicalize().unwrap()
}

pub(crate) fn gpuvitals() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvitals"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

impl Agent {
    /// Starts it on a free port and waits for the line that names its address.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_in(arguments, &[])
    }

    /// The same with an environment.
    pub(crate) fn start_in(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut child = gpuvitals()
            .args(["agent", "--node", "n1", "--log-level", "debug"])
            .args(arguments)
            .env("EXPORTER_PORT", "0")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let log = Arc::new(Log::default());
        let reader = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines {
                let line =
                    serde_json::from_str(&line.unwrap()).expect("every line of a machine's log is JSON");
                reader.lines.lock().unwrap().push(line);
                reader.came.notify_all();
            }
        });
        let mut agent = Self { child, url: String::new(), log };
        let line = agent.logged("metrics: http");
        line["message"].as_str().unwrap().trim_start_matches("metrics: ").clone_into(&mut agent.url);
        agent
    }

    /// Waits for a log line whose message holds these words.
    pub(crate) fn logged(&self, words: &str) -> Value {
        let find = |lines: &[Value]| {
            let is = |line: &&Value| line["message"].as_str().is_some_and(|message| message.contains(words));
            lines.iter().find(is).cloned()
        };
        let lines = self.log.lines.lock().unwrap();
        let (lines, _) =
            self.log.came.wait_timeout_while(lines, PATIENCE, |lines| find(lines).is_none()).unwrap();
        find(&lines).unwrap_or_else(|| panic!("{words:?} was never logged: {lines:#?}"))
    }

    /// Everything that was logged so far.
    pub(crate) fn log_text(&self) -> String {
        format!("{:?}", self.log.lines.lock().unwrap())
    }

    /// The URL of another path.
    pub(crate) fn at(&self, path: &str) -> String {
        let authority = self.url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/");
        format!("{authority}{path}")
    }

    /// Asks with curl. Panics when no HTTP came about.
    pub(crate) fn get(&self, path: &str, arguments: &[&str]) -> Got {
        curl(&self.at(path), arguments).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// The text of a scrape.
    pub(crate) fn scrape(&self) -> String {
        let got = curl(&self.url, &[]).unwrap();
        assert_eq!(got.status, 200, "{}", got.text());
        got.text().to_owned()
    }

    /// Scrapes until the text satisfies: for what has no event to wait for from outside.
    pub(crate) fn until(&self, what: &str, done: impl Fn(&str) -> bool) -> String {
        let mut text = String::new();
        for _ in 0..600 {
            text = self.scrape();
            if done(&text) {
                return text;
            }
            std::thread::park_timeout(Duration::from_millis(50));
        }
        panic!("{what} never came; last scrape:\n{text}");
    }

    /// A signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// SIGTERM; gives the exit code.
    pub(crate) fn terminate(mut self) -> Option<i32> {
        self.signal("TERM");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // After an assertion failed nobody else ends it.
        let _ended_before = self.child.kill();
        let _reaped_before = self.child.wait();
    }
}

/// Asks with curl; what curl says when no HTTP came about.
pub(crate) fn curl(url: &str, arguments: &[&str]) -> Result<Got, String> {
    let output = Command::new("curl")
        .args(["-sS", "-i", "--max-time", "30", "--noproxy", "*"])
        .args(arguments)
        .arg(url)
        .output()
        .expect("curl runs; scripts/need curl installs it");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let end = output.stdout.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(output.stdout[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_lowercase(), value.to_owned())
    };
    let body = output.stdout[end + 4..].to_vec();
    Ok(Got { status, headers: lines.map(header).collect(), body })
}

/// The value of the one series that begins so.
pub(crate) fn value(text: &str, series: &str) -> Option<f64> {
    let mut found = text.lines().filter_map(|line| line.strip_prefix(series)?.trim().parse().ok());
    let first = found.next();
    assert!(found.next().is_none(), "{series} is there twice in\n{text}");
    first
}
