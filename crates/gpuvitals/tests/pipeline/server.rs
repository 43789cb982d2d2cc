//! A real `gpuvitals up` on a free port, as a user would start it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::Finished as _;
use gpuvitals_rig::waiting;
use serde_json::Value;

pub(crate) struct Server {
    pub child: Child,
    pub url: String,
    pub first_line: String,
}

impl Server {
    /// Starts it and waits for the line that names its address.
    pub(crate) fn start(data_dir: &Path, arguments: &[&str]) -> Self {
        Self::start_fed(data_dir, arguments, b"")
    }

    /// The same with an open standard input that begins with these bytes.
    pub(crate) fn start_fed(data_dir: &Path, arguments: &[&str], begin: &[u8]) -> Self {
        let mut child = gpuvitals!()
            .args(["up", "--port", "0", "--data-dir"])
            .arg(data_dir)
            .args(arguments)
            .stdin(if begin.is_empty() { Stdio::null() } else { Stdio::piped() })
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        if let Some(input) = &mut child.stdin {
            input.write_all(begin).unwrap();
        }
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (first_line, url, lines) = waiting::within("the server's address", move || {
            let first_line = lines.next().unwrap().unwrap();
            let url = lines.by_ref().find_map(|line| address(&line.unwrap()));
            (first_line, url.expect("the server ended before it named its address"), lines)
        });
        // Its log continues; somebody has to read it.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url, first_line }
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, body) = self.raw(path);
        assert!(status < 400, "{path}: {status} {body}");
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) fn raw(&self, path: &str) -> (u16, String) {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            .build()
            .into();
        let mut response = agent.get(format!("{}{path}", self.url)).call().unwrap();
        (
            response.status().as_u16(),
            response.body_mut().with_config().limit(1 << 28).read_to_string().unwrap(),
        )
    }

    /// Blocks until an event of the live stream makes `done` true.
    pub(crate) fn stream(&self, path: &str, mut done: impl FnMut(&Value) -> bool) {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().timeout_global(Some(Duration::from_mins(1))).build().into();
        let response = agent.get(format!("{}{path}", self.url)).call().unwrap();
        let reader: Box<dyn Read> = Box::new(response.into_body().into_reader());
        for line in BufReader::new(reader).lines() {
            let line = line.unwrap();
            if let Some(data) = line.strip_prefix("data:")
                && done(&serde_json::from_str(data.trim()).unwrap())
            {
                return;
            }
        }
        panic!("the stream ended");
    }

    /// Asks until the answer satisfies `done`.
    pub(crate) fn until(&self, path: &str, what: &str, done: impl Fn(&Value) -> bool) -> Value {
        waiting::until(what, || serde_json::from_str(&self.raw(path).1).unwrap(), done)
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        waiting::ended(&mut self.child);
    }

    /// SIGTERM; gives the exit code.
    pub(crate) fn terminate(mut self) -> Option<i32> {
        let sent = Command::new("kill").arg(self.child.id().to_string()).finished().unwrap();
        assert!(sent.status.success(), "{sent:?}");
        waiting::ended(&mut self.child).code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After a failed assertion nobody else ends it.
        let _ended_before = self.child.kill();
        let _reaped_before = self.child.wait();
    }
}

/// The address that a line of a machine's log names, if it does.
fn address(line: &str) -> Option<String> {
    let line: Value = serde_json::from_str(line).expect("every line of a machine's log is JSON");
    let url = line["message"].as_str().unwrap().strip_prefix("dashboard and API: ")?;
    Some(url.trim_end_matches('/').to_owned())
}
