//! Producers and consumers by the queue's URL: the same pipeline runs on any of them.
//!
//! | URL | queue | publish | subscribe |
//! |---|---|---|---|
//! | `inproc:` | in this process | ✓ | ✓ |
//! | `grpc://host:9091`, `grpcs://` | `gpuvitals broker` | ✓ | ✓ |
//! | `http://host:9090`, `https://` | `gpuvitals broker` | by HTTP | by gRPC, on the same port |
//! | `nats://host:4222?replicas=3`, `tls://` | NATS JetStream, settings behind the `?` | ✓ | ✓ |
//!
//! Nothing here waits for a queue that is away: producers and consumers are made without a connection, a publish then
//! fails with [`PublishError::Unavailable`], a receive goes on trying.

mod access;
mod grpc;
mod http;
mod retry;
mod url;

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use access::{Access, Token};
pub use grpc::{GrpcConsumer, GrpcProducer};
pub use http::HttpProducer;
pub use retry::{Backoff, Stamps, publish_until};
pub use url::{QueueUrl, Scheme, UrlError};

use tokio::sync::watch;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::broker::{
    ConsumerOptions, Delivery, DeliveryId, Nack, PublishError, Receipt, ReceiveError, SettleError,
};
use crate::frame::Frame;
use crate::name::NameError;
pub use crate::name::{check_group, check_topic};
use crate::nats::{NatsConsumer, NatsProducer};
use crate::service::{Consumer, InProcessConsumer, InProcessProducer, Producer};

/// Why there is no producer or consumer for a URL. Whether the queue is there is not asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Not spoken here.
    #[error("{url} is not reached over a network")]
    NoNetwork {
        /// The URL.
        url: QueueUrl,
    },
    /// A topic or group that cannot be.
    #[error("name of the {what}")]
    Name {
        /// Whose name.
        what: &'static str,
        /// Cause.
        #[source]
        source: NameError,
    },
    /// A certificate or key that cannot be read.
    #[error("reading {}", path.display())]
    Credential {
        /// The file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// Certificates or a key that cannot be used.
    #[error("TLS for {host}")]
    Tls {
        /// The queue's host.
        host: String,
        /// Cause.
        #[source]
        source: tonic::transport::Error,
    },
    /// A token that is no text for a header.
    #[error("the token has characters that no header can carry")]
    Token,
}

/// A producer of a topic for the queue at a URL.
///
/// # Errors
///
/// The URL is that of this process, the name is refused, or what access needs cannot be read.
pub fn producer(
    url: &QueueUrl,
    access: &Access,
    topic: impl Into<Arc<str>>,
) -> Result<AnyProducer, ConnectError> {
    match url.scheme {
        Scheme::Grpc => GrpcProducer::new(url, access, topic).map(AnyProducer::Grpc),
        Scheme::Http => HttpProducer::new(url, access, topic).map(AnyProducer::Http),
        Scheme::Nats => NatsProducer::new(url, access, &topic.into()).map(Box::new).map(AnyProducer::Nats),
        Scheme::InProcess => Err(ConnectError::NoNetwork { url: url.clone() }),
    }
}

/// A consumer of a group of a topic for the queue at a URL.
///
/// # Errors
///
/// The URL is that of this process, a name is refused, or what access needs cannot be read.
pub fn consumer(
    url: &QueueUrl,
    access: &Access,
    topic: impl Into<Arc<str>>,
    group: impl Into<Arc<str>>,
    options: &ConsumerOptions,
) -> Result<AnyConsumer, ConnectError> {
    match url.scheme {
        Scheme::Grpc | Scheme::Http => {
            GrpcConsumer::new(url, access, topic, group, options).map(AnyConsumer::Grpc)
        }
        Scheme::Nats => {
            let (topic, group) = (topic.into(), group.into());
            NatsConsumer::new(url, access, &topic, &group, options).map(Box::new).map(AnyConsumer::Nats)
        }
        Scheme::InProcess => Err(ConnectError::NoNetwork { url: url.clone() }),
    }
}

/// A producer, wherever its queue is.
#[derive(Debug)]
pub enum AnyProducer {
    /// In this process.
    InProcess(InProcessProducer),
    /// Elsewhere, by gRPC.
    Grpc(GrpcProducer),
    /// Elsewhere, by HTTP.
    Http(HttpProducer),
    /// NATS JetStream.
    Nats(Box<NatsProducer>),
}

/// A consumer, wherever its queue is.
#[derive(Debug)]
pub enum AnyConsumer {
    /// In this process.
    InProcess(InProcessConsumer),
    /// Elsewhere, by gRPC.
    Grpc(GrpcConsumer),
    /// NATS JetStream.
    Nats(Box<NatsConsumer>),
}

/// Options for several connections that are one consumer: the queue's statistics count them as one subscriber.
pub fn of_one_consumer(options: ConsumerOptions) -> ConsumerOptions {
    ConsumerOptions { consumer: NonZeroU64::new(retry::random()), ..options }
}

/// Why a queue is not reached; none: it is, or nobody has tried.
pub type Away = Option<Arc<str>>;

impl AnyConsumer {
    /// Why the queue is not reached while it is not; none for the queue of this process.
    pub fn away(&self) -> Option<watch::Receiver<Away>> {
        match self {
            Self::InProcess(_) => None,
            Self::Grpc(consumer) => Some(consumer.away()),
            Self::Nats(consumer) => Some(consumer.away()),
        }
    }
}

impl Producer for AnyProducer {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        let messages = frame.count;
        let span = |way| {
            tracing::info_span!(
                "send",
                otel.kind = "producer",
                otel.status_code = Empty,
                messaging.system = way,
                messaging.operation.name = "send",
                messaging.batch.message_count = messages,
            )
        };
        match self {
            Self::InProcess(producer) => producer.publish(frame).await,
            Self::Grpc(producer) => sent(producer.publish(frame), span("gpuvitals")).await,
            Self::Http(producer) => sent(producer.publish(frame), span("gpuvitals")).await,
            Self::Nats(producer) => sent(producer.publish(frame), span("nats")).await,
        }
    }
}

async fn sent(
    publishing: impl Future<Output = Result<Receipt, PublishError>>,
    span: Span,
) -> Result<Receipt, PublishError> {
    let outcome = publishing.instrument(span.clone()).await;
    if outcome.is_err() {
        span.record("otel.status_code", "ERROR");
    }
    outcome
}

impl Consumer for AnyConsumer {
    async fn receive(&mut self) -> Result<Vec<Delivery>, ReceiveError> {
        match self {
            Self::InProcess(consumer) => consumer.receive().await,
            Self::Grpc(consumer) => consumer.receive().await,
            Self::Nats(consumer) => consumer.receive().await,
        }
    }

    async fn ack(&self, ids: &[DeliveryId]) -> Result<u64, SettleError> {
        match self {
            Self::InProcess(consumer) => consumer.ack(ids).await,
            Self::Grpc(consumer) => consumer.ack(ids).await,
            Self::Nats(consumer) => consumer.ack(ids).await,
        }
    }

    async fn nack(&self, nacks: &[Nack]) -> Result<u64, SettleError> {
        match self {
            Self::InProcess(consumer) => consumer.nack(nacks).await,
            Self::Grpc(consumer) => consumer.nack(nacks).await,
            Self::Nats(consumer) => consumer.nack(nacks).await,
        }
    }

    async fn extend(&self, ids: &[DeliveryId], by: Duration) -> Result<(), SettleError> {
        match self {
            Self::InProcess(consumer) => consumer.extend(ids, by).await,
            Self::Grpc(consumer) => consumer.extend(ids, by).await,
            Self::Nats(consumer) => consumer.extend(ids, by).await,
        }
    }

    async fn leave(self) {
        match self {
            Self::InProcess(consumer) => consumer.leave().await,
            Self::Grpc(consumer) => consumer.leave().await,
            Self::Nats(consumer) => consumer.leave().await,
        }
    }
}
