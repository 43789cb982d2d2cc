//! A real `gpuvitals broker` as its users meet it: over HTTP and gRPC, with signals, kills, certificates and tokens,
//! and the commands that look into it.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod access;
#[path = "../rig/authority.rs"]
mod authority;
mod beside;
#[path = "../rig/ended.rs"]
mod ended;
mod persistence;
mod process;
#[path = "../rig/program.rs"]
mod program;
mod serving;
#[path = "../rig/small_disk.rs"]
mod small_disk;
mod tool;
#[path = "../rig/waiting.rs"]
mod waiting;
