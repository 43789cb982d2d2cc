//! Tests of the log through its public surface, in one binary.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "helpers of tests, which the lints do not know as such"
)]

mod api;
mod bench;
mod crash;
mod damage;
mod directory;
mod fresh;
mod golden;
mod spare;
