//! The kernel's own lines about GPUs and what they need: a second source beside what the drivers count, and the only one for a reset, a link
//! that went down or a process that was killed for memory.
//!
//! They come from `/dev/kmsg`, which needs `CAP_SYSLOG` where `kernel.dmesg_restrict` is 1, or else from the journal by `journalctl`,
//! which needs its group. Only what the kernel itself has said counts: a program that writes to `/dev/kmsg` cannot have facility 0. Of
//! that, only lines that begin as one of the table of patterns does are looked at.

mod journal;
mod kmsg;
mod limit;
mod line;
mod pattern;
mod record;
mod source;

pub use line::{KernelKind, KernelLine, bridges_of};
pub use source::KernelLog;
