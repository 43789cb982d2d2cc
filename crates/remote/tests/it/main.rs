//! Histories elsewhere, over real sockets.

#![expect(clippy::unwrap_used, reason = "what fails here fails its test")]

mod abandoned;
mod discovery;
mod merged;
mod remote;
mod usage;
mod world;
