//! How a request fails, and what the client is told: always `{error, message, code}`.

use std::borrow::Cow;

use axum::http::header::ALLOW;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use gpuvitals_core::history::{NoGpu, QueryError};
use gpuvitals_flight::JobError;
use gpuvitals_listener::parameter::ParameterError;
use gpuvitals_listener::{echo, refuse};
use serde::Serialize;
use utoipa::ToSchema;

/// Most GPUs that an answer names as those that may be meant.
const CANDIDATES_MAX: usize = 8;

/// The error, for programs. The list is the same for every path:
/// `bad_parameter` (400): a parameter is unknown, missing or not allowed; the message names it and what is allowed.
/// `bad_body` (400): the body is not as described; the message says where.
/// `too_large` (400): the answer would be larger than the limits; the message says what to change.
/// `unauthorized` (401): the request needs a token, or its token is not known.
/// `forbidden` (403): the token lacks the scope, or the client shows no certificate where one is needed.
/// `not_kept` (404): the rows asked for are not kept; the message says why, and what to set.
/// `unknown_gpu` (404): no GPU answers to this name.
/// `ambiguous_gpu` (404): several GPUs answer to this name; the message lists their ids.
/// `unknown_host` (404): no host has this name.
/// `unknown_cluster` (404): no cluster of the configuration has this name.
/// `no_gpus` (400): the cluster has no GPUs by configuration.
/// `unknown_node` (404): no GPU node has this name.
/// `unknown_finding` (404): no open finding has this id.
/// `unknown_job` (404): no GPU is, or in this range was, held by a job or pod of this id.
/// `unknown_silence` (404): nothing of this name is silenced.
/// `unknown_incident` (404): no incident of a job has this id, or not that of this node.
/// `not_found` (404): nothing is at this path.
/// `method_not_allowed` (405): the path does not support this method.
/// `body_too_large` (413): the request has a body that is too long; only forms of queries in PromQL, silences, and rows of incidents of jobs are taken.
/// `too_many_requests` (429): more requests a second than `listener.request_rate` allows; `retry-after` says how long to wait.
/// `no_broker` (501): the queue is not a gpuvitals broker, so nothing of it is answered here.
/// `too_many_streams` (503): the limit of open live streams is reached.
/// `overloaded` (503): more queries wait than can be answered in time.
/// `incomplete` (503): what was asked for is not in the part of the data that could be read; the message says what was not.
/// `unavailable` (503): what keeps the data cannot be reached; the message names it.
/// `timeout` (503): the answer took too long.
/// `internal` (500): a defect of the gateway; its log says more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorCode {
    BadParameter,
    BadBody,
    TooLarge,
    #[expect(dead_code, reason = "the listener answers so")]
    Unauthorized,
    #[expect(dead_code, reason = "the listener answers so")]
    Forbidden,
    NotKept,
    UnknownGpu,
    AmbiguousGpu,
    UnknownHost,
    UnknownCluster,
    NoGpus,
    UnknownNode,
    UnknownFinding,
    UnknownJob,
    UnknownSilence,
    UnknownIncident,
    NotFound,
    MethodNotAllowed,
    BodyTooLarge,
    #[expect(dead_code, reason = "the listener answers so")]
    TooManyRequests,
    #[expect(dead_code, reason = "the relay to the queue answers so")]
    NoBroker,
    TooManyStreams,
    Overloaded,
    Incomplete,
    Unavailable,
    #[expect(dead_code, reason = "the listener answers so")]
    Timeout,
    Internal,
}

/// The answer to every request that fails.
#[expect(dead_code, reason = "the listener writes it, the document describes it")]
#[derive(Debug, ToSchema)]
#[schema(example = json!({
    "error": "bad request", "message": "limit is \"many\"; allowed is a whole number from 1 to 10000",
    "code": "bad_parameter"
}))]
pub(crate) struct ErrorBody {
    /// The HTTP status in words.
    pub(crate) error: String,
    /// The error and its remedy, for people.
    pub(crate) message: String,
    /// The error, for programs.
    pub(crate) code: ErrorCode,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    #[error("{name} is missing; give {allowed}")]
    Missing { name: &'static str, allowed: Cow<'static, str> },
    #[error("the body: {0}")]
    Body(String),
    #[error("silences cannot be kept: this gateway has no queue that it publishes to")]
    NoLog,
    #[error("no open finding has the id {0:?}; GET /api/v1/analysis/findings lists them")]
    UnknownFinding(String),
    #[error(
        "no GPU is held by a job or pod with the id {0:?}; give CLUSTER/NAMESPACE/NAME, each empty if it is not known"
    )]
    UnknownJob(String),
    #[error("no GPU was held by {0:?} in this range; GET /api/v1/jobs lists who held one")]
    UnknownHolder(String),
    #[error("nothing is silenced as {0:?}; GET /api/v1/analysis/silences lists what is")]
    UnknownSilence(String),
    #[error(
        "incidents of jobs are not kept here: flight.dir of this gateway names no directory that it can use"
    )]
    NoJobs,
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("end is before start")]
    EndBeforeStart,
    #[error("{buckets} steps × {series} series are more than {max} values; {advice}")]
    TooManyValues { buckets: i64, series: usize, max: usize, advice: &'static str },
    #[error("no GPU is known as {0:?}; GET /api/v1/gpus lists them")]
    UnknownGpu(String),
    #[error("{count} GPUs are known as {name:?}; give the id of the one you mean: {}{}", ids.join(", "), if *count > ids.len() { ", …" } else { "" })]
    AmbiguousGpu { name: String, count: usize, ids: Vec<String> },
    #[error("no host is known as {0:?}; GET /api/v1/hosts lists them")]
    UnknownHost(String),
    #[error("no cluster is known as {0:?}; GET /api/v1/gpu/clusters lists them")]
    UnknownCluster(String),
    #[error("cluster {0:?} has no GPUs by configuration (has_gpu: false)")]
    NoGpus(String),
    #[error("no GPU node is known as {0:?}; GET /api/v1/gpu/nodes lists them")]
    UnknownNode(String),
    #[error("{name:?} is not in what could be read; try again later; what could not: {}", missing.join("; "))]
    Incomplete { name: String, missing: Vec<String> },
    #[error("there is nothing at {0:?}; /docs describes what there is")]
    NotFound(String),
    #[error("{path:?} does not know {method}; it answers {allowed}")]
    Method { method: String, path: String, allowed: &'static str },
    #[error("{0} live streams are open, and there may be no more; close one or try again later")]
    Streams(usize),
    #[error(
        "more queries wait than can be answered in time; try again later, with a shorter range or fewer GPUs"
    )]
    Overloaded,
    #[error("{0}")]
    Query(#[from] QueryError),
    #[error(transparent)]
    Prom(gpuvitals_promql::PromError),
    #[error("cannot write the answer")]
    Render(#[from] serde_json::Error),
    #[error("cannot write the answer as a table")]
    Table(#[from] arrow_schema::ArrowError),
    #[error("cannot compress the answer")]
    Compress(#[source] std::io::Error),
    #[error("the request failed on a defect of the gateway; its log says more")]
    Crashed,
}

impl ApiError {
    /// A parameter with a value that is not allowed.
    pub(crate) fn parameter(name: &'static str, value: &str, allowed: impl Into<Cow<'static, str>>) -> Self {
        ParameterError::value(name, value, allowed).into()
    }

    /// A name that is not that of one GPU in a fleet that lacks `missing`.
    pub(crate) fn no_gpu(name: &str, why: NoGpu, missing: &[String]) -> Self {
        match why {
            NoGpu::Unknown if !missing.is_empty() => Self::incomplete(name, missing),
            NoGpu::Unknown => Self::UnknownGpu(echo(name)),
            NoGpu::Ambiguous(keys) => Self::AmbiguousGpu {
                name: echo(name),
                count: keys.len(),
                ids: keys.iter().take(CANDIDATES_MAX).map(ToString::to_string).collect(),
            },
        }
    }

    /// A host that is none in a fleet that lacks `missing`.
    pub(crate) fn no_host(name: &str, missing: &[String]) -> Self {
        if missing.is_empty() { Self::UnknownHost(echo(name)) } else { Self::incomplete(name, missing) }
    }

    /// A finding that is not open.
    pub(crate) fn unknown_finding(id: &str) -> Self {
        Self::UnknownFinding(echo(id))
    }

    /// A holder without a row in what was read of a range.
    pub(crate) fn no_holder(name: &str, missing: &[String]) -> Self {
        if missing.is_empty() { Self::UnknownHolder(echo(name)) } else { Self::incomplete(name, missing) }
    }

    /// A name that may be in what could not be read.
    pub(crate) fn incomplete(name: &str, missing: &[String]) -> Self {
        Self::Incomplete { name: echo(name), missing: missing.to_vec() }
    }

    /// A path nothing stands at.
    pub(crate) fn not_found(path: &str) -> Self {
        Self::NotFound(echo(path))
    }

    fn status_and_code(&self) -> (StatusCode, ErrorCode) {
        match self {
            Self::Parameter(_)
            | Self::Missing { .. }
            | Self::EndBeforeStart
            | Self::Query(QueryError::Range { .. } | QueryError::UnknownMetric { .. }) => {
                (StatusCode::BAD_REQUEST, ErrorCode::BadParameter)
            }
            Self::TooManyValues { .. }
            | Self::Query(
                QueryError::TooManyBuckets { .. }
                | QueryError::TooManyPoints { .. }
                | QueryError::TooManyValues { .. }
                | QueryError::TooManyRows { .. },
            ) => (StatusCode::BAD_REQUEST, ErrorCode::TooLarge),
            Self::UnknownGpu(_) => (StatusCode::NOT_FOUND, ErrorCode::UnknownGpu),
            Self::AmbiguousGpu { .. } => (StatusCode::NOT_FOUND, ErrorCode::AmbiguousGpu),
            Self::UnknownHost(_) => (StatusCode::NOT_FOUND, ErrorCode::UnknownHost),
            Self::UnknownCluster(_) => (StatusCode::NOT_FOUND, ErrorCode::UnknownCluster),
            Self::NoGpus(_) => (StatusCode::BAD_REQUEST, ErrorCode::NoGpus),
            Self::Body(_) | Self::Job(JobError::Unfit(_)) => (StatusCode::BAD_REQUEST, ErrorCode::BadBody),
            Self::UnknownFinding(_) => (StatusCode::NOT_FOUND, ErrorCode::UnknownFinding),
            Self::UnknownJob(_) | Self::UnknownHolder(_) => (StatusCode::NOT_FOUND, ErrorCode::UnknownJob),
            Self::UnknownSilence(_) => (StatusCode::NOT_FOUND, ErrorCode::UnknownSilence),
            Self::UnknownNode(_) => (StatusCode::NOT_FOUND, ErrorCode::UnknownNode),
            // A history need not keep everything that can be asked: that is no defect of it.
            Self::Query(QueryError::NotKept { .. }) => (StatusCode::NOT_FOUND, ErrorCode::NotKept),
            Self::NotFound(_) => (StatusCode::NOT_FOUND, ErrorCode::NotFound),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, ErrorCode::MethodNotAllowed),
            Self::Streams(_) => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::TooManyStreams),
            Self::Incomplete { .. } => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Incomplete),
            Self::Job(JobError::Unknown { .. }) => (StatusCode::NOT_FOUND, ErrorCode::UnknownIncident),
            Self::Job(JobError::TooLong { .. }) => (StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::BodyTooLarge),
            Self::NoLog | Self::NoJobs | Self::Job(_) | Self::Query(QueryError::Away { .. }) => {
                (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Unavailable)
            }
            Self::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Overloaded),
            // Its paths answer in Prometheus' own shape.
            Self::Prom(_) => (StatusCode::BAD_REQUEST, ErrorCode::BadParameter),
            Self::Query(_) | Self::Render(_) | Self::Table(_) | Self::Compress(_) | Self::Crashed => {
                (StatusCode::INTERNAL_SERVER_ERROR, ErrorCode::Internal)
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, code) = self.status_and_code();
        let allowed = if let Self::Method { allowed, .. } = &self { Some(*allowed) } else { None };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            let cause = std::error::Error::source(&self).map(ToString::to_string);
            tracing::error!(error = %self, cause, "a request failed on a defect");
        }
        let mut response = refuse(status, code, &self.to_string());
        response.headers_mut().extend(allowed.map(|allowed| (ALLOW, HeaderValue::from_static(allowed))));
        response
    }
}
