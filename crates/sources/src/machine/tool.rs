//! A vendor's tool that can be run: a program of this machine, or one in a pod of another node.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use gpuvitals_core::clock::Moment;

use crate::probe::ProbeError;

/// Runs one tool. The dialects ask and parse; a `Tool` knows where the tool is.
pub trait Tool: fmt::Debug + Send + Sync {
    /// Runs it to its end, without a shell and with empty standard input. Blocks until then.
    ///
    /// # Errors
    /// If it cannot be found, reached or started, or does not end within `deadline`. Of more output than the tool's bound, the
    /// rest is left out, or the run fails.
    fn run(&self, args: &[&str], deadline: Duration) -> Result<ToolOutput, ToolError>;

    /// How long all runs for one question may take together.
    fn patience(&self) -> Duration;

    /// What is left of that for a question that began then.
    fn left(&self, begun: Moment) -> Duration {
        let spent_ns = u64::try_from(Moment::now().mono_ns - begun.mono_ns).unwrap_or_default();
        self.patience().saturating_sub(Duration::from_nanos(spent_ns))
    }
}

/// The output of a tool that ended.
#[derive(Debug, Clone)]
pub struct ToolOutput {
    /// Its exit code; none if a signal ended it. Some tools fail and yet print what they know: `rocm-smi` ends with 2
    /// if any value is missing.
    pub code: Option<i32>,
    /// Standard output, at most as long as the tool's bound.
    pub stdout: Vec<u8>,
    /// Standard error, at most 64 KiB.
    pub stderr: Vec<u8>,
}

/// Why a tool gave no output.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It is not on `PATH`, or not executable.
    #[error("{program} is not installed, or not on PATH")]
    NotInstalled {
        /// As asked for.
        program: String,
    },
    /// It is there, and does not start: no right, its interpreter is missing, no process or descriptor left.
    #[error("cannot start {program}")]
    Start {
        /// Path at which it was found.
        program: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// It was killed at its deadline, with all its children.
    #[error("{program} has not ended within {deadline:?} and was killed")]
    TimedOut {
        /// As asked for.
        program: String,
        /// How long it had.
        deadline: Duration,
    },
    /// The place where it runs, a pod of another node, could not be reached or refused to run it.
    #[error("cannot run {program} there")]
    Elsewhere {
        /// As asked for.
        program: String,
        /// What that place said.
        source: Box<dyn Error + Send + Sync>,
    },
    /// Its output or its end could not be read.
    #[error("cannot read what {program} says")]
    Read {
        /// As asked for.
        program: String,
        /// The kernel's error.
        source: io::Error,
    },
}

impl From<ToolError> for ProbeError {
    fn from(error: ToolError) -> Self {
        let text = gpuvitals_core::causes(&error);
        match &error {
            ToolError::NotInstalled { .. } => Self::Gone(text),
            ToolError::Start { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Self::Denied(text)
            }
            ToolError::Start { .. }
            | ToolError::TimedOut { .. }
            | ToolError::Elsewhere { .. }
            | ToolError::Read { .. } => Self::Failed(text),
        }
    }
}
