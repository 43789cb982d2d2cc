//! AMD GPUs by files of sysfs, on captured machines and on machines built from the kernel's layouts.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod captures;
#[path = "../rig/details.rs"]
mod details;
mod differences;
mod instinct;
mod machines;
mod peers;
mod steady;
mod trouble;
