//! What a hook tells: some variables of its environment, in the form of `/proc/PID/environ`.
//!
//! `HOOK=prolog`, then `NAME=value` of each variable that is set, each ended by a zero byte. Then the hook ends its side, and the agent answers
//! with a line: `taken`, or why not. A recorder tells of its run in the same words: `HOOK=run`, and `SLURM_JOB_ID` is `run:NAME`.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use gpuvitals_core::usage::RUN_HOLDER;

/// Most bytes of a message.
pub(crate) const MESSAGE_LEN_MAX: usize = 64 << 10;
/// Most bytes of the value of a variable; the rest is cut off.
const VALUE_LEN_MAX: usize = 2_800;
/// Most bytes of a list of GPUs: a name of an instance has 40, and a node may have more than a hundred.
pub(crate) const LIST_LEN_MAX: usize = 8 << 10;
/// Most bytes of the name of a variable, with what stands around it.
const NAME_LEN_MAX: usize = 32;
/// Answer to a message that was taken.
pub(crate) const TAKEN: &str = "taken\n";
/// Most bytes of an answer.
const ANSWER_LEN_MAX: u64 = 1 << 10;
/// Longest wait for the agent to take some bytes or to give some.
const STALL_MAX: Duration = Duration::from_secs(1);

/// The variables that are told. No other one leaves the hook.
const VARIABLES: [&str; 19] = [
    "SLURM_JOB_ID",
    "SLURM_JOB_UID",
    "SLURM_JOB_USER",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_NAME",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_COMMENT",
    NUMBERED_GPUS,
    NAMED_GPUS,
    ASKED_GPUS,
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_JOB_EXIT_CODE",
    "SLURM_JOB_EXIT_CODE2",
    RUN_PROCESS,
    RUN_AGE,
    RUN_MARK_AGE,
    RUN_IS_OVER,
];

/// Process of a recorder: recordings of one name are told apart by it.
pub(crate) const RUN_PROCESS: &str = "RUN_PROCESS";
/// Nanoseconds since a recording began.
pub(crate) const RUN_AGE: &str = "RUN_AGE_NS";
/// Nanoseconds since the last mark of a recording.
pub(crate) const RUN_MARK_AGE: &str = "RUN_MARK_AGE_NS";
/// Set to anything: the recording is over.
pub(crate) const RUN_IS_OVER: &str = "RUN_IS_OVER";

/// The list of GPUs by their names, which are long.
const NAMED_GPUS: &str = "CUDA_VISIBLE_DEVICES";
/// Their list by numbers.
const NUMBERED_GPUS: &str = "SLURM_JOB_GPUS";
/// How many were asked for on all hosts. Slurm gives it to jobs and to none of these scripts; a script may set it.
pub(crate) const ASKED_GPUS: &str = "SLURM_GPUS";

const _: () = assert!(
    (VARIABLES.len() + 1) * (NAME_LEN_MAX + VALUE_LEN_MAX) + LIST_LEN_MAX <= MESSAGE_LEN_MAX,
    "a message holds all variables, however long they are"
);

/// The hooks of a batch system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum JobHook {
    /// Slurm's Prolog: on each node of a job before it starts; knows its GPUs
    Prolog,
    /// Slurm's Epilog: on each node of a job when it has ended
    Epilog,
    /// Slurm's PrologSlurmctld and EpilogSlurmctld: know name and account
    Controller,
    /// The recorder of a run, which tells again as long as it records
    #[value(skip)]
    Run,
}

impl JobHook {
    const ALL: [Self; 4] = [Self::Prolog, Self::Epilog, Self::Controller, Self::Run];

    /// Its name in messages and rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Prolog => "prolog",
            Self::Epilog => "epilog",
            Self::Controller => "controller",
            Self::Run => "run",
        }
    }
}

/// Why a message is none, or was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HookError {
    /// The environment is not that of a hook.
    #[error("SLURM_JOB_ID is not set: this command is for the scripts that Slurm runs")]
    NoJob,
    /// The bytes are no message.
    #[error("the message has no {0}")]
    Malformed(&'static str),
    /// No agent can be reached.
    #[error("failed to reach the agent at {path}")]
    Socket {
        /// The agent's socket.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The agent has not taken it.
    #[error("the agent has not taken it: {0}")]
    Refused(String),
}

/// What a recorder tells of its run.
#[derive(Debug, Clone, Copy)]
pub struct RunNews<'a> {
    /// What the run is called.
    pub name: &'a str,
    /// Keys of the GPUs that it has.
    pub gpus: &'a [Arc<str>],
    /// Time since it began: an agent that starts later knows it, too.
    pub age: Duration,
    /// Time since its program last set a mark; none: it has set none.
    pub mark_age: Option<Duration>,
    /// Whether it has ended.
    pub is_over: bool,
}

/// What a hook tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookMessage {
    pub(crate) hook: JobHook,
    variables: BTreeMap<&'static str, String>,
}

impl HookMessage {
    /// By the environment of a hook.
    ///
    /// # Errors
    /// When that names no job.
    pub fn of(hook: JobHook, variable: impl Fn(&str) -> Option<String>) -> Result<Self, HookError> {
        let message = Self::with(hook, variable);
        message.get("SLURM_JOB_ID").ok_or(HookError::NoJob)?;
        Ok(message)
    }

    fn with(hook: JobHook, variable: impl Fn(&str) -> Option<String>) -> Self {
        let told = VARIABLES.into_iter().filter_map(|name| Some((name, cut(name, variable(name)?))));
        Self { hook, variables: told.filter(|(_, value)| !value.is_empty()).collect() }
    }

    /// Of a run that this process records.
    pub fn of_run(news: &RunNews<'_>) -> Self {
        let gpus = news.gpus.join(",");
        Self::with(JobHook::Run, |name| match name {
            "SLURM_JOB_ID" => Some(format!("{RUN_HOLDER}{}", news.name)),
            // Names that are no UUIDs of NVIDIA are read from the one, those from the other.
            NUMBERED_GPUS | NAMED_GPUS => Some(gpus.clone()),
            RUN_PROCESS => Some(std::process::id().to_string()),
            RUN_AGE => Some(news.age.as_nanos().to_string()),
            RUN_MARK_AGE => news.mark_age.map(|age| age.as_nanos().to_string()),
            RUN_IS_OVER => news.is_over.then(|| "yes".to_owned()),
            _ => None,
        })
    }

    /// As it is sent.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("HOOK={}\0", self.hook.name());
        for (name, value) in &self.variables {
            text.extend([*name, "=", value.as_str(), "\0"]);
        }
        text
    }

    /// As it came. Variables of later versions of a hook are left out.
    ///
    /// # Errors
    /// When it is no message.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, HookError> {
        let text = std::str::from_utf8(bytes).map_err(|_| HookError::Malformed("text in UTF-8"))?;
        let whole = text.strip_suffix('\0').ok_or(HookError::Malformed("end"))?;
        let mut lines = whole.split('\0');
        let hook = lines.next().and_then(|line| line.strip_prefix("HOOK="));
        let hook = hook.and_then(|name| JobHook::ALL.into_iter().find(|hook| hook.name() == name));
        let hook = hook.ok_or(HookError::Malformed("hook that is known"))?;
        let mut told = BTreeMap::new();
        for line in lines {
            let (name, value) = line.split_once('=').ok_or(HookError::Malformed("value of a variable"))?;
            told.insert(name, value);
        }
        Self::of(hook, |name| told.get(name).map(|value| (*value).to_owned()))
    }

    /// The value of a variable.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Tells it to the agent that listens there. Waits for its answer, some seconds at most.
    ///
    /// # Errors
    /// When nobody listens there, or the agent has not taken it.
    pub fn tell(&self, socket: &Path) -> Result<(), HookError> {
        let failed = |source| HookError::Socket { path: socket.display().to_string(), source };
        let answer = self.exchange(socket).map_err(failed)?;
        if answer == TAKEN {
            Ok(())
        } else {
            Err(HookError::Refused(answer.trim().escape_debug().to_string()))
        }
    }

    fn exchange(&self, socket: &Path) -> io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_write_timeout(Some(STALL_MAX))?;
        stream.set_read_timeout(Some(STALL_MAX))?;
        // An agent that refuses does not read to the end: its answer says why.
        let sent = stream.write_all(self.text().as_bytes()).and_then(|()| stream.shutdown(Shutdown::Write));
        let mut answer = String::new();
        let read = stream.take(ANSWER_LEN_MAX).read_to_string(&mut answer);
        if !answer.is_empty() {
            return Ok(answer);
        }
        sent?;
        read?;
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// The value of a variable if it is not too long, else its begin; of a list of GPUs whole names alone, since a part of one may be
/// another's.
fn cut(name: &str, mut value: String) -> String {
    let len_max = if name == NAMED_GPUS { LIST_LEN_MAX } else { VALUE_LEN_MAX };
    if value.len() <= len_max {
        return value;
    }
    let is_list = [NAMED_GPUS, NUMBERED_GPUS].contains(&name);
    let end = value.floor_char_boundary(len_max);
    // What follows the last comma is cut in its middle, or just fits.
    let whole = || value.get(..end).and_then(|begin| begin.rfind(',')).unwrap_or(0);
    let end = if is_list { whole() } else { end };
    value.truncate(end);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_as_it_was_sent_and_has_the_named_variables_alone() {
        let environment = [
            ("SLURM_JOB_ID", "4711"),
            ("SLURM_JOB_USER", "ada"),
            ("SLURM_JOB_NAME", "a=b c"),
            ("SLURM_JOB_ACCOUNT", ""),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        let variable = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let message = HookMessage::of(JobHook::Prolog, variable).unwrap();
        let text = message.text();
        assert_eq!(text, "HOOK=prolog\0SLURM_JOB_ID=4711\0SLURM_JOB_NAME=a=b c\0SLURM_JOB_USER=ada\0");
        assert_eq!(HookMessage::read(text.as_bytes()).unwrap(), message);
        let nobody = HookMessage::of(JobHook::Prolog, |_| None).unwrap_err();
        assert!(nobody.to_string().contains("SLURM_JOB_ID is not set"), "{nobody}");
    }

    #[test]
    fn the_longest_environment_makes_a_message_that_fits() {
        let message = HookMessage::of(JobHook::Controller, |_| Some("\u{fc},".repeat(100_000))).unwrap();
        let text = message.text();
        assert!(text.len() <= MESSAGE_LEN_MAX, "{}", text.len());
        assert_eq!(HookMessage::read(text.as_bytes()).unwrap(), message);
    }

    #[test]
    fn what_is_no_message_is_refused_with_the_reason() {
        for (bytes, words) in [
            (&b""[..], "no end"),
            (b"HOOK=prolog\0SLURM_JOB_ID=1", "no end"),
            (b"SLURM_JOB_ID=1\0", "no hook"),
            (b"HOOK=other\0SLURM_JOB_ID=1\0", "no hook"),
            (b"HOOK=prolog\0\xff=1\0", "no text"),
            (b"HOOK=prolog\0SLURM_JOB_ID\0", "no value"),
            (b"HOOK=prolog\0SLURM_JOB_USER=ada\0", "SLURM_JOB_ID is not set"),
        ] {
            let error = HookMessage::read(bytes).unwrap_err().to_string();
            assert!(error.contains(words), "{bytes:?}: {error}");
        }
    }
}
