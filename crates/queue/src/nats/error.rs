//! Failures of NATS, with what a person can change.

use std::sync::Arc;

use async_nats::jetstream;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{PublishError as JetStreamPublishError, PublishErrorKind};

use crate::broker::{PublishError, ReceiveError};
use crate::frame::Frame;
use crate::link::QueueUrl;
use crate::name::NameError;

/// Why a topic fills in NATS, and what makes room: acknowledging makes none.
const ROOM: &str = "its stream holds every message for its max_age, collected or not, and more came in that time than max_bytes. \
                    Raise max_bytes or shorten max_age: nats stream edit changes a stream that is there, the queue's URL \
                    (?max_bytes=8GiB&max_age=30m) one that is not made yet; docs/nats.md tells how to size it";

/// A request that NATS did not carry out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// The name of a topic or group is refused.
    #[error("cannot use the name in NATS")]
    Name(#[source] NameError),
    /// A topic that has no stream.
    #[error("topic {0} has no stream in NATS")]
    UnknownTopic(Arc<str>),
    /// The server does not know these credentials.
    #[error("{url} refused the credentials: {reason}")]
    Credentials {
        /// URL of the server that was asked.
        url: QueueUrl,
        /// What the server answered.
        reason: Arc<str>,
    },
    /// A permission is missing.
    #[error("NATS refused: {0}; docs/nats.md lists the permissions that are needed")]
    Denied(Arc<str>),
    /// The topic's stream is at its bound.
    #[error("topic {0} is full: {room}", room = ROOM)]
    Full(Arc<str>),
    /// A message larger than the server or the stream takes.
    #[error("the message is larger than NATS takes")]
    TooLarge,
    /// NATS cannot be reached, or does not answer: trying again is right.
    #[error("NATS is not available: {0}")]
    Unavailable(Arc<str>),
    /// A server, stream, consumer or file that cannot be used until somebody has changed something.
    #[error("cannot use {what} in NATS: {reason}")]
    Unusable {
        /// Which it is, with its name.
        what: Arc<str>,
        /// The defect, and its remedy where one is known.
        reason: Arc<str>,
    },
}

impl NatsError {
    pub(super) fn unavailable(reason: impl std::fmt::Display) -> Self {
        Self::Unavailable(reason.to_string().into())
    }

    pub(super) fn unusable(what: &str, reason: impl std::fmt::Display) -> Self {
        Self::Unusable { what: what.into(), reason: reason.to_string().into() }
    }

    /// JetStream is not enabled.
    pub(super) fn no_jetstream(url: &QueueUrl) -> Self {
        let remedy = "it has no JetStream for this account: start nats-server with -js (or a jetstream block in its \
                      configuration), and enable it for the account";
        Self::unusable(&url.to_string(), remedy)
    }

    /// Whether trying again does not help until somebody has changed something.
    pub fn is_lasting(&self) -> bool {
        !matches!(self, Self::Unavailable(_) | Self::Full(_))
    }

    /// The meaning of the server's answer to a request for `what`.
    pub(super) fn answered(url: &QueueUrl, what: &str, error: &jetstream::Error) -> Self {
        let reason: Arc<str> = error.to_string().into();
        match error.error_code() {
            ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
                Self::no_jetstream(url)
            }
            ErrorCode::STORAGE_RESOURCES_EXCEEDED
            | ErrorCode::MEMORY_RESOURCES_EXCEEDED
            | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
            | ErrorCode::INSUFFICIENT_RESOURCES
            | ErrorCode::NO_LIMITS
            | ErrorCode::MAXIMUM_STREAMS_LIMIT
            | ErrorCode::MAXIMUM_CONSUMERS_LIMIT
            | ErrorCode::STREAM_MAX_STREAM_BYTES_EXCEEDED => {
                let remedy = "raise the limit of the server (jetstream max_file_store) or of the account, or create \
                              the stream yourself as you want it";
                Self::unusable(what, format_args!("no room: {reason}; {remedy}"))
            }
            // Also while a cluster starts.
            ErrorCode::CLUSTER_NO_PEERS => Self::unavailable(format_args!(
                "{what}: the cluster has too few servers with JetStream and room now: {reason}"
            )),
            // A wrong setting, though the server reports a failure of its own.
            ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED => Self::unusable(what, reason),
            // The server's own trouble, such as a stream without a leader.
            _ if error.code() >= 500 => Self::Unavailable(reason),
            _ => Self::unusable(what, reason),
        }
    }

    /// The meaning of a failed publish to `topic`.
    pub(super) fn of_publish(url: &QueueUrl, topic: &Arc<str>, error: &JetStreamPublishError) -> Self {
        match error.kind() {
            PublishErrorKind::StreamNotFound => {
                return Self::unavailable(format_args!("no stream takes topic {topic} now"));
            }
            PublishErrorKind::MaxPayloadExceeded => return Self::TooLarge,
            _ => {}
        }
        let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
        let Some(answer): Option<&jetstream::Error> = source else { return Self::unavailable(error) };
        match answer.error_code() {
            ErrorCode::STREAM_STORE_FAILED if answer.to_string().contains("maximum") => {
                Self::Full(Arc::clone(topic))
            }
            ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
                Self::TooLarge
            }
            // There may be room later, without a change of limits.
            ErrorCode::STORAGE_RESOURCES_EXCEEDED
            | ErrorCode::MEMORY_RESOURCES_EXCEEDED
            | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
            | ErrorCode::INSUFFICIENT_RESOURCES => Self::unavailable(answer),
            _ => Self::answered(url, topic, answer),
        }
    }

    /// The same as a publisher of `frame` sees it.
    pub(super) fn into_publish_error(self, frame: &Frame) -> PublishError {
        let reason = self.to_string().into();
        match self {
            Self::Name(name) => PublishError::Topic(name),
            Self::Unavailable(reason) => PublishError::Unavailable { reason },
            Self::Full(topic) => PublishError::Full { topic, remedy: ROOM, retry_after: None },
            Self::TooLarge => PublishError::TooLarge { messages: frame.count, bytes: frame.cost_bytes() },
            Self::Credentials { .. } | Self::Denied(_) => PublishError::Denied { reason },
            _ => PublishError::Refused { reason },
        }
    }

    /// The same as a consumer sees it that cannot go on.
    pub(super) fn into_receive_error(self) -> ReceiveError {
        let reason = self.to_string().into();
        match self {
            Self::Credentials { .. } | Self::Denied(_) => ReceiveError::Denied { reason },
            _ => ReceiveError::Refused { reason },
        }
    }
}
