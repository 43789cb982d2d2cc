//! One subscription, from its Join to its end.
//!
//! It runs only as far as its consumer reads: what is not read is not delivered, and no more than one receive is kept.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use futures_util::{Stream, stream};
use prost::Message as _;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use tracing::field::Empty;

use crate::broker::{Delivery, ReceiveError, SettleError};
use crate::protocol::v1::subscribe_reply::What as Reply;
use crate::protocol::v1::subscribe_request::What as Ask;
use crate::protocol::{self, Malformed, v1};
use crate::service::{Consumer, InProcessConsumer, Queue};

/// How long a consumer may take to say what it wants.
const JOIN_LIMIT: Duration = Duration::from_secs(10);
/// Most messages taken from the queue at once for a consumer that does not say how many it wants.
const BATCH: NonZeroU32 = NonZeroU32::MIN.saturating_add(1_023);
/// Bytes of a Deliveries as it is sent; one delivery that is longer goes alone.
const DELIVERIES_BYTES: usize = 1 << 20;

/// Serves one consumer.
pub(super) fn serve(
    queue: Queue,
    requests: Streaming<v1::SubscribeRequest>,
    stop: CancellationToken,
) -> impl Stream<Item = Result<v1::SubscribeReply, Status>> + Send {
    let new = Subscription {
        queue,
        requests,
        stop,
        member: None,
        granted: VecDeque::new(),
        is_closed: false,
        topic: String::new(),
        group: String::new(),
    };
    stream::unfold(Some(new), |subscription| async move {
        let mut subscription = subscription?;
        match subscription.step().await {
            Ok(Some(what)) => Some((Ok(v1::SubscribeReply { what: Some(what) }), Some(subscription))),
            Ok(None) => None,
            Err(status) => Some((Err(status), None)),
        }
    })
}

/// What woke a subscription.
enum SubscriptionEvent {
    Stop,
    Asked(Option<v1::SubscribeRequest>),
    Received(Result<Vec<Delivery>, ReceiveError>),
}

struct Subscription {
    queue: Queue,
    requests: Streaming<v1::SubscribeRequest>,
    stop: CancellationToken,
    /// The consumer within the queue; dropped, it has crashed.
    member: Option<InProcessConsumer>,
    /// Taken from the queue, not yet sent.
    granted: VecDeque<Delivery>,
    /// The queue delivers nothing more and waits for acknowledgements.
    is_closed: bool,
    topic: String,
    group: String,
}

impl Subscription {
    /// The next reply; `None` is the end.
    async fn step(&mut self) -> Result<Option<Reply>, Status> {
        loop {
            if !self.granted.is_empty() {
                return Ok(Some(self.deliver()));
            }
            let Some(member) = &mut self.member else { return self.join().await.map(Some) };
            let event = tokio::select! {
                biased;
                () = self.stop.cancelled() => SubscriptionEvent::Stop,
                asked = self.requests.message() => SubscriptionEvent::Asked(asked?),
                received = member.receive(), if !self.is_closed => SubscriptionEvent::Received(received),
            };
            match event {
                SubscriptionEvent::Stop => {
                    self.leave().await;
                    return Err(Status::unavailable("the queue is shutting down"));
                }
                // The end of the requests is not a Leave.
                SubscriptionEvent::Asked(None) => return Ok(None),
                SubscriptionEvent::Asked(Some(v1::SubscribeRequest {
                    what: Some(Ask::Leave(_)), ..
                })) => {
                    self.leave().await;
                    return Ok(None);
                }
                SubscriptionEvent::Asked(Some(request)) => {
                    if let Some(settled) = self.settle(request).await? {
                        return Ok(Some(Reply::Settled(settled)));
                    }
                }
                SubscriptionEvent::Received(Ok(deliveries)) => self.granted.extend(deliveries),
                SubscriptionEvent::Received(Err(ReceiveError::NotSubscribed)) => return Err(removed()),
                SubscriptionEvent::Received(Err(
                    ReceiveError::Closed | ReceiveError::Denied { .. } | ReceiveError::Refused { .. },
                )) => self.is_closed = true,
            }
        }
    }

    async fn join(&mut self) -> Result<Reply, Status> {
        let first = tokio::select! {
            () = self.stop.cancelled() => return Err(Status::unavailable("the queue is shutting down")),
            first = tokio::time::timeout(JOIN_LIMIT, self.requests.message()) => first,
        };
        let first = first.map_err(|_| Status::deadline_exceeded("no Join came in time"))??;
        let Some(v1::SubscribeRequest { what: Some(Ask::Join(join)), .. }) = first else {
            return Err(Status::invalid_argument("the first request is a Join"));
        };
        let mut options = protocol::join_of(&join).map_err(refused)?;
        options.max_batch = Some(options.max_batch.unwrap_or(BATCH));
        let joined = self.queue.subscribe(&join.topic, &join.group, &options).await;
        self.member = Some(joined.map_err(|error| protocol::subscribe_status(&error))?);
        (self.topic, self.group) = (join.topic, join.group);
        Ok(Reply::Joined(v1::Joined {}))
    }

    async fn leave(&mut self) {
        if let Some(member) = self.member.take() {
            member.leave().await;
        }
    }

    /// As much of what was granted as goes into one reply.
    fn deliver(&mut self) -> Reply {
        let span = tracing::info_span!(
            "deliver",
            otel.name = %format_args!("deliver {}", self.topic),
            otel.kind = "producer",
            messaging.system = "gpuvitals",
            messaging.operation.name = "deliver",
            messaging.destination.name = self.topic,
            messaging.consumer.group.name = self.group,
            messaging.batch.message_count = Empty,
        );
        let _inside = span.enter();
        let now = self.queue.now();
        let (mut bytes, mut messages) = (0, 0);
        let mut deliveries = Vec::new();
        while let Some(next) = self.granted.front() {
            let delivery = protocol::delivery(next, now);
            bytes += delivery.encoded_len();
            if bytes > DELIVERIES_BYTES && !deliveries.is_empty() {
                break;
            }
            messages += next.frame.count;
            deliveries.push(delivery);
            self.granted.pop_front();
        }
        span.record("messaging.batch.message_count", messages);
        Reply::Deliveries(v1::Deliveries { deliveries })
    }

    /// Does what is asked. The answer, where one is wanted or something is wrong.
    async fn settle(&mut self, request: v1::SubscribeRequest) -> Result<Option<v1::Settled>, Status> {
        let v1::SubscribeRequest { request, what } = request;
        let Some(member) = &self.member else { return Err(removed()) };
        let what = what.ok_or(Malformed::Missing { field: "what" }).map_err(refused)?;
        let outcome = match what {
            Ask::Join(_) => return Err(Status::invalid_argument("a second Join on one stream")),
            Ask::Leave(_) => Ok(0),
            Ask::Ack(ack) => member.ack(&protocol::ids_of(ack.ids)).await,
            Ask::Nack(nack) => {
                let nacks = nack.refusals.into_iter().map(protocol::nack_of);
                member.nack(&nacks.collect::<Result<Vec<_>, _>>().map_err(refused)?).await
            }
            Ask::Extend(extend) => {
                let by = Duration::from_millis(extend.by_ms);
                member.extend(&protocol::ids_of(extend.ids), by).await.map(|()| 0)
            }
        };
        if outcome == Err(SettleError::NotSubscribed) {
            return Err(removed());
        }
        Ok((request != 0 || outcome.is_err()).then(|| protocol::settled(request, outcome)))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn refused(malformed: Malformed) -> Status {
    Status::invalid_argument(malformed.to_string())
}

fn removed() -> Status {
    Status::not_found("the group was removed")
}
