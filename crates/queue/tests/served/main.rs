//! The queue through real sockets: gRPC with both sides of the protocol, and HTTP.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod grpc;
mod http;
