//! The gateway through real sockets, with a real store behind it, and its document.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

mod abandoned;
mod analysis;
mod as_of;
mod began;
mod bounded;
mod changes;
mod client;
mod clusters;
mod collector;
mod course;
mod document;
mod fleet_use;
mod flight;
mod jobs;
mod judged;
mod lacking;
mod lists;
mod operation;
mod page;
mod partial;
mod prom;
mod query;
mod refused;
mod silences;
mod steps;
mod stream;
mod telemetry;
mod told;
mod topology;
mod world;
