//! The command that is recorded.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

use gpuvitals_sources::recorder::MARK_SOCKET_VARIABLE;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

/// A running command, with our standard streams as its own.
#[derive(Debug)]
pub(super) struct Program {
    pid: Pid,
    /// Comes when the command has ended and been waited for.
    pub(super) ended: oneshot::Receiver<io::Result<ExitStatus>>,
}

impl Program {
    /// Starts it.
    ///
    /// # Errors
    /// With the exit code that shells give in this case, and a message.
    pub(super) fn start(
        name: &OsStr,
        arguments: &[OsString],
        marks: Option<&Path>,
    ) -> Result<Self, (u8, String)> {
        let mut command = Command::new(name);
        command.args(arguments);
        if let Some(path) = marks {
            command.env(MARK_SOCKET_VARIABLE, path);
        }
        let refused = |error: io::Error| {
            let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            (code, format!("cannot run {}: {error}", name.display()))
        };
        let mut child = command.spawn().map_err(refused)?;
        let pid = Pid::from_child(&child);
        let (tell, ended) = oneshot::channel();
        let wait = move || {
            // Nobody listens when the recorder itself failed.
            let _unheard = tell.send(child.wait());
        };
        std::thread::Builder::new().name("command".to_owned()).spawn(wait).map_err(refused)?;
        Ok(Self { pid, ended })
    }

    /// Passes a signal on.
    pub(super) fn signal(&self, number: i32) {
        if let Some(signal) = Signal::from_named_raw(number) {
            // It has just ended by itself: that is seen in a moment.
            let _gone = kill_process(self.pid, signal);
        }
    }
}

/// What to exit with when the command ended so: its code, or 128 and its signal, as shells do.
pub(super) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code & 0xff).ok()).unwrap_or(1)
}
