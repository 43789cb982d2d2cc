//! The queue by HTTP, through real sockets.

mod admin;
mod bodies;
mod client;
mod dead;
mod document;
mod publish;
mod world;
