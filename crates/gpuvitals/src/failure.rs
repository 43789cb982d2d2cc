//! The end of a program that cannot continue: a documented exit code and a message for people.

use std::error::Error;
use std::fmt;

use gpuvitals_listener::AccessError;
use gpuvitals_outgoing::otlp::OtlpError;
use gpuvitals_queue::link::{ConnectError, CredentialError};
use gpuvitals_record::RecordError;
use gpuvitals_sources::settings::NoDirectory;

/// Exit codes, after `sysexits.h`. Part of the interface: scripts rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The command line is wrong.
    Usage = 64,
    /// The input is invalid.
    Data = 65,
    /// A server or device that is needed does not answer.
    Unavailable = 69,
    /// A bug in this program.
    Bug = 70,
    /// Reading or writing failed.
    Io = 74,
    /// A right is missing.
    Permission = 77,
    /// The configuration is wrong.
    Config = 78,
    /// The command that was to run cannot be run, as shells say it.
    NotRunnable = 126,
    /// The command that was to run is not there, as shells say it.
    NotFound = 127,
}

impl Exit {
    /// The code of an I/O error: a missing right has its own.
    pub(crate) fn of(error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::PermissionDenied { Self::Permission } else { Self::Io }
    }
}

/// A failure: the problem, and the remedy.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    /// A failure without a deeper cause.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), source: None }
    }

    /// A failure with its cause.
    pub(crate) fn caused(
        exit: Exit,
        message: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { exit, message: message.into(), source: Some(source.into()) }
    }

    /// An I/O failure; a missing right has its own exit code.
    pub(crate) fn io(message: impl Into<String>, source: std::io::Error) -> Self {
        let exit = Exit::of(&source);
        Self::caused(exit, message, source)
    }

    /// The same, of a file that a setting names.
    pub(crate) fn in_setting(self, setting: &str) -> Self {
        Self { message: format!("configuration: {setting}: {}", self.message), ..self }
    }

    /// A recording that cannot be read or made; what was to be done with it is an infinitive: `compare`.
    pub(crate) fn of_recording(what: &str, error: RecordError) -> Self {
        match error {
            RecordError::Io { action, ref path, source } => {
                Self::io(format!("cannot {action} {}", path.display()), source)
            }
            error => Self::caused(Exit::Data, format!("cannot {what}"), error),
        }
    }

    /// The process's exit code.
    pub(crate) fn code(&self) -> u8 {
        self.exit as u8
    }
}

impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Self {
        Self::caused(Exit::Config, "configuration: listener", error)
    }
}

impl From<CredentialError> for Failure {
    fn from(error: CredentialError) -> Self {
        Self::caused(Exit::Config, "configuration", error)
    }
}

impl From<NoDirectory> for Failure {
    fn from(error: NoDirectory) -> Self {
        Self::caused(Exit::Config, "configuration", error)
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::caused(Exit::Config, "configuration: message_queue", error)
    }
}

impl From<OtlpError> for Failure {
    fn from(error: OtlpError) -> Self {
        match error {
            OtlpError::Thread { what, source } => Self::io(format!("cannot start {what}"), source),
            error => Self::caused(Exit::Config, "configuration", error),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            None => Ok(()),
            Some(source) => write!(f, ": {}", gpuvitals_core::causes(source.as_ref())),
        }
    }
}

impl Error for Failure {}
