//! What a service runs on: a runtime, and the signals that end it or have it read its settings again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gpuvitals_settings::settings;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::child;
use crate::failure::{Exit, Failure};
use crate::logging::Announcer;
use crate::terminal;

settings! {
    /// The end
    pub(crate) struct Shutdown = "shutdown" {
        /// Time for all of it after a signal: stop the source, drain, flush, close; then what was left is reported
        pub grace: Duration = "20s", from "1ms";
    }
}

/// What SIGHUP means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hangup {
    /// The end, unless it was ignored from the start, as under `nohup`.
    Ends,
    /// Read the settings again; the end if the terminal of the service is gone.
    Reloads,
}

/// The signals of a process. Those that come before they are waited for are kept.
#[derive(Debug)]
pub(crate) struct Signals {
    means: Hangup,
    interrupt: Signal,
    terminate: Signal,
    /// None: it stays ignored.
    hangup: Option<Signal>,
    terminal: Option<terminal::OwnTerminal>,
}

impl Signals {
    /// Handles signals from now on.
    fn install(hangup: Hangup) -> io::Result<Self> {
        let is_handled = hangup == Hangup::Reloads || !child::is_ignored(SignalKind::hangup());
        Ok(Self {
            means: hangup,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: is_handled.then(|| signal(SignalKind::hangup())).transpose()?,
            terminal: terminal::OwnTerminal::find(),
        })
    }

    /// Waits for SIGINT, SIGTERM or SIGHUP and says which; of a SIGHUP that came with the end of the terminal, that.
    pub(crate) async fn next(&mut self) -> &'static str {
        let hung_up = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = hung_up => match &self.terminal {
                Some(terminal) if terminal.is_gone() => "the end of the terminal",
                _ => "SIGHUP",
            },
        }
    }
}

/// What a service runs on.
#[derive(Debug)]
pub(crate) struct Service {
    /// Tells people where it is found.
    pub announcer: Announcer,
    /// Where its tasks run.
    pub runtime: Handle,
    /// What ends it.
    pub signals: Signals,
}

impl Service {
    /// Opens something that may take long, or for ever, as a driver that hangs or standard input. None: a signal ended the
    /// service meanwhile.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(crate) fn open<T: Send + 'static, E: Into<Failure> + Send + 'static>(
        &mut self,
        open: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<Option<T>, Failure> {
        let runtime = self.runtime.clone();
        runtime.block_on(async {
            let mut opening = tokio::task::spawn_blocking(open);
            loop {
                tokio::select! {
                    biased;
                    signal = self.signals.next() => {
                        if signal == "SIGHUP" && self.signals.means == Hangup::Reloads {
                            continue;
                        }
                        tracing::info!(signal, "stopping");
                        return Ok(None);
                    }
                    opened = &mut opening => {
                        let panicked = |e| Failure::caused(Exit::Bug, "what opens the service panicked", e);
                        return opened.map_err(panicked)?.map(Some).map_err(Into::into);
                    }
                }
            }
        })
    }
}

/// A runtime, and the signals that end what runs on it. Threads: one for each CPU unless told otherwise.
///
/// # Errors
/// When there is no runtime, or a handler cannot be installed.
pub(crate) fn runtime(threads: Option<usize>, hangup: Hangup) -> io::Result<(Runtime, Signals)> {
    let mut builder = Builder::new_multi_thread();
    if let Some(threads) = threads {
        builder.worker_threads(threads);
    }
    let runtime = builder.enable_all().build()?;
    let signals = {
        let _inside = runtime.enter();
        Signals::install(hangup)?
    };
    Ok((runtime, signals))
}

/// Whether a signal to end has come, for a loop that draws on a terminal and has to give it back.
///
/// # Errors
/// When a handler cannot be installed, or no thread can be started.
pub(crate) fn watched() -> io::Result<Arc<AtomicBool>> {
    let (runtime, mut signals) = runtime(Some(1), Hangup::Ends)?;
    let come = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&come);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(signals.next());
        tell.store(true, Ordering::Release);
    })?;
    Ok(come)
}
