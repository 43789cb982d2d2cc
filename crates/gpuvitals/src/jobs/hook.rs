//! `gpuvitals jobs hook`: tells the agent of this node what Slurm tells its hooks of a job.
//!
//! It ends with 0 within a second, whatever happens: a hook that fails or hangs takes the node out of service.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use clap::Args;
use gpuvitals_agent::{HOOK_SOCKET, HookMessage, JobHook};
use gpuvitals_core::causes;

/// Longest wait for the agent: what else the program does is done within the rest of a second.
const PATIENCE: Duration = Duration::from_millis(900);

/// Examples for the help.
pub(super) const EXAMPLES: &str = "Examples, as lines of the scripts that slurm.conf names:
  gpuvitals jobs hook prolog                 Prolog
  gpuvitals jobs hook epilog                 Epilog
  gpuvitals jobs hook controller             PrologSlurmctld and EpilogSlurmctld

It ends with 0 within a second, whatever happens; what went wrong is a line on standard error. Docs: docs/jobs.md.";

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
    let (done, told) = sync_channel(1);
    let socket = flags.socket.clone();
    // A thread that hangs ends with the process.
    let telling = std::thread::Builder::new().spawn(move || {
        let _too_late = done.send(message.tell(&socket));
    });
    telling.map_err(|error| format!("cannot start a thread: {error}"))?;
    match told.recv_timeout(PATIENCE) {
        Ok(told) => told.map_err(|error| causes(&error)),
        Err(_) => Err(format!("the agent at {} has not answered within a second", flags.socket.display())),
    }
}
