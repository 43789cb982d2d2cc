//! The queue by gRPC: real sockets, both sides of the protocol.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod access;
mod away;
mod refused;
mod rig;
mod subscribe;
mod wire;
