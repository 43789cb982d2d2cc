//! The vocabulary of all crates through its public face: batches, the catalogue, energies and answers in parts.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod batch;
mod catalogue;
mod energy_interval;
mod history;
mod integrals;
mod wire;
