//! Tests of the log through its public surface, in one binary.
#![expect(clippy::expect_used, reason = "tests")]

mod api;
mod common;
mod crash;
mod damage;
mod golden;
