//! A real `gpuvitals broker` as its users meet it: over HTTP and gRPC, with signals, kills, certificates and tokens,
//! and the commands that look into it.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod access;
mod beside;
mod persistence;
mod process;
mod serving;
mod tool;
