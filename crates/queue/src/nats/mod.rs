//! NATS JetStream in place of the broker, behind the same [`crate::Producer`] and [`crate::Consumer`].
//!
//! A topic is a stream, a group a durable pull consumer of it, a frame one message: its head in headers, its payload
//! as it is. Streams and consumers are made where they are missing. In a stream that this crate made, what the URL names
//! is changed to what it says; otherwise those that exist are used as they are, and what is odd about them is logged.
//!
//! What differs from the broker of this crate:
//!
//! - A receipt says *written*: JetStream acknowledges before it syncs, unless the server is told `sync_interval: always`.
//! - A consumer that dies gives its leases back when they run out, not at once.
//! - What is given back ([`crate::NackKind::Release`], [`crate::Consumer::leave`]) counts as an attempt: the server
//!   counts deliveries.
//! - An extension gives the time the group's consumer was made with, whatever was asked for.
//! - Acknowledgements are sent, not confirmed: one that is lost means that the message comes again.

mod admin;
mod consumer;
mod dead;
mod error;
mod head;
mod names;
mod producer;
mod session;
mod settings;
mod shelf;
mod trim;

pub use admin::{NatsAdmin, NatsGroupStats, NatsStats};
pub use consumer::NatsConsumer;
pub use error::NatsError;
pub use producer::NatsProducer;
pub use settings::{NatsSettings, SettingError};
