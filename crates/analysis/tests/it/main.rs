//! The analysis through its public face: known answers, simulated fleets and jobs, and a real capture.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod conditions;
mod events;
mod findings;
mod last;
mod ledger;
mod steps;
mod summary;
mod windows;
