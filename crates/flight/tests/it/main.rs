//! Incidents through the public face: those of a node, and those of whole jobs.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod asked;
mod begun;
mod jobs;
