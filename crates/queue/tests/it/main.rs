//! The queue within a process and on a disk, without a network.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a queue that goes astray fails its test")]

mod durable;
mod http_intake;
mod in_process;
mod model;
mod references;
mod scenarios;
