//! The store through its public face: restarts, crashes, full disks, damage, any order, and what all histories answer.
#![expect(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "what fails in a helper fails its test; numbers of tests are small"
)]

mod backup;
mod column_types;
mod crash;
mod days;
mod disk;
mod evolution;
mod faults;
mod fleet;
mod limits;
mod model;
mod quarantine;
mod query;
mod recent;
mod restart;
mod retention;
mod rollups;
mod suite;
mod support;
mod tables;
mod usage;
mod view;
