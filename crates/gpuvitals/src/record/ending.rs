//! What ends a recording: the command, the time, a signal, or that nothing is left to be recorded.

use std::io::{self, IsTerminal};
use std::process::ExitStatus;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::program::{Program, exit_code};
use crate::failure::{Exit, Failure};

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Waits for the end.
#[derive(Debug)]
pub(super) struct Ending {
    runtime: Runtime,
    signals: Vec<(i32, Signal)>,
}

/// What came first.
enum Event {
    Signal(i32),
    Ended(io::Result<ExitStatus>),
    Look,
    TimeOver,
}

impl Ending {
    /// Takes signals from here on: those that end a program, with a command also those that mean something to it alone.
    ///
    /// # Errors
    /// When the system gives no handler.
    pub(super) fn listen(with_command: bool) -> Result<Self, Failure> {
        let failed = |error| Failure::io("cannot listen to signals", error);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let entered = runtime.enter();
        let mut kinds =
            vec![SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
        if with_command {
            kinds.extend([SignalKind::user_defined1(), SignalKind::user_defined2()]);
        }
        let signals = kinds
            .into_iter()
            .map(|kind| Ok((kind.as_raw_value(), signal(kind)?)))
            .collect::<io::Result<_>>()
            .map_err(failed)?;
        drop(entered);
        Ok(Self { runtime, signals })
    }

    /// Waits for the end; `look` is asked every now and then and ends the wait by saying false. Gives the exit code of
    /// the command, if there is one.
    ///
    /// # Errors
    /// When the command cannot be waited for.
    pub(super) fn wait(
        &mut self,
        mut program: Option<Program>,
        duration: Option<Duration>,
        mut look: impl FnMut() -> bool,
    ) -> Result<Option<u8>, Failure> {
        let Self { runtime, signals } = self;
        runtime.block_on(async {
            let mut ticks = tokio::time::interval(LOOK);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            let over = tokio::time::sleep(duration.unwrap_or(Duration::MAX));
            tokio::pin!(over);
            let mut goes_on = true;
            loop {
                let event = tokio::select! {
                    number = next_signal(signals) => Event::Signal(number),
                    status = ended(&mut program) => Event::Ended(status),
                    () = &mut over => Event::TimeOver,
                    _ = ticks.tick() => Event::Look,
                };
                match (event, &program) {
                    (Event::Signal(number), Some(program)) => {
                        // From a terminal the command has got it as well.
                        let typed = [SignalKind::interrupt(), SignalKind::quit()].map(|k| k.as_raw_value());
                        if !(typed.contains(&number) && io::stdin().is_terminal()) {
                            program.signal(number);
                        }
                    }
                    (Event::Signal(_) | Event::TimeOver, _) => return Ok(None),
                    (Event::Ended(status), _) => {
                        let failed = |error| Failure::caused(Exit::Io, "cannot wait for the command", error);
                        return status.map(|status| Some(exit_code(status))).map_err(failed);
                    }
                    (Event::Look, program) => {
                        // A command is not left alone because its recording broke: it is told at the end.
                        goes_on = goes_on && look();
                        if !goes_on && program.is_none() {
                            return Ok(None);
                        }
                    }
                }
            }
        })
    }
}

async fn ended(program: &mut Option<Program>) -> io::Result<ExitStatus> {
    match program {
        None => std::future::pending().await,
        Some(program) => (&mut program.ended).await.unwrap_or_else(|gone| Err(io::Error::other(gone))),
    }
}

async fn next_signal(signals: &mut [(i32, Signal)]) -> i32 {
    std::future::poll_fn(|context| {
        for (number, signal) in signals.iter_mut() {
            if signal.poll_recv(context).is_ready() {
                return std::task::Poll::Ready(*number);
            }
        }
        std::task::Poll::Pending
    })
    .await
}
