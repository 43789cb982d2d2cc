//! A real gpuvitals that sends.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::ended::ended;

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Service {
    child: Child,
    log: Arc<(Mutex<Vec<Value>>, Condvar)>,
}

pub(crate) fn gpuvitals(environment: &[(&str, &str)], arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvitals"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.envs(environment.iter().copied()).args(arguments).stdin(Stdio::null());
    command
}

impl Service {
    pub(crate) fn start(environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        let mut child = gpuvitals(environment, arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let log = Arc::<(Mutex<Vec<Value>>, Condvar)>::default();
        let (lines, reader) = (BufReader::new(child.stdout.take().unwrap()).lines(), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                reader.0.lock().unwrap().push(serde_json::from_str(&line).unwrap());
                reader.1.notify_all();
            }
        });
        Self { child, log }
    }

    /// The rest of a message with this beginning, once it is printed.
    pub(crate) fn says(&self, beginning: &str) -> String {
        let told = |lines: &Vec<Value>| {
            let mut messages = lines.iter().filter_map(|line| line["message"].as_str());
            messages.find_map(|message| message.strip_prefix(beginning)).map(str::to_owned)
        };
        let lines = self.log.0.lock().unwrap();
        let waited = self.log.1.wait_timeout_while(lines, PATIENCE, |lines| told(lines).is_none()).unwrap();
        told(&waited.0).unwrap_or_else(|| panic!("{beginning:?} was never said: {:#?}", waited.0))
    }

    /// All output so far.
    pub(crate) fn log(&self) -> String {
        self.log.0.lock().unwrap().iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
    }

    /// Its exit code, when it ends by itself.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        ended(&mut self.child).code()
    }

    /// SIGTERM, and its exit code.
    pub(crate) fn terminate(&mut self) -> Option<i32> {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").arg(id).status().unwrap().success());
        ended(&mut self.child).code()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // After a failed assertion nobody else ends it.
        let _ended_before = self.child.kill();
        let _reaped_before = self.child.wait();
    }
}

pub(crate) fn agent() -> ureq::Agent {
    ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE)).build().into()
}

pub(crate) fn get(url: &str) -> String {
    agent().get(url).call().unwrap().body_mut().read_to_string().unwrap()
}

/// The value of a series.
pub(crate) fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{series} is not in\n{text}")).parse().unwrap()
}
