//! The network protocol: the types of `api/proto/gpuvitals/queue/v1/queue.proto`, and their mapping to the
//! broker's.

mod outcome;
mod terms;

pub(crate) use outcome::{
    MAX_FRAME_BYTES, outcome_of, reply, settle_error, settled, status_of, subscribe_status,
};
pub(crate) use terms::{
    Malformed, delivery, delivery_id, delivery_of, ids_of, join, join_of, millis, nack, nack_of,
    publish_request, published,
};

/// Code generated from the definition.
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
