//! Histories elsewhere.
//!
//! [`serve()`] puts any [`History`](gpuvitals_core::history::History) on the network, as the gRPC service
//! `gpuvitals.history.v1.History` (`api/proto`), with reflection and health. [`Remote`] is the history at the other end. [`Merged`] is a history of several: every question goes to all of them, their answers are put together by key, and
//! what one could not give is named in the answer. [`SharedDatabase`] is the history of several services that write into one database.

mod border;
mod buckets;
mod changes;
mod connection;
mod limits;
mod merged;
mod refusal;
mod remote;
mod service;
mod shared;
mod usage;

pub use merged::{Merged, NamedHistory};
pub use remote::Remote;
pub use service::serve;
pub use shared::SharedDatabase;

/// Code generated from the definition of the protocol.
pub mod v1 {
    #![expect(
        clippy::all,
        clippy::pedantic,
        clippy::allow_attributes,
        clippy::allow_attributes_without_reason,
        reason = "generated"
    )]
    tonic::include_proto!("gpuvitals.history.v1");
}
