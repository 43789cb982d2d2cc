//! The spool between a node and a queue that fails on command.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and its numbers are small"
)]

mod disk;
mod flaky;
mod sending;
mod suspects;
