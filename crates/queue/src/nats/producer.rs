//! Publishing to JetStream.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::error::NatsError;
use super::headers;
use super::names::Topic;
use super::session::Endpoint;
use super::settings::NatsSettings;
use super::stream::{self, Stream};
use crate::broker::{PublishError, Receipt};
use crate::frame::Frame;
use crate::link::{ConnectError, Credentials, QueueUrl, Stamps};
use crate::name::NAME_LEN_MAX;
use crate::service::Producer;

/// Time limit of a publish, including connecting and creating the stream.
const PUBLISHES_WITHIN: Duration = Duration::from_secs(10);

/// Publishes frames to one topic in NATS JetStream. A frame without a stamp gets one, so that a publish may be
/// repeated.
#[derive(Debug)]
pub struct NatsProducer {
    endpoint: Endpoint,
    topic: Topic,
    settings: Arc<NatsSettings>,
    stream: Mutex<Option<Stream>>,
    stamps: Stamps,
}

impl NatsProducer {
    /// A producer for `topic`. It connects with the first publish.
    ///
    /// # Errors
    ///
    /// The topic's name is refused.
    pub fn new(url: &QueueUrl, access: &Credentials, topic: &str) -> Result<Self, ConnectError> {
        Ok(Self {
            endpoint: Endpoint::new(url, access),
            topic: Topic::new(topic).map_err(|source| ConnectError::Name { what: "topic", source })?,
            settings: Arc::clone(&url.nats),
            stream: Mutex::new(None),
            stamps: Stamps::new(),
        })
    }

    async fn publish_now(&self, frame: &Frame, id: &str) -> Result<Receipt, NatsError> {
        // Connecting is rare and its future is large.
        let session = Box::pin(self.endpoint.session()).await?;
        if frame.payload.len() + headers::LEN_MAX > session.client.max_payload() {
            return Err(NatsError::TooLarge);
        }
        let durability = {
            let mut stream = self.stream.lock().await;
            let found = match stream.take() {
                Some(found) => found,
                None => Box::pin(stream::ensure(&session, &self.topic, &self.settings)).await?,
            };
            stream.insert(found).durability
        };
        let sent = session.publish(&self.topic, id, headers::of_frame(frame), frame.payload.clone()).await;
        if let Err(NatsError::Unavailable(_)) = &sent {
            // Perhaps the stream was deleted: the next publish looks for it.
            *self.stream.lock().await = None;
        }
        let ack = sent?;
        let offset = (!ack.duplicate).then_some(ack.sequence);
        Ok(Receipt { offset, durability, duplicate: ack.duplicate })
    }
}

impl Producer for NatsProducer {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        if frame.count == 0 {
            return Err(PublishError::NoMessages);
        }
        let stamp = frame.producer.clone().unwrap_or_else(|| self.stamps.next());
        let len = stamp.id.len();
        if !(1..=NAME_LEN_MAX).contains(&len) {
            return Err(PublishError::ProducerId { len });
        }
        let id = headers::message_id(&stamp);
        let frame = Frame { producer: Some(stamp), ..frame };
        match tokio::time::timeout(PUBLISHES_WITHIN, self.publish_now(&frame, &id)).await {
            Ok(outcome) => outcome.map_err(|error| error.into_publish_error(&frame)),
            Err(_) => Err(PublishError::Unavailable {
                reason: format!("no answer within {} s", PUBLISHES_WITHIN.as_secs()).into(),
            }),
        }
    }
}
