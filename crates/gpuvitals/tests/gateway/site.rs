//! Real services, and questions to a gateway.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use gpuvitals_rig::gpuvitals;
use gpuvitals_rig::program::{Finished as _, Process};
use gpuvitals_rig::waiting;
use serde_json::Value;

pub(crate) fn start(arguments: &[&str]) -> Process {
    start_with(arguments, &[])
}

/// With settings from the environment.
pub(crate) fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Process {
    let mut command = gpuvitals!();
    Process::start(command.envs(environment.iter().copied()).args(arguments).stderr(Stdio::piped()))
}

/// A recording of four simulated GPUs on two hosts, `SECONDS` long.
pub(crate) const SECONDS: u64 = 60;

pub(crate) fn recording(folder: &Path) -> String {
    let file = folder.join("fleet.csv");
    let seconds = format!("{SECONDS}s");
    let simulated =
        gpuvitals!().args(["simulate", "--gpus", "4", "--hosts", "2", "--duration", &seconds]).finished();
    std::fs::write(&file, simulated.unwrap().stdout).unwrap();
    file.to_str().unwrap().to_owned()
}

/// A gateway that is asked.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    pub(crate) url: String,
}

/// An answer: its status, its body (null unless it is JSON), and what it lacks.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) json: Value,
    pub(crate) partial: Option<String>,
}

impl Gateway {
    /// A process that says where its API is.
    pub(crate) fn of(process: Process) -> Self {
        let line = process.says("dashboard and API: ");
        let line: Value = serde_json::from_str(&line).unwrap();
        let (_, url) = line["message"].as_str().unwrap().split_once("API: ").unwrap();
        Self { url: url.trim_end_matches('/').to_owned(), process }
    }

    pub(crate) fn ask(&self, path: &str) -> Said {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(30)))
            .build()
            .into();
        let mut answer = agent.get(format!("{}{path}", self.url)).call().unwrap();
        let partial = answer.headers().get("x-partial").map(|text| text.to_str().unwrap().to_owned());
        let text = answer.body_mut().read_to_string().unwrap();
        Said {
            status: answer.status().as_u16(),
            json: serde_json::from_str(&text).unwrap_or_default(),
            partial,
        }
    }

    /// The text of an answer.
    pub(crate) fn text(&self, path: &str) -> String {
        ureq::get(format!("{}{path}", self.url)).call().unwrap().body_mut().read_to_string().unwrap()
    }

    /// The body of an answer that lacks nothing.
    pub(crate) fn get(&self, path: &str) -> Value {
        let said = self.ask(path);
        assert_eq!((said.status, &said.partial), (200, &None), "{path}: {}", said.json);
        said.json
    }

    /// Asks until the answer is as it should be.
    pub(crate) fn until(&self, path: &str, what: &str, is_so: impl Fn(&Said) -> bool) -> Said {
        waiting::until(what, || self.ask(path), is_so)
    }
}
