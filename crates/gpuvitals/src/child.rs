//! A command that is run to its end, while signals that come to this program go on to it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::task::Poll;

use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::failure::{Exit, Failure};

/// Signals that would end this program. The second is whether a terminal sends it, to all of its foreground group.
const FORWARDED: &[(Signal, bool)] = &[
    (Signal::INT, true),
    (Signal::QUIT, true),
    (Signal::TERM, false),
    (Signal::HUP, false),
    (Signal::USR1, false),
    (Signal::USR2, false),
];

/// Signals that no longer end this program. One that comes before the command runs goes to it when it does.
pub(crate) struct Signals {
    runtime: Runtime,
    streams: Vec<(Signal, bool, Stream)>,
    ended: Stream,
}

impl Signals {
    /// Catches them from now on.
    ///
    /// # Errors
    /// When the system refuses handlers.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let failed = |error| Failure::caused(Exit::Io, "cannot catch signals", error);
        let runtime = Builder::new_current_thread().enable_io().build().map_err(failed)?;
        let entered = runtime.enter();
        let streams = FORWARDED
            .iter()
            .map(|&(kind, is_of_terminal)| {
                Ok((kind, is_of_terminal, signal(SignalKind::from_raw(kind.as_raw()))?))
            })
            .collect::<Result<_, std::io::Error>>()
            .map_err(failed)?;
        let ended = signal(SignalKind::child()).map_err(failed)?;
        drop(entered);
        Ok(Self { runtime, streams, ended })
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn run(mut self, words: &[OsString]) -> Result<ExitStatus, Failure> {
        let [program, arguments @ ..] = words else {
            return Err(Failure::new(Exit::Usage, "no command is given"));
        };
        let name = program.display();
        let mut child = Command::new(program)
            .args(arguments)
            .spawn()
            .map_err(|error| Failure::io(format!("cannot start {name}"), error))?;
        let (streams, ended) = (&mut self.streams, &mut self.ended);
        self.runtime.block_on(async {
            loop {
                match child.try_wait() {
                    Ok(Some(status)) => return Ok(status),
                    Ok(None) => {}
                    Err(error) => return Err(Failure::io(format!("cannot wait for {name}"), error)),
                }
                let came = std::future::poll_fn(|cx| {
                    for (kind, is_of_terminal, stream) in &mut *streams {
                        if stream.poll_recv(cx).is_ready() {
                            return Poll::Ready(Some((*kind, *is_of_terminal)));
                        }
                    }
                    ended.poll_recv(cx).map(|_| None)
                })
                .await;
                if let Some((kind, is_of_terminal)) = came {
                    forward(&child, kind, is_of_terminal);
                }
            }
        })
    }
}

/// Passes a signal on, unless the command has it already: a terminal sends its signals to the whole group in its foreground.
fn forward(child: &Child, kind: Signal, is_of_terminal: bool) {
    if is_of_terminal && is_in_foreground() {
        return;
    }
    // It may have ended just now; it is not reaped yet, so nobody else has its number.
    let _gone = kill_process(Pid::from_child(child), kind);
}

/// Whether this process is in the foreground group of its terminal: fields 5 and 8 of `/proc/self/stat`.
fn is_in_foreground() -> bool {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = fields.split_ascii_whitespace().skip(2);
    let group = fields.next();
    group.is_some() && fields.nth(2) == group
}

/// The exit code that passes on how a command ended: its own, or 128 and the signal, as shells do.
pub(crate) fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(Exit::Bug as u8)
}
