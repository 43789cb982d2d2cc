//! The service `gpuvitals.queue.v1.Queue`.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::stream::BoxStream;
use gpuvitals_listener::trace::{self, TRACEPARENT_LEN};
use gpuvitals_log::CommitOn;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::metadata::MetadataValue;
use tonic::{Request, Response, Status, Streaming};
use tracing::{Instrument, Span};

use super::metrics::{Protocol, ServerMeter};
use super::publish::publish_span;
use super::subscription;
use crate::broker::{PublishError, Receipt};
use crate::frame::Frame;
use crate::protocol::{self, v1};
use crate::service::{Publishing, Queue};

/// Most bytes of one publish stream that wait for their answers, beside the last frame.
const UNDER_WAY_BYTES: usize = 16 << 20;

/// Most frames of one publish stream that wait for their answers; then no more are read.
const UNDER_WAY: usize = 128;

/// Bounds of what one call may bring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Most bytes of a frame's payload.
    pub(super) frame_bytes: usize,
}

/// The gRPC service over one queue.
#[derive(Clone, Debug)]
pub(super) struct Grpc {
    queue: Queue,
    limits: Limits,
    meter: Arc<ServerMeter>,
    /// The server ends.
    stop: CancellationToken,
    /// Who stores a lone frame.
    commit_on: CommitOn,
}

impl Grpc {
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub(super) fn new(
        queue: Queue,
        limits: Limits,
        meter: Arc<ServerMeter>,
        stop: CancellationToken,
    ) -> Self {
        // One thread at a time is lent to the disk, which may take long: another one has to be there for all else.
        let is_alone = Handle::current().metrics().num_workers() <= 1;
        let commit_on = if is_alone { CommitOn::Writer } else { CommitOn::Caller };
        Self { queue, limits, meter, stop, commit_on }
    }
}

/// The span of a frame's publish, in the trace that the frame carries.
fn span_of(topic: &str, frame: Option<&v1::Frame>) -> Span {
    let span = publish_span(topic, frame.map_or(0, |frame| frame.count).into());
    if let Some(frame) = frame.filter(|frame| frame.traceparent.len() == TRACEPARENT_LEN) {
        trace::follow_parent(&span, &frame.traceparent);
    }
    span
}

/// Marks the span of a publish that was not taken.
fn failed(span: &Span, outcome: &Result<Receipt, PublishError>) {
    if outcome.is_err() {
        span.record("otel.status_code", "ERROR");
    }
}

#[tonic::async_trait]
impl v1::queue_server::Queue for Grpc {
    type PublishStreamStream = Publishes;
    type SubscribeStream = BoxStream<'static, Result<v1::SubscribeReply, Status>>;

    async fn publish(&self, request: Request<v1::PublishRequest>) -> Result<Response<v1::Receipt>, Status> {
        let began = Instant::now();
        let span = span_of(&request.get_ref().topic, request.get_ref().frame.as_ref());
        let v1::PublishRequest { topic, frame } = request.into_inner();
        let outcome = match self.limits.check(frame) {
            Err(error) => Err(error),
            Ok(frame) => {
                let publishing = self.queue.hand_over(&topic, frame);
                self.queue.commit(self.commit_on);
                publishing.instrument(span.clone()).await
            }
        };
        self.meter.published(Protocol::Grpc, began.elapsed());
        failed(&span, &outcome);
        match protocol::reply(&outcome).outcome {
            Some(v1::publish_reply::Outcome::Receipt(receipt)) => Ok(Response::new(receipt)),
            Some(v1::publish_reply::Outcome::Refusal(refusal)) => Err(protocol::status_of(refusal)),
            None => Err(Status::internal("no outcome")),
        }
    }

    async fn publish_stream(
        &self,
        request: Request<Streaming<v1::PublishRequest>>,
    ) -> Result<Response<Publishes>, Status> {
        let publishes = Publishes {
            queue: self.queue.clone(),
            commit_on: self.commit_on,
            limits: self.limits,
            meter: Arc::clone(&self.meter),
            requests: request.into_inner(),
            topic: String::new(),
            under_way: VecDeque::new(),
            bytes: 0,
            stop: Box::pin(self.stop.clone().cancelled_owned()),
            end: None,
        };
        Ok(self.limits.told(publishes))
    }

    async fn subscribe(
        &self,
        request: Request<Streaming<v1::SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let stream = subscription::serve(self.queue.clone(), request.into_inner(), self.stop.clone());
        Ok(self.limits.told(Box::pin(stream)))
    }
}

impl Limits {
    /// The answer to a call, with what a frame may have in its metadata.
    fn told<T>(self, stream: T) -> Response<T> {
        let mut response = Response::new(stream);
        let max = u64::try_from(self.frame_bytes).unwrap_or(u64::MAX);
        response.metadata_mut().insert(protocol::MAX_FRAME_BYTES, MetadataValue::from(max));
        response
    }

    fn check(self, frame: Option<v1::Frame>) -> Result<Frame, PublishError> {
        if let Some(frame) = frame.as_ref().filter(|frame| frame.payload.len() > self.frame_bytes) {
            let bytes = u64::try_from(frame.payload.len()).unwrap_or(u64::MAX);
            return Err(PublishError::TooLarge { messages: frame.count, bytes });
        }
        protocol::published(frame)
            .map_err(|malformed| PublishError::Malformed { reason: malformed.to_string().into() })
    }
}

/// The answers of one publish stream. Frames go to the queue in the order in which they came, whenever there is room
/// among those under way; answers come in that order. Nobody else has to run for that.
#[derive(Debug)]
pub(super) struct Publishes {
    queue: Queue,
    commit_on: CommitOn,
    limits: Limits,
    meter: Arc<ServerMeter>,
    requests: Streaming<v1::PublishRequest>,
    /// Topic of the request before.
    topic: String,
    under_way: VecDeque<UnderWay>,
    /// How many bytes those are.
    bytes: usize,
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Nothing more is read, and what the last answer is followed by.
    end: Option<Result<(), Status>>,
}

/// A frame that waits for its answer.
#[derive(Debug)]
struct UnderWay {
    publishing: Publishing,
    bytes: usize,
    since: Instant,
    span: Span,
}

impl Publishes {
    /// Takes what has come, as long as there is room.
    fn take(&mut self, context: &mut Context<'_>) {
        // All that has come goes to the log together.
        let mut has_more = false;
        while self.end.is_none() && self.has_room() {
            match Pin::new(&mut self.requests).poll_next(context) {
                Poll::Ready(Some(Ok(request))) => self.publish(request),
                Poll::Ready(Some(Err(status))) => self.end = Some(Err(status)),
                Poll::Ready(None) => self.end = Some(Ok(())),
                Poll::Pending => break,
            }
            has_more = true;
        }
        if has_more {
            self.queue.commit(self.commit_on);
        }
    }

    fn has_room(&self) -> bool {
        self.under_way.len() < UNDER_WAY && self.bytes < UNDER_WAY_BYTES
    }

    fn publish(&mut self, request: v1::PublishRequest) {
        let v1::PublishRequest { topic, frame } = request;
        if !topic.is_empty() {
            self.topic = topic;
        }
        let span = span_of(&self.topic, frame.as_ref());
        let (publishing, bytes) = match self.limits.check(frame) {
            Err(error) => (Publishing::done(Err(error)), 0),
            Ok(frame) => {
                let bytes = frame.payload.len();
                (self.queue.hand_over(&self.topic, frame), bytes)
            }
        };
        self.bytes += bytes;
        self.under_way.push_back(UnderWay { publishing, bytes, since: Instant::now(), span });
    }
}

impl Stream for Publishes {
    type Item = Result<v1::PublishReply, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.end.is_none() && this.stop.as_mut().poll(context).is_ready() {
            this.end = Some(Err(Status::unavailable("the queue is shutting down")));
        }
        this.take(context);
        let Some(first) = this.under_way.front_mut() else {
            return match &mut this.end {
                None => Poll::Pending,
                Some(end) => Poll::Ready(std::mem::replace(end, Ok(())).err().map(Err)),
            };
        };
        let Poll::Ready(outcome) = Pin::new(&mut first.publishing).poll(context) else {
            return Poll::Pending;
        };
        this.bytes -= first.bytes;
        this.meter.published(Protocol::Grpc, first.since.elapsed());
        failed(&first.span, &outcome);
        this.under_way.pop_front();
        Poll::Ready(Some(Ok(protocol::reply(&outcome))))
    }
}
