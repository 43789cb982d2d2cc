//! The vocabulary of all crates through its public face: batches, the catalogue, energies and answers in parts.

mod batch;
mod catalogue;
mod energy_interval;
mod history;
mod integrals;
mod wire;
