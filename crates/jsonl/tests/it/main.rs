//! JSON lines: their form, and that no acknowledged row is lost or doubled.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod crash;
mod files;
mod support;
