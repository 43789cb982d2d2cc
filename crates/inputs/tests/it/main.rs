//! The inputs through their public face: files that are understood and replayed, and the simulated fleet.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod csv;
mod replay;
mod simulated;
