//! What NATS refuses, said for the person who has to change something.

use std::sync::Arc;

use async_nats::jetstream;
use async_nats::jetstream::ErrorCode;

use crate::broker::{PublishError, ReceiveError};
use crate::link::QueueUrl;
use crate::name::NameError;

/// Something that NATS did not do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// A topic's name is refused.
    #[error("topic in NATS")]
    Topic(#[source] NameError),
    /// There is no such topic.
    #[error("topic {0} has no stream in NATS")]
    UnknownTopic(Arc<str>),
    /// A file with credentials cannot be used.
    #[error("NATS credentials: {0}")]
    CredentialsFile(Arc<str>),
    /// The server does not know whoever connects.
    #[error("{url} refused the credentials: {reason}")]
    Credentials {
        /// The server.
        url: QueueUrl,
        /// What it said.
        reason: Arc<str>,
    },
    /// The account may not do what is needed.
    #[error("NATS refused: {0}; docs/nats.md lists the permissions that are needed")]
    Denied(Arc<str>),
    /// The server is from before what is needed.
    #[error("{url} runs nats-server {version}; 2.9 or newer is needed")]
    OldServer {
        /// The server.
        url: QueueUrl,
        /// Its version.
        version: Arc<str>,
    },
    /// No JetStream.
    #[error(
        "{url} has no JetStream for this account: start nats-server with -js (or a jetstream block in its \
         configuration), and enable it for the account"
    )]
    NotEnabled {
        /// The server.
        url: QueueUrl,
    },
    /// A limit of the server or the account.
    #[error(
        "NATS has no room for {what}: {reason}; raise the limit of the server (jetstream max_file_store) or of the \
         account, or create the stream yourself as you want it"
    )]
    Limit {
        /// What was to be made.
        what: Arc<str>,
        /// What the server said.
        reason: Arc<str>,
    },
    /// A stream or consumer exists, and not in a way that can be used.
    #[error("{what} exists in NATS and cannot be used: {reason}")]
    Unfit {
        /// Which.
        what: Arc<str>,
        /// What is wrong with it, and what to do.
        reason: Arc<str>,
    },
    /// NATS cannot be reached, or does not answer: trying again is right.
    #[error("NATS is not available: {0}")]
    Unavailable(Arc<str>),
    /// Another refusal.
    #[error("NATS refused {what}: {reason}")]
    Refused {
        /// What was asked.
        what: Arc<str>,
        /// What it said.
        reason: Arc<str>,
    },
}

impl NatsError {
    pub(super) fn unavailable(reason: impl std::fmt::Display) -> Self {
        Self::Unavailable(reason.to_string().into())
    }

    /// Whether trying again does not help until somebody has changed something.
    pub fn is_lasting(&self) -> bool {
        !matches!(self, Self::Unavailable(_))
    }

    /// What the server's answer means. `what` was asked for.
    pub(super) fn answered(url: &QueueUrl, what: &str, error: &jetstream::Error) -> Self {
        let reason: Arc<str> = error.to_string().into();
        match error.error_code() {
            ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
                Self::NotEnabled { url: url.clone() }
            }
            ErrorCode::STORAGE_RESOURCES_EXCEEDED
            | ErrorCode::MEMORY_RESOURCES_EXCEEDED
            | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
            | ErrorCode::INSUFFICIENT_RESOURCES
            | ErrorCode::NO_LIMITS
            | ErrorCode::MAXIMUM_STREAMS_LIMIT
            | ErrorCode::MAXIMUM_CONSUMERS_LIMIT
            | ErrorCode::STREAM_MAX_STREAM_BYTES_EXCEEDED => Self::Limit { what: what.into(), reason },
            // Also while a cluster starts.
            ErrorCode::CLUSTER_NO_PEERS => Self::Unavailable(
                format!("{what}: the cluster has not so many servers with JetStream and room now: {reason}")
                    .into(),
            ),
            // Told as the server's own trouble, which it is not.
            ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED => Self::Refused { what: what.into(), reason },
            // The server's own trouble, such as a stream without a leader.
            _ if error.code() >= 500 => Self::Unavailable(reason),
            _ => Self::Refused { what: what.into(), reason },
        }
    }

    /// As a publisher sees it.
    pub(super) fn into_refusal(self) -> PublishError {
        match self {
            Self::Topic(name) => PublishError::Topic(name),
            Self::Unavailable(reason) => PublishError::Unavailable { reason },
            denied if denied.is_denial() => PublishError::Denied { reason: denied.to_string().into() },
            lasting => PublishError::Refused { reason: lasting.to_string().into() },
        }
    }

    /// As a consumer sees one that lasts.
    pub(super) fn ends_receiving(&self) -> ReceiveError {
        let reason = self.to_string().into();
        if self.is_denial() { ReceiveError::Denied { reason } } else { ReceiveError::Refused { reason } }
    }

    /// Whether a right is missing.
    fn is_denial(&self) -> bool {
        matches!(self, Self::Credentials { .. } | Self::Denied(_))
    }
}
