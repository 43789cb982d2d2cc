//! A queue elsewhere, by gRPC.

mod consumer;
mod dial;
mod exchange;
mod producer;

pub use consumer::GrpcConsumer;
pub(super) use dial::Dial;
pub use producer::GrpcProducer;
