//! The client makes producers and consumers of a queue by its URL.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::backoff::random;
use gpuvitals_listener::client::Credentials;
use tokio::sync::watch;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::away::{Away, ConnectError};
use super::grpc::{GrpcConsumer, GrpcProducer};
use super::url::{QueueUrl, Scheme};
use crate::broker::{
    ConsumerOptions, Delivery, DeliveryId, Nack, PublishError, Receipt, ReceiveError, SettleError,
};
use crate::frame::Frame;
use crate::nats::{NatsConsumer, NatsProducer};
use crate::service::{Consumer, InProcessConsumer, InProcessProducer, Producer, Queue};

/// The client of one queue: its URL, and its credentials.
#[derive(Clone, Debug)]
pub struct Client {
    url: QueueUrl,
    access: Credentials,
    /// The queue of `inproc:`.
    queue: Option<Queue>,
}

impl Client {
    /// The client of the queue at a URL.
    pub fn new(url: QueueUrl, access: Credentials) -> Self {
        Self { url, access, queue: None }
    }

    /// The client of the queue in this process.
    pub fn in_process(queue: Queue) -> Self {
        Self { url: QueueUrl::in_process(), access: Credentials::default(), queue: Some(queue) }
    }

    /// URL of the queue, as it was given.
    pub fn url(&self) -> &QueueUrl {
        &self.url
    }

    /// A producer of a topic. In this process it waits for room in a full topic.
    ///
    /// # Errors
    ///
    /// The URL is `inproc:` and there is no queue, the name is refused, or a credential cannot be read.
    pub fn producer(&self, topic: impl Into<Arc<str>>) -> Result<AnyProducer, ConnectError> {
        let (url, access) = (&self.url, &self.access);
        match url.scheme {
            Scheme::InProcess => Ok(AnyProducer::InProcess(self.queue()?.producer(topic))),
            Scheme::Grpc | Scheme::Http => GrpcProducer::new(url, access, topic).map(AnyProducer::Grpc),
            Scheme::Nats => {
                NatsProducer::new(url, access, &topic.into()).map(Box::new).map(AnyProducer::Nats)
            }
        }
    }

    /// A consumer of a group of a topic. In this process the group exists from now on; elsewhere nothing is
    /// sent before the first receive.
    ///
    /// # Errors
    ///
    /// The URL is `inproc:` and there is no queue, or it refuses; a name is refused, or a credential cannot
    /// be read.
    pub async fn consumer(
        &self,
        topic: impl Into<Arc<str>>,
        group: impl Into<Arc<str>>,
        options: &ConsumerOptions,
    ) -> Result<AnyConsumer, ConnectError> {
        let (url, access, topic, group) = (&self.url, &self.access, topic.into(), group.into());
        match url.scheme {
            Scheme::InProcess => {
                let joined = self.queue()?.subscribe(&topic, &group, options).await;
                joined.map(AnyConsumer::InProcess).map_err(ConnectError::Subscribe)
            }
            Scheme::Grpc | Scheme::Http => {
                GrpcConsumer::new(url, access, topic, group, options).map(AnyConsumer::Grpc)
            }
            Scheme::Nats => {
                NatsConsumer::new(url, access, &topic, &group, options).map(Box::new).map(AnyConsumer::Nats)
            }
        }
    }

    fn queue(&self) -> Result<&Queue, ConnectError> {
        self.queue.as_ref().ok_or_else(|| ConnectError::NoQueue { url: self.url.clone() })
    }
}

/// A producer for any URL.
#[derive(Debug)]
pub enum AnyProducer {
    /// In this process.
    InProcess(InProcessProducer),
    /// Remote, by gRPC.
    Grpc(GrpcProducer),
    /// NATS JetStream, by its own protocol.
    Nats(Box<NatsProducer>),
}

/// A consumer for any URL.
#[derive(Debug)]
pub enum AnyConsumer {
    /// In this process.
    InProcess(InProcessConsumer),
    /// Remote, by gRPC.
    Grpc(GrpcConsumer),
    /// NATS JetStream, by its own protocol.
    Nats(Box<NatsConsumer>),
}

impl AnyProducer {
    /// A useful number of frames in flight: several if an answer takes a round trip. In this process one,
    /// since frames that wait for room are not taken in order.
    pub fn window(&self) -> usize {
        match self {
            Self::InProcess(_) => 1,
            Self::Grpc(_) | Self::Nats(_) => GrpcProducer::WINDOW,
        }
    }
}

/// Options for several connections of one consumer: the queue's statistics count them as one subscriber.
pub fn of_one_consumer(options: ConsumerOptions) -> ConsumerOptions {
    ConsumerOptions { consumer: NonZeroU64::new(random()), ..options }
}

impl AnyConsumer {
    /// The last connection error as it changes. The queue in this process has none, and its channel is
    /// closed.
    pub fn away(&self) -> watch::Receiver<Away> {
        match self {
            Self::InProcess(_) => watch::channel(None).1,
            Self::Grpc(consumer) => consumer.away(),
            Self::Nats(consumer) => consumer.away(),
        }
    }
}

impl Producer for AnyProducer {
    async fn publish(&self, mut frame: Frame) -> Result<Receipt, PublishError> {
        let messages = frame.count;
        let mut span = |way| {
            let span = tracing::info_span!(
                "send",
                otel.kind = "producer",
                otel.status_code = Empty,
                messaging.system = way,
                messaging.operation.name = "send",
                messaging.batch.message_count = messages,
            );
            if let Some(trace) = gpuvitals_listener::trace::parent(&span) {
                frame.trace = Some(trace.into());
            }
            span
        };
        match self {
            Self::InProcess(producer) => producer.publish(frame).await,
            Self::Grpc(producer) => {
                let span = span("gpuvitals");
                sent(producer.publish(frame), span).await
            }
            Self::Nats(producer) => {
                let span = span("nats");
                sent(producer.publish(frame), span).await
            }
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
