//! The queue by HTTP, through real sockets.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

mod admin;
mod bodies;
mod client;
mod dead;
mod document;
mod publish;
mod world;
