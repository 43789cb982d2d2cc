//! Recordings through the public face: how they are written, and how runs are compared.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod compare;
mod recorder;
