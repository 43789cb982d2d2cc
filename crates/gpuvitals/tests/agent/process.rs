//! A real `gpuvitals agent` on a free port.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::{Finished as _, Process};
use gpuvitals_rig::waiting;
use serde_json::Value;

pub(crate) struct Agent {
    pub process: Process,
    /// `http://127.0.0.1:1234/metrics`.
    pub url: String,
}

/// The answer to curl.
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

impl Agent {
    /// Starts it on a free port and waits for the line that names its address.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_in(arguments, &[])
    }

    /// The same with an environment.
    pub(crate) fn start_in(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = gpuvitals!();
        command.args(["agent", "--log-level", "debug"]);
        if !arguments.contains(&"--node") {
            command.args(["--node", "n1"]);
        }
        command.args(arguments).env("EXPORTER_PORT", "0").envs(environment.iter().copied());
        let mut agent = Self { process: Process::start(&mut command), url: String::new() };
        let line = agent.logged("metrics: http");
        line["message"].as_str().unwrap().trim_start_matches("metrics: ").clone_into(&mut agent.url);
        agent
    }

    /// Waits for a log line with these words.
    pub(crate) fn logged(&self, words: &str) -> Value {
        serde_json::from_str(&self.process.says(words)).expect("every line of a machine's log is JSON")
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

    /// Scrapes until the text satisfies `done`.
    pub(crate) fn until(&self, what: &str, done: impl Fn(&str) -> bool) -> String {
        waiting::until(what, || self.scrape(), |text| done(text))
    }

    /// SIGTERM; gives the exit code.
    pub(crate) fn terminate(self) -> Option<i32> {
        self.process.terminated().0
    }
}

/// Requests with curl; curl's error if there was no HTTP answer.
pub(crate) fn curl(url: &str, arguments: &[&str]) -> Result<Got, String> {
    let output = Command::new("curl")
        .args(["-sS", "-i", "--max-time", "30", "--noproxy", "*"])
        .args(arguments)
        .arg(url)
        .finished()
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
