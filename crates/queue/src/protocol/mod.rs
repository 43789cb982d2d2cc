//! The protocol of the network: what `api/proto/gpuvitals/queue/v1/queue.proto` says, and how it maps to the terms of
//! the broker.

/// What is generated from the definition.
pub mod v1 {
    #![expect(
        clippy::all,
        clippy::pedantic,
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        reason = "generated"
    )]
    tonic::include_proto!("gpuvitals.queue.v1");
}
