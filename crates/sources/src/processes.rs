//! Processes on each GPU: names, never arguments.

pub mod amd;
mod fdinfo;
mod kfd;
mod listing;
mod probe;
mod table;
mod users;

pub use fdinfo::{DrmClient, Engine, parse_fdinfo};
pub use probe::ProcessProbe;
pub(crate) use probe::pids;
pub use table::{GpuProcess, NAMELESS, ProcessGap, ProcessKind, ProcessList, ProcessTable};
pub use users::Users;
