//! How a request fails, and what the client is told: always `{error, message, code}`.

use std::borrow::Cow;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use gpuvitals_listener::body::BodyError;
use gpuvitals_listener::parameter::ParameterError;
use gpuvitals_listener::refuse_with;
use serde::Serialize;
use utoipa::ToSchema;

use super::intake::{Complaints, DocumentError, MessagePlace, Refused};
use crate::broker::{AdminError, PublishError};
use crate::name::NameError;

/// What is wrong, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorCode {
    #[expect(dead_code, reason = "the listener answers so")]
    Unauthorized,
    #[expect(dead_code, reason = "the listener answers so")]
    Forbidden,
    BadParameter,
    BadTopic,
    BadProducer,
    BadMessages,
    BodyTooLarge,
    TooLarge,
    BodyCut,
    UnsupportedType,
    UnknownTopic,
    UnknownGroup,
    NotFound,
    MethodNotAllowed,
    #[expect(dead_code, reason = "the listener answers so")]
    TooManyRequests,
    TooManyTopics,
    SequenceTooOld,
    Full,
    Overloaded,
    ShuttingDown,
    Storage,
    Timeout,
    Internal,
}

/// The answer to every request that fails.
#[expect(dead_code, reason = "the listener writes it, the document describes it")]
#[derive(Debug, ToSchema)]
#[schema(as = Error)]
pub(crate) struct ErrorBody {
    /// The status in words.
    error: String,
    /// What is wrong and what to do, for people.
    message: String,
    /// What is wrong, for programs.
    code: ErrorCode,
    /// Of a publish that stopped: messages that were taken.
    #[schema(nullable = false)]
    accepted: Option<u64>,
    #[schema(nullable = false, max_items = 20)]
    refused: Option<Vec<Refused>>,
    #[schema(nullable = false)]
    refused_count: Option<u64>,
    #[schema(nullable = false, max_items = 20)]
    left_out: Option<Vec<Refused>>,
    #[schema(nullable = false)]
    left_out_count: Option<u64>,
    /// Of a publish that stopped: the first message that is to be sent again.
    #[schema(nullable = false)]
    next: Option<MessagePlace>,
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    #[error("topic: {0}")]
    Topic(NameError),
    #[error("{0}")]
    Producer(&'static str),
    #[error("the body is longer than {0} bytes, the most this queue takes in a request; send it in parts")]
    BodyTooLarge(usize),
    #[error("the body unpacks to more than {0} bytes, the most this queue takes; send it in parts")]
    UnpacksTooLarge(usize),
    #[error("the body does not unpack as {coding}")]
    Packing { coding: &'static str },
    #[error("content-encoding {0:?} is not understood; gzip, zstd and identity are")]
    Coding(String),
    #[error(
        "content-type {0:?} is not understood; send application/json, application/x-ndjson or \
         application/vnd.gpuvitals.batch"
    )]
    Type(String),
    #[error("this path speaks gRPC: POST with content-type application/grpc")]
    NotGrpc,
    #[error("the body ended early, nothing of it was taken")]
    BodyCut,
    #[error("the body took longer than {0} s to arrive, nothing of it was taken")]
    BodySlow(u64),
    #[error("{0}")]
    Document(#[from] DocumentError),
    #[error("no message of {refused} could be taken; the first: {first}")]
    NoGoodMessage { refused: u64, first: Refused },
    #[error("{error}")]
    Publish { error: PublishError },
    #[error("the queue did not answer within {0} s; whether the messages were taken is not known")]
    Unanswered(u64),
    #[error("too much is being received at once; try again later")]
    Overloaded,
    #[error("give either ids or oldest, one of them")]
    Selection,
    #[error("{0}; GET {there} lists what there is", there = match .0 {
        AdminError::UnknownTopic => "/topics",
        AdminError::UnknownGroup => "/topics/{topic}/groups",
    })]
    Admin(#[from] AdminError),
    #[error("there is nothing at {0:?}; GET / lists what there is")]
    NotFound(String),
    #[error("{path:?} does not know {method}; GET / lists what there is")]
    Method { method: String, path: String },
    #[error("the request failed on a defect of the queue; its log says more")]
    Crashed,
}

impl Refusal {
    /// A parameter with a value that is not allowed.
    pub(crate) fn parameter(name: &'static str, value: &str, allowed: impl Into<Cow<'static, str>>) -> Self {
        ParameterError::value(name, value, allowed).into()
    }

    /// The answer, with how far a publish came.
    pub(crate) fn with(self, progress: Option<Progress>) -> Response {
        let (status, code) = self.told();
        if code == ErrorCode::Internal {
            tracing::error!(error = %self, "a request failed on a defect");
        }
        refuse_with(status, code, &self.message(), progress)
    }

    fn told(&self) -> (StatusCode, ErrorCode) {
        match self {
            Self::Parameter(_) | Self::Selection => (StatusCode::BAD_REQUEST, ErrorCode::BadParameter),
            Self::Topic(_) => (StatusCode::BAD_REQUEST, ErrorCode::BadTopic),
            Self::Producer(_) => (StatusCode::BAD_REQUEST, ErrorCode::BadProducer),
            Self::BodyTooLarge(_) | Self::UnpacksTooLarge(_) => {
                (StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::BodyTooLarge)
            }
            Self::Document(DocumentError::TooLongForOneFrame) => {
                (StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge)
            }
            Self::Packing { .. } | Self::Document(_) | Self::NoGoodMessage { .. } => {
                (StatusCode::BAD_REQUEST, ErrorCode::BadMessages)
            }
            Self::Coding(_) | Self::Type(_) | Self::NotGrpc => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorCode::UnsupportedType)
            }
            Self::BodyCut => (StatusCode::BAD_REQUEST, ErrorCode::BodyCut),
            Self::BodySlow(_) => (StatusCode::REQUEST_TIMEOUT, ErrorCode::Timeout),
            Self::Unanswered(_) => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Timeout),
            Self::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Overloaded),
            Self::Publish { error } => publish_told(error),
            Self::Admin(AdminError::UnknownGroup) => (StatusCode::NOT_FOUND, ErrorCode::UnknownGroup),
            Self::Admin(_) => (StatusCode::NOT_FOUND, ErrorCode::UnknownTopic),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, ErrorCode::MethodNotAllowed),
            Self::Crashed => (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Internal),
        }
    }

    /// The words for people.
    fn message(&self) -> String {
        match self {
            Self::Publish { error: PublishError::Topic(name) } => format!("topic: {name}"),
            other => other.to_string(),
        }
    }
}

fn publish_told(error: &PublishError) -> (StatusCode, ErrorCode) {
    match error {
        PublishError::Topic(_) => (StatusCode::BAD_REQUEST, ErrorCode::BadTopic),
        PublishError::ProducerId { .. } => (StatusCode::BAD_REQUEST, ErrorCode::BadProducer),
        PublishError::NoMessages => (StatusCode::BAD_REQUEST, ErrorCode::BadMessages),
        PublishError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge),
        PublishError::Full { .. } => (StatusCode::TOO_MANY_REQUESTS, ErrorCode::Full),
        PublishError::TooManyTopics { .. } => (StatusCode::CONFLICT, ErrorCode::TooManyTopics),
        PublishError::SequenceTooOld { .. } => (StatusCode::CONFLICT, ErrorCode::SequenceTooOld),
        PublishError::Closed | PublishError::Cancelled => {
            (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::ShuttingDown)
        }
        PublishError::Storage { passes: false, .. } => {
            (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Storage)
        }
        PublishError::Storage { .. } | PublishError::Unavailable { .. } => {
            (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Storage)
        }
        PublishError::Denied { .. } | PublishError::Malformed { .. } | PublishError::Refused { .. } => {
            (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Internal)
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        self.with(None)
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Self {
        ParameterError::from(rejection).into()
    }
}

impl From<PathRejection> for Refusal {
    fn from(rejection: PathRejection) -> Self {
        ParameterError::from(rejection).into()
    }
}

impl From<BodyError> for Refusal {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge(limit) => Self::BodyTooLarge(limit),
            BodyError::Cut => Self::BodyCut,
            _ => Self::Overloaded,
        }
    }
}

/// How far a publish came, whether it was taken whole or not.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Progress {
    /// Messages that were taken.
    pub(super) accepted: u64,
    /// The first of those that were refused because they are bad.
    #[schema(max_items = 20)]
    refused: Vec<Refused>,
    /// All messages that were refused.
    refused_count: u64,
    /// The first values that cannot be true, in messages that were taken; the collector leaves them out.
    #[schema(max_items = 20)]
    left_out: Vec<Refused>,
    /// All of those.
    left_out_count: u64,
    /// Where to go on; only where the queue stopped before the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(super) next: Option<MessagePlace>,
}

impl Progress {
    pub(super) fn of(refused: Complaints, left_out: Complaints) -> Self {
        Self {
            refused: refused.named,
            refused_count: refused.count,
            left_out: left_out.named,
            left_out_count: left_out.count,
            ..Self::default()
        }
    }
}
