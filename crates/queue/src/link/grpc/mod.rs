//! A remote queue, by gRPC.

mod consumer;
mod dial;
mod exchange;
mod producer;

pub use consumer::GrpcConsumer;
pub use producer::GrpcProducer;
