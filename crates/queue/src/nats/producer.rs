//! Publishing to JetStream.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishError as JetStreamError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::{self, ErrorCode};
use bytes::Bytes;
use tokio::sync::Mutex;

use super::error::NatsError;
use super::head;
use super::names::Topic;
use super::session::{Endpoint, Session};
use super::settings::NatsSettings;
use super::shelf::{self, Shelf};
use crate::broker::{PublishError, Receipt};
use crate::frame::Frame;
use crate::link::{Access, ConnectError, QueueUrl, Stamps};
use crate::name::NAME_LEN_MAX;
use crate::service::Producer;

/// How long a publish takes at most, with all it may have to do before: connect, look at the stream, make it.
const PUBLISHES_WITHIN: Duration = Duration::from_secs(10);

/// Hands frames to one topic in NATS JetStream. A frame without a stamp is given one, so that a publish may be
/// repeated.
#[derive(Debug)]
pub struct NatsProducer {
    endpoint: Endpoint,
    topic: Topic,
    settings: Arc<NatsSettings>,
    shelf: Mutex<Option<Arc<Shelf>>>,
    stamps: Stamps,
}

impl NatsProducer {
    /// A producer for `topic`. It connects with the first publish.
    ///
    /// # Errors
    ///
    /// The topic's name is refused.
    pub fn new(url: &QueueUrl, access: &Access, topic: &str) -> Result<Self, ConnectError> {
        Ok(Self {
            endpoint: Endpoint::new(url, access),
            topic: Topic::new(topic).map_err(|source| ConnectError::Name { what: "topic", source })?,
            settings: Arc::clone(&url.nats),
            shelf: Mutex::new(None),
            stamps: Stamps::new(),
        })
    }

    async fn open(&self) -> Result<(Session, Arc<Shelf>), NatsError> {
        // Seldom, and large: not part of every publish.
        let session = Box::pin(self.endpoint.session()).await?;
        let mut shelf = self.shelf.lock().await;
        if let Some(shelf) = &*shelf {
            return Ok((session, Arc::clone(shelf)));
        }
        let found = Box::pin(shelf::ensure(&session, &self.topic, &self.settings)).await?;
        Ok((session, Arc::clone(shelf.insert(Arc::new(found)))))
    }

    async fn publish_now(&self, frame: &Frame) -> Result<Receipt, PublishError> {
        let (session, shelf) = self.open().await.map_err(NatsError::into_refusal)?;
        let (messages, bytes) = (frame.count, frame.cost_bytes());
        if frame.payload.len() + head::GROWTH_LEN_MAX > session.client.max_payload() {
            return Err(PublishError::TooLarge { messages, bytes });
        }
        let sent = publish(
            &session,
            &self.topic.subject,
            head::of_frame(frame),
            head::message_id(frame),
            &frame.payload,
        );
        let ack = match sent.await {
            Ok(ack) => ack,
            Err(Refusal::NoStream) => {
                // Deleted, or without a leader just now: the next publish looks.
                *self.shelf.lock().await = None;
                let reason = format!("no stream takes {} now", self.topic.subject).into();
                return Err(PublishError::Unavailable { reason });
            }
            Err(Refusal::Full) => {
                return Err(PublishError::Full { topic: Arc::clone(&self.topic.name), retry_after: None });
            }
            Err(Refusal::TooLarge) => return Err(PublishError::TooLarge { messages, bytes }),
            Err(Refusal::NoSpace(reason)) => return Err(PublishError::Storage { reason, passes: true }),
            Err(Refusal::Other(error)) => return Err(error.into_refusal()),
        };
        Ok(Receipt {
            offset: (!ack.duplicate).then_some(ack.sequence),
            durability: shelf.durability,
            duplicate: ack.duplicate,
        })
    }
}

impl Producer for NatsProducer {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        if frame.count == 0 {
            return Err(PublishError::NoMessages);
        }
        let frame = self.stamps.stamp(frame);
        let id_len = frame.producer.as_ref().map_or(0, |stamp| stamp.id.len());
        if !(1..=NAME_LEN_MAX).contains(&id_len) {
            return Err(PublishError::ProducerId { len: id_len });
        }
        match tokio::time::timeout(PUBLISHES_WITHIN, self.publish_now(&frame)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(PublishError::Unavailable {
                reason: format!("no answer within {} s", PUBLISHES_WITHIN.as_secs()).into(),
            }),
        }
    }
}

/// Why JetStream did not take a message.
pub(super) enum Refusal {
    /// No stream takes the subject now.
    NoStream,
    /// The stream is at its bound.
    Full,
    /// Larger than the server or the stream takes.
    TooLarge,
    /// The server or the account has no room.
    NoSpace(Arc<str>),
    /// Something else.
    Other(NatsError),
}

impl Refusal {
    /// As an error, where nothing is done about any of them.
    pub(super) fn into_error(self, subject: &str) -> NatsError {
        match self {
            Self::NoStream => NatsError::Unavailable(format!("no stream takes {subject} now").into()),
            Self::Full => NatsError::Unavailable(format!("the stream of {subject} is full").into()),
            Self::TooLarge => NatsError::Refused {
                what: subject.into(),
                reason: "the message is larger than the server takes".into(),
            },
            Self::NoSpace(reason) => NatsError::Unavailable(reason),
            Self::Other(error) => error,
        }
    }
}

/// Publishes one message and waits until JetStream has it.
pub(super) async fn publish(
    session: &Session,
    subject: &str,
    headers: HeaderMap,
    id: Option<String>,
    payload: &Bytes,
) -> Result<PublishAck, Refusal> {
    if !session.is_connected() {
        return Err(Refusal::Other(NatsError::unavailable("not connected now")));
    }
    let mut message = PublishMessage::build().headers(headers).payload(payload.clone());
    if let Some(id) = id {
        message = message.message_id(id);
    }
    let answer = async {
        let acked = match session.jetstream.send_publish(subject.to_owned(), message).await {
            Ok(sent) => sent.await,
            Err(error) => Err(error),
        };
        Ok(acked)
    };
    match session.unless_denied(subject, answer).await {
        Ok(Ok(ack)) => Ok(ack),
        Ok(Err(error)) => Err(refusal(session, subject, &error)),
        Err(denied) => Err(Refusal::Other(denied)),
    }
}

fn refusal(session: &Session, subject: &str, error: &JetStreamError) -> Refusal {
    match error.kind() {
        PublishErrorKind::StreamNotFound => Refusal::NoStream,
        PublishErrorKind::MaxPayloadExceeded => Refusal::TooLarge,
        _ => {
            let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
            let Some(said): Option<&jetstream::Error> = source else {
                return Refusal::Other(NatsError::unavailable(error));
            };
            let text = said.to_string();
            match said.error_code() {
                ErrorCode::STREAM_STORE_FAILED if text.contains("maximum") => Refusal::Full,
                ErrorCode::STREAM_STORE_FAILED
                | ErrorCode::STORAGE_RESOURCES_EXCEEDED
                | ErrorCode::MEMORY_RESOURCES_EXCEEDED
                | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
                | ErrorCode::INSUFFICIENT_RESOURCES => Refusal::NoSpace(text.into()),
                ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
                    Refusal::TooLarge
                }
                _ => Refusal::Other(NatsError::answered(&session.url, subject, said)),
            }
        }
    }
}
