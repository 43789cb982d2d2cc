//! The gateway: it gives the same answers in one process and over several, and names the services that are away.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod access;
mod answers;
mod attacks;
mod clusters;
mod database;
mod flight;
mod names;
mod pieces;
mod silences;
mod site;
mod wire;
