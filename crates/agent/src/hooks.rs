//! What the hooks of a batch system tell of its jobs, by a socket of this agent, and what becomes of it.

mod asked;
mod fact;
mod heard;
mod jobs;
mod kept;
mod message;
mod outcome;
mod pace;
mod socket;
mod steps;

pub(crate) use jobs::Jobs;
pub(crate) use kept::KeptJobs;
pub use message::{HookError, HookMessage, JobHook, RunNews};
pub(crate) use socket::HookSocket;
pub use socket::SocketError;
