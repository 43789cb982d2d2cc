//! `gpuvitals jobs hook`: tells the agent of this node what Slurm tells its hooks of a job.
//!
//! It ends with 0 within a second, whatever the agent does: a hook that fails or hangs takes the node out of service. A wrong command
//! line alone ends with 64, as everywhere.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use clap::Args;
use gpuvitals_agent::{HOOK_SOCKET, HookMessage, JobHook};
use gpuvitals_core::causes;

/// Longest wait for the agent: what else the program does is done within the rest of a second.
const PATIENCE: Duration = Duration::from_millis(900);

const _: () = assert!(PATIENCE.as_millis() < 1_000, "a hook ends within a second");

/// Examples for the help.
pub(super) const EXAMPLES: &str = "Examples, as lines of the scripts that slurm.conf names:
  gpuvitals jobs hook prolog                 Prolog
  gpuvitals jobs hook epilog                 Epilog
  gpuvitals jobs hook controller             PrologSlurmctld and EpilogSlurmctld

It ends with 0 within a second, whatever the agent does; what went wrong is a line on standard error. Wrong words end it with 64.
Docs: docs/jobs.md.";

/// `gpuvitals jobs hook`
#[derive(Debug, Args)]
pub(crate) struct HookFlags {
    /// Which of Slurm's hooks this is
    pub hook: JobHook,
    /// The agent's socket, as its setting agent.socket has it
    #[arg(long, value_name = "FILE", default_value = HOOK_SOCKET)]
    pub socket: PathBuf,
}

/// Tells it, or says why not.
pub(super) fn run(flags: &HookFlags) {
    if let Err(why) = tell(flags) {
        // If not even this can be printed, nobody is left to report to.
        let _unprinted = writeln!(std::io::stderr(), "gpuvitals: jobs hook: {why}");
    }
}

fn tell(flags: &HookFlags) -> Result<(), String> {
    let variable = |name: &str| Some(std::env::var_os(name)?.to_string_lossy().into_owned());
    let message = HookMessage::of(flags.hook, variable).map_err(|error| causes(&error))?;
    let socket = flags.socket.clone();
    match within(PATIENCE, move || message.tell(&socket))? {
        Some(told) => told.map_err(|error| causes(&error)),
        None => Err(format!("the agent at {} has not answered within a second", flags.socket.display())),
    }
}

/// What comes of work in that time; none if nothing does. Its thread ends with the process then.
fn within<T: Send + 'static>(
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>, String> {
    let (done, result) = sync_channel(1);
    let working = std::thread::Builder::new().spawn(move || {
        let _too_late = done.send(work());
    });
    working.map_err(|error| format!("cannot start a thread: {error}"))?;
    Ok(result.recv_timeout(patience).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_hangs_is_not_waited_for() {
        let (_let_go, hangs) = sync_channel::<()>(0);
        assert_eq!(within(Duration::from_millis(1), move || hangs.recv().is_ok()), Ok(None));
        assert_eq!(within(Duration::from_mins(2), || 7), Ok(Some(7)));
    }
}
