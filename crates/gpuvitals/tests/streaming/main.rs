//! A file into a queue, a queue into stores: real processes, and what is there when some of them were killed.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod pipeline;
mod process;
#[path = "../common/program.rs"]
mod program;
mod streamer;
