//! The analysis through its public face: known answers, simulated fleets and jobs, and a real capture.

mod conditions;
mod events;
mod findings;
mod ledger;
mod steps;
mod summary;
mod windows;
