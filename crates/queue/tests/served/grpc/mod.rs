//! The queue by gRPC: real sockets, both sides of the protocol.

mod access;
mod away;
mod refused;
mod rig;
mod subscribe;
mod wire;
