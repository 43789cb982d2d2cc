//! NATS JetStream in place of the broker, behind the same [`crate::Producer`] and [`crate::Consumer`].
//!
//! A topic is a stream, a group a durable pull consumer of it, a frame one message: its head in headers, its payload
//! as it is. Missing streams and consumers are created; existing ones are used as they are.
//!
//! JetStream's own semantics apply: explicit acknowledgements, negative ones with a delay, termination, extension by
//! `in progress`, duplicates recognised by `Nats-Msg-Id`, retention by limits, and refusal of new messages at the
//! bound. `max_deliver` is unlimited, because the server keeps a message beyond it and tells nobody. Instead, the
//! consumer reads the delivery count; after the last retry it publishes the frame to the topic of dead letters, waits
//! for that acknowledgement, and terminates the message.
//!
//! `docs/nats.md` lists the differences from the broker of this crate.

mod admin;
mod consumer;
mod error;
mod headers;
mod leases;
mod names;
mod producer;
mod session;
mod settings;
mod stream;
mod subscription;

pub use admin::{NatsAdmin, NatsDeadLetter, NatsGroupStats, NatsRedriven, NatsStats};
pub use consumer::NatsConsumer;
pub use error::NatsError;
pub use producer::NatsProducer;
pub use settings::{NatsSettings, SettingError};
