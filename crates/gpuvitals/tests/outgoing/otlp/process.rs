//! A real gpuvitals that sends.

use std::process::Command;

use gpuvitals_rig::program::Process;
use gpuvitals_rig::waiting::PATIENCE;
use serde_json::Value;

pub(crate) struct Service {
    pub(crate) process: Process,
}

pub(crate) fn gpuvitals(environment: &[(&str, &str)], arguments: &[&str]) -> Command {
    let mut command = gpuvitals_rig::gpuvitals!();
    command.envs(environment.iter().copied()).args(arguments);
    command
}

impl Service {
    pub(crate) fn start(environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        Self { process: Process::start(&mut gpuvitals(environment, arguments)) }
    }

    /// The rest of a message with this beginning, once it is printed.
    pub(crate) fn says(&self, beginning: &str) -> String {
        let rest = |line: &String| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["message"].as_str()?.strip_prefix(beginning).map(str::to_owned)
        };
        self.process.said(beginning, |lines| lines.iter().find_map(rest))
    }

    /// Its exit code, when it ends by itself.
    pub(crate) fn ended(self) -> Option<i32> {
        self.process.ended().0
    }

    /// SIGTERM, and its exit code.
    pub(crate) fn terminate(self) -> Option<i32> {
        self.process.terminated().0
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
