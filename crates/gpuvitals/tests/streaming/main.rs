//! A file into a queue, a queue into stores: real processes, and the rows left when some of them were killed.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "../rig/ended.rs"]
mod ended;
mod failing_disk;
mod frozen;
mod lines;
mod listeners;
mod losses;
mod pipeline;
#[path = "../rig/port.rs"]
mod port;
mod process;
#[path = "../rig/program.rs"]
mod program;
#[path = "../rig/small_disk.rs"]
mod small_disk;
mod streamer;
#[path = "../rig/waiting.rs"]
mod waiting;
