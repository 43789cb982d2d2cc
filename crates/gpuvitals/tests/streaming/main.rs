//! A file into a queue, a queue into stores: real processes, and the rows left when some of them were killed.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod failing_disk;
mod files;
mod foreign;
mod frozen;
mod lines;
mod listeners;
mod losses;
mod pipeline;
mod process;
mod streamer;
