//! Producers and consumers by the queue's URL: the same pipeline runs on any of them.
//!
//! | URL | queue | publish | subscribe |
//! |---|---|---|---|
//! | `inproc:` | in this process | ✓ | ✓ |
//! | `grpc://host:9091`, `grpcs://` | `gpuvitals broker` | ✓ | ✓ |
//! | `http://host:9090`, `https://` | `gpuvitals broker` | by HTTP | by gRPC, on the same port |
//! | `nats://host:4222`, `tls://` | NATS JetStream | ✓ | ✓ |
//!
//! Nothing here waits for a queue that is away: producers and consumers are made without a connection, a publish then
//! fails with [`PublishError::Unavailable`], a receive goes on trying.

mod access;
mod url;

use std::time::Duration;

pub use access::{Access, Token};
pub use url::{QueueUrl, Scheme, UrlError};

use crate::broker::{Delivery, DeliveryId, Nack, PublishError, Receipt, ReceiveError, SettleError};
use crate::frame::Frame;
use crate::rows::Rows;
use crate::service::{Consumer, InProcessConsumer, InProcessProducer, Producer};

/// A producer, wherever its queue is.
#[derive(Debug)]
pub enum AnyProducer {
    /// In this process.
    InProcess(InProcessProducer),
}

/// A consumer, wherever its queue is.
#[derive(Debug)]
pub enum AnyConsumer {
    /// In this process.
    InProcess(InProcessConsumer),
}

impl Producer for AnyProducer {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        match self {
            Self::InProcess(producer) => producer.publish(frame).await,
        }
    }
}

impl Consumer for AnyConsumer {
    async fn receive(&mut self) -> Result<Vec<Delivery>, ReceiveError> {
        match self {
            Self::InProcess(consumer) => consumer.receive().await,
        }
    }

    async fn ack(&self, ids: &[DeliveryId]) -> Result<u64, SettleError> {
        match self {
            Self::InProcess(consumer) => consumer.ack(ids).await,
        }
    }

    async fn ack_rows(&self, id: DeliveryId, rows: &Rows) -> Result<u64, SettleError> {
        match self {
            Self::InProcess(consumer) => consumer.ack_rows(id, rows).await,
        }
    }

    async fn ack_up_to(&self, offset: u64) -> Result<u64, SettleError> {
        match self {
            Self::InProcess(consumer) => consumer.ack_up_to(offset).await,
        }
    }

    async fn nack(&self, nacks: &[Nack]) -> Result<u64, SettleError> {
        match self {
            Self::InProcess(consumer) => consumer.nack(nacks).await,
        }
    }

    async fn extend(&self, ids: &[DeliveryId], by: Duration) -> Result<(), SettleError> {
        match self {
            Self::InProcess(consumer) => consumer.extend(ids, by).await,
        }
    }

    async fn leave(self) {
        match self {
            Self::InProcess(consumer) => consumer.leave().await,
        }
    }
}
