//! The client of a queue: producers and consumers by its URL. The same pipeline runs on any of them.
//!
//! | URL | queue |
//! |---|---|
//! | `inproc:` | in this process |
//! | `grpc://host:9090`, `host:9090`, `http://host:9090`; with TLS `grpcs://`, `https://` | `gpuvitals broker`, by gRPC |
//! | `nats://host:4222?replicas=3`, with TLS `tls://` | NATS JetStream, settings after the `?` |
//!
//! Nothing here waits for a queue that is away: producers and consumers are created without a connection, a
//! publish then fails with [`PublishError::Unavailable`](crate::broker::PublishError::Unavailable), and a receive keeps trying. A [`Sender`] sends
//! refused frames again; [`forward`] does so with the frames of another queue.

mod away;
mod client;
mod forward;
mod grpc;
mod resend;
mod settings;
mod url;

pub use crate::name::{check_group, check_topic};
pub use away::{Away, ConnectError};
pub use client::{AnyConsumer, AnyProducer, Client, of_one_consumer};
pub use forward::{ENDLESS_LEASE, Forwarded, forward};
pub use gpuvitals_listener::client::{BearerToken, CredentialError, Credentials};
pub use grpc::{GrpcConsumer, GrpcProducer};
pub use resend::{Event, Patience, Sender, Stamps, publish_until};
pub use settings::MessageQueue;
pub use url::{QueueUrl, Scheme, UrlError};
