//! Waiting: for a command to end, while signals to this program are passed on to it; or, without one, for a
//! signal.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::task::Poll;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
use tokio::time::{Instant, Interval, MissedTickBehavior};

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

/// How often a wait is interrupted for a check.
const LOOK: Duration = Duration::from_millis(500);

/// Signals that no longer end this program. One that comes before the command runs is passed on when it does.
/// Those that were ignored when this program started stay so, for the command too: this is the purpose of
/// `nohup`.
pub(crate) struct Signals {
    runtime: Runtime,
    streams: Vec<(Signal, bool, Stream)>,
    ended: Stream,
    looks: Interval,
}

impl Signals {
    /// Catches them from now on.
    ///
    /// # Errors
    /// When the system refuses handlers.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let failed = |error| Failure::caused(Exit::Io, "cannot catch signals", error);
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let entered = runtime.enter();
        let streams = FORWARDED
            .iter()
            .filter(|(kind, _)| !is_ignored(SignalKind::from_raw(kind.as_raw())))
            .map(|&(kind, is_of_terminal)| {
                Ok((kind, is_of_terminal, signal(SignalKind::from_raw(kind.as_raw()))?))
            })
            .collect::<Result<_, std::io::Error>>()
            .map_err(failed)?;
        let ended = signal(SignalKind::child()).map_err(failed)?;
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        drop(entered);
        Ok(Self { runtime, streams, ended, looks })
    }

    /// Runs a command to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn run(mut self, words: &[OsString]) -> Result<ExitStatus, Failure> {
        let [program, arguments @ ..] = words else {
            return Err(Failure::new(Exit::Usage, "no command is given"));
        };
        let failed = |error: std::io::Error| {
            let is_missing = error.kind() == std::io::ErrorKind::NotFound;
            let exit = if is_missing { Exit::NotFound } else { Exit::NotRunnable };
            Failure::caused(exit, format!("cannot start {}", program.display()), error)
        };
        let mut child = Command::new(program).args(arguments).spawn().map_err(failed)?;
        self.wait_for(&mut child, || {})
    }

    /// Waits for a command to end; `look` is called every half second.
    ///
    /// # Errors
    /// When the system does not let it be waited for.
    pub(crate) fn wait_for(
        &mut self,
        child: &mut Child,
        mut look: impl FnMut(),
    ) -> Result<ExitStatus, Failure> {
        loop {
            let status = child.try_wait();
            if let Some(status) = status.map_err(|e| Failure::io("cannot wait for the command", e))? {
                return Ok(status);
            }
            match self.next(None) {
                ChildEvent::Signal(kind, is_of_terminal) => forward(child, kind, is_of_terminal),
                ChildEvent::Look => look(),
                ChildEvent::ChildEnded | ChildEvent::TimeOver => {}
            }
        }
    }

    /// Waits for a signal, at most for `patience`; `look` is called every half second and ends the wait by
    /// returning false.
    pub(crate) fn wait(&mut self, patience: Option<Duration>, mut look: impl FnMut() -> bool) {
        let entered = self.runtime.enter();
        let until = patience.and_then(|patience| Instant::now().checked_add(patience));
        drop(entered);
        loop {
            match self.next(until) {
                ChildEvent::Signal(..) | ChildEvent::TimeOver => return,
                ChildEvent::Look if !look() => return,
                ChildEvent::Look | ChildEvent::ChildEnded => {}
            }
        }
    }

    fn next(&mut self, until: Option<Instant>) -> ChildEvent {
        let Self { runtime, streams, ended, looks } = self;
        runtime.block_on(async {
            let signal = std::future::poll_fn(|cx| {
                for (kind, is_of_terminal, stream) in &mut *streams {
                    if stream.poll_recv(cx).is_ready() {
                        return Poll::Ready(ChildEvent::Signal(*kind, *is_of_terminal));
                    }
                }
                ended.poll_recv(cx).map(|_| ChildEvent::ChildEnded)
            });
            let over = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = signal => event,
                () = over => ChildEvent::TimeOver,
                _ = looks.tick() => ChildEvent::Look,
            }
        })
    }
}

/// Whether a signal is ignored: `SigIgn` of `/proc/self/status` has a bit for each, from that of signal 1 on.
pub(crate) fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (kind.as_raw_value() - 1) & 1 == 1
}

/// The end of a wait, or an interruption.
enum ChildEvent {
    /// And whether a terminal sends it to all of its foreground group.
    Signal(Signal, bool),
    ChildEnded,
    TimeOver,
    Look,
}

/// Passes a signal on, unless the command has it already: a terminal sends its signals to its whole
/// foreground group.
fn forward(child: &Child, kind: Signal, is_of_terminal: bool) {
    if is_of_terminal && is_in_foreground() {
        return;
    }
    // It may have ended just now; it is not reaped yet, so no other process has its number.
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

/// The exit code for a command's end: its own, or 128 and the signal, as in shells.
pub(crate) fn code_of(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(Exit::Bug as u8)
}
