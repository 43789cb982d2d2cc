//! Publishing by HTTP: for ways on which gRPC does not come through.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use serde::Deserialize;
use tokio::sync::Semaphore;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::ServiceExt as _;
use tracing::Span;

use super::grpc::Dial;
use super::retry::Stamps;
use super::{Access, ConnectError, QueueUrl};
use crate::broker::{Durability, PublishError, Receipt};
use crate::frame::{ContentType, Encoding, Frame};
use crate::server::headers::{BATCH, DEAD, JSON, PRODUCER, SEQUENCE, dead_text};
use crate::service::Producer;

/// Requests under way at once; further publishes wait.
const REQUESTS: usize = 8;
/// How long an answer may take; a queue that takes longer counts as away.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Most bytes of an answer.
const ANSWER_BYTES: usize = 64 << 10;
/// Longest piece of an answer that is no queue's and is repeated in an error, in characters.
const ECHO_MAX: usize = 200;

/// Hands frames to one topic of a queue elsewhere, a request each, over one connection (HTTP/2) that is kept open and
/// made anew when it is lost. Any number of publishes may be called at once.
///
/// Frames without a stamp get one. When the connection is lost, what is under way fails with
/// [`PublishError::Unavailable`]: whether it was taken is not known, and whoever wants to send it again stamps it before
/// ([`Stamps`]).
///
/// The queue checks the messages of a JSON frame. If it refuses some of them, the others are taken, and the publish
/// fails with [`PublishError::Refused`], which says how many.
pub struct HttpProducer {
    dial: Box<Dial>,
    uri: String,
    topic: Arc<str>,
    channel: OnceLock<Channel>,
    requests: Semaphore,
    /// One for each request under way, so that of every id one frame is under way at a time.
    stamps: Mutex<Vec<Stamps>>,
}

impl fmt::Debug for HttpProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpProducer").field("uri", &self.uri).finish_non_exhaustive()
    }
}

impl HttpProducer {
    /// A producer without a connection.
    ///
    /// # Errors
    ///
    /// The topic's name is refused, or what access needs cannot be read.
    pub fn new(url: &QueueUrl, access: &Access, topic: impl Into<Arc<str>>) -> Result<Self, ConnectError> {
        let topic = topic.into();
        crate::name::check_topic(&topic).map_err(|source| ConnectError::Name { what: "topic", source })?;
        Ok(Self {
            dial: Box::new(Dial::new(url, access)?),
            uri: format!("/publish/{topic}"),
            topic,
            channel: OnceLock::new(),
            requests: Semaphore::new(REQUESTS),
            stamps: Mutex::default(),
        })
    }

    fn request(&self, frame: &Frame) -> Result<Request<Body>, PublishError> {
        let mut headers = HeaderMap::new();
        let kind = match frame.content_type {
            ContentType::Batch => BATCH,
            ContentType::Json => JSON,
        };
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        if frame.encoding == Encoding::Zstd {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("zstd"));
        }
        let text = |what: &str, text: &str| {
            HeaderValue::from_bytes(text.as_bytes())
                .map_err(|_| refused(format!("the {what} has characters that no header can carry")))
        };
        if let Some(stamp) = &frame.producer {
            headers.insert(PRODUCER, text("producer's id", &stamp.id)?);
            headers.insert(SEQUENCE, stamp.sequence.into());
        }
        if let Some(dead) = &frame.dead {
            headers.insert(DEAD, text("facts of a dead letter", &dead_text(dead))?);
        }
        gpuvitals_trace::pass_on(&Span::current(), &mut headers);
        if let Some(bearer) = self.dial.bearer() {
            headers.insert(AUTHORIZATION, bearer);
        }
        let mut request = Request::new(Body::new(Full::new(frame.payload.clone())));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.parse().map_err(|_| refused(format!("{} is no path", self.uri)))?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    async fn ask(&self, frame: &Frame) -> Result<Receipt, PublishError> {
        let request = self.request(frame)?;
        let channel = self.channel.get_or_init(|| self.dial.channel()).clone();
        let answered = async {
            let response = channel.oneshot(request).await.map_err(|error| self.unreachable(&error))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES).collect().await;
            let body = body.map_err(|error| self.unreachable(&*error))?;
            Ok((head.status, head.headers, body.to_bytes()))
        };
        let answered = tokio::time::timeout(ANSWER_LIMIT, answered).await;
        let (status, headers, body) = answered.map_err(|_| self.away("it does not answer in time"))??;
        if status == StatusCode::OK {
            self.taken(&body)
        } else {
            Err(self.not_taken(frame, status, &headers, &body))
        }
    }

    fn taken(&self, body: &Bytes) -> Result<Receipt, PublishError> {
        let answer: Taken = serde_json::from_slice(body)
            .map_err(|error| self.away(&format!("its answer cannot be read: {error}")))?;
        if answer.refused_count > 0 {
            let first = answer.refused.into_iter().next().map(|refused| refused.reason).unwrap_or_default();
            let (refused_count, accepted) = (answer.refused_count, answer.accepted);
            return Err(refused(format!(
                "{refused_count} messages of a frame, the others ({accepted}) were taken; the first: {first}"
            )));
        }
        let durability = match answer.durability.as_str() {
            "memory" => Durability::Memory,
            "written" => Durability::Written,
            "synced" => Durability::Synced,
            _ => return Err(self.away("its answer has no known durability")),
        };
        Ok(Receipt { offset: answer.offsets.first().copied(), durability, duplicate: answer.duplicate })
    }

    fn not_taken(
        &self,
        frame: &Frame,
        status: StatusCode,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> PublishError {
        let told: Option<Told> = serde_json::from_slice(body).ok();
        let reason = told.as_ref().map_or_else(
            || {
                let text: String = String::from_utf8_lossy(body).chars().take(ECHO_MAX).collect();
                format!("{status}: {}", text.trim())
            },
            |told| told.message.clone(),
        );
        let retry_after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let retry_after = retry_after.map(Duration::from_secs);
        match told.as_ref().map(|told| told.code.as_str()) {
            Some("sequence_too_old") => PublishError::SequenceTooOld { reason: reason.into() },
            Some("storage") => PublishError::Storage { reason: reason.into(), passes: retry_after.is_some() },
            _ if status == StatusCode::TOO_MANY_REQUESTS => {
                PublishError::Full { topic: Arc::clone(&self.topic), retry_after }
            }
            _ if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                PublishError::Denied { reason: self.dial.lost(&reason).reason }
            }
            _ if status == StatusCode::PAYLOAD_TOO_LARGE => {
                PublishError::TooLarge { messages: frame.count, bytes: frame.cost_bytes() }
            }
            _ if status == StatusCode::REQUEST_TIMEOUT || status.is_server_error() => self.away(&reason),
            _ => refused(reason),
        }
    }

    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> PublishError {
        PublishError::Unavailable { reason: self.dial.unreachable(error).reason }
    }

    fn away(&self, what: &str) -> PublishError {
        PublishError::Unavailable { reason: self.dial.lost(what).reason }
    }
}

impl Producer for HttpProducer {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        let Ok(_turn) = self.requests.acquire().await else { return Err(PublishError::Closed) };
        if frame.producer.is_some() {
            return self.ask(&frame).await;
        }
        let free = || self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = free().pop().unwrap_or_else(Stamps::new);
        let outcome = self.ask(&stamps.stamp(frame)).await;
        free().push(stamps);
        outcome
    }
}

fn refused(reason: String) -> PublishError {
    PublishError::Refused { reason: reason.into() }
}

/// The answer to what was taken, as far as it is needed here.
#[derive(Debug, Deserialize)]
struct Taken {
    accepted: u64,
    refused: Vec<RefusedMessage>,
    refused_count: u64,
    durability: String,
    offsets: Vec<u64>,
    duplicate: bool,
}

#[derive(Debug, Deserialize)]
struct RefusedMessage {
    reason: String,
}

/// The answer to what was not.
#[derive(Debug, Deserialize)]
struct Told {
    message: String,
    code: String,
}
