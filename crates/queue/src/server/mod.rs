//! The queue on the network.

pub mod http;
pub mod intake;

mod admin;
mod body;
mod dead;
mod metrics;
mod publish;
mod refusal;

pub use metrics::{Meter, Protocol};
