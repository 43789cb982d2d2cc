//! Subscribing by gRPC.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::stream;
use gpuvitals_core::backoff::Backoff;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::Status;

use super::dial::{Dial, Lost, Outlook};
use super::exchange::Answers;
use crate::broker::{ConsumerOptions, Delivery, DeliveryId, Nack, ReceiveError, SettleError};
use crate::frame::Millis;
use crate::link::{Away, ConnectError, Credentials, QueueUrl};
use crate::protocol::v1::subscribe_reply::What as Reply;
use crate::protocol::v1::subscribe_request::What as Ask;
use crate::protocol::{self, v1};
use crate::service::{Consumer, QueueClock};

/// Time limit of a new subscription.
const OPEN_LIMIT: Duration = Duration::from_secs(10);
/// Time limit of the answer to a settlement.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Time limit of a leave.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);
/// Delays before reconnecting to a queue that is away.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(50), cap: Duration::from_secs(5) };
/// Requests in transit to the queue.
const REQUESTS: usize = 64;
/// From this many unsettled deliveries on, those whose deadline is long over are forgotten.
const FORGET_FROM: usize = 4_096;
/// Time after the deadline.
const FORGET_AFTER: Duration = Duration::from_mins(10);

/// A member of a group of a remote queue.
///
/// [`Consumer::receive`] connects, and reconnects when the connection is lost, until it succeeds or is
/// refused for good. Deliveries from before a loss are delivered again: settling one settles nothing, or
/// gives [`SettleError::ConnectionLost`]; extending it fails because its lease is over. A delivery of one
/// connection is never settled on another: a queue that lost its memory reuses ids, so the tokens of the ids
/// returned here contain the number of the connection.
///
/// Deadlines are by this consumer's clock. Slow work must extend them.
#[derive(Debug)]
pub struct GrpcConsumer {
    dial: Arc<Dial>,
    ask: Arc<Subscribing>,
    session: Option<Box<Session>>,
    /// The connection attempt: it continues while nobody waits for it.
    opening: JoinSet<Result<Session, Lost>>,
    /// Connections so far.
    sessions: u32,
    failures: u32,
    away: watch::Sender<Away>,
}

/// The subscription's names, options and clock.
#[derive(Debug)]
struct Subscribing {
    topic: Arc<str>,
    group: Arc<str>,
    options: ConsumerOptions,
    clock: QueueClock,
}

/// One stream of deliveries, from its opening until it is lost.
#[derive(Debug)]
struct Session {
    dial: Arc<Dial>,
    ask: Arc<Subscribing>,
    /// The consumer's number of this stream.
    number: u32,
    since: Instant,
    requests: mpsc::Sender<v1::SubscribeRequest>,
    answers: Answers<v1::SubscribeReply>,
    held: Mutex<SessionState>,
    lost: OnceLock<Lost>,
}

#[derive(Debug, Default)]
struct SessionState {
    is_joined: bool,
    /// Arrived and not received yet.
    ready: VecDeque<Vec<Delivery>>,
    received: Received,
    last_request: u64,
    waiting: HashMap<u64, oneshot::Sender<v1::Settled>>,
}

impl GrpcConsumer {
    /// A consumer without a connection.
    ///
    /// # Errors
    ///
    /// A name is refused, or a credential cannot be read.
    pub fn new(
        url: &QueueUrl,
        access: &Credentials,
        topic: impl Into<Arc<str>>,
        group: impl Into<Arc<str>>,
        options: &ConsumerOptions,
    ) -> Result<Self, ConnectError> {
        let (topic, group) = (topic.into(), group.into());
        crate::name::check_topic(&topic).map_err(|source| ConnectError::Name { what: "topic", source })?;
        crate::name::check_group(&group).map_err(|source| ConnectError::Name { what: "group", source })?;
        let ask = Arc::new(Subscribing { topic, group, options: *options, clock: QueueClock::system() });
        let dial = Arc::new(Dial::new(url, access)?);
        Ok(Self {
            dial,
            ask,
            session: None,
            opening: JoinSet::new(),
            sessions: 0,
            failures: 0,
            away: watch::Sender::default(),
        })
    }

    /// The last connection error, while the queue cannot be reached.
    pub fn away(&self) -> watch::Receiver<Away> {
        self.away.subscribe()
    }

    /// Connects, after a delay if it failed before.
    async fn connect(&mut self) -> Result<(), ReceiveError> {
        if self.opening.is_empty() {
            let wait = if self.failures == 0 { Duration::ZERO } else { BACKOFF.after(self.failures) };
            let (dial, ask, number) = (Arc::clone(&self.dial), Arc::clone(&self.ask), self.sessions);
            self.sessions = number.wrapping_add(1);
            self.opening.spawn(async move {
                tokio::time::sleep(wait).await;
                let late = dial.lost("no answer to a new subscription");
                tokio::time::timeout(OPEN_LIMIT, Session::open(dial, ask, number)).await.unwrap_or(Err(late))
            });
        }
        match self.opening.join_next().await {
            Some(Ok(Ok(session))) => {
                if self.failures > 0 {
                    tracing::debug!(topic = %self.ask.topic, group = %self.ask.group, "subscribed again");
                }
                self.session = Some(Box::new(session));
                self.away.send_replace(None);
                Ok(())
            }
            Some(Ok(Err(lost))) => self.failed(&lost),
            Some(Err(error)) => self.failed(&self.dial.lost(&error.to_string())),
            None => Ok(()),
        }
    }

    /// Records a loss; an error if it is permanent.
    fn failed(&mut self, lost: &Lost) -> Result<(), ReceiveError> {
        if self.session.take().is_some_and(|session| session.since.elapsed() > BACKOFF.cap) {
            self.failures = 0;
        }
        let reason = Arc::clone(&lost.reason);
        match lost.outlook {
            Outlook::Passing => {}
            Outlook::Denied => return Err(ReceiveError::Denied { reason }),
            Outlook::Lasting => return Err(ReceiveError::Refused { reason }),
            Outlook::Removed => return Err(ReceiveError::NotSubscribed),
        }
        self.failures = self.failures.saturating_add(1);
        self.away.send_replace(Some(reason));
        if self.failures == 1 {
            let Subscribing { topic, group, .. } = &*self.ask;
            tracing::debug!(reason = %lost.reason, %topic, %group, "not subscribed; trying until it is");
        }
        Ok(())
    }

    /// Sends a request that is answered by a Settled; an empty request settles nothing.
    async fn settle(&self, what: impl FnOnce(&mut Received) -> Option<Ask>) -> Result<u64, SettleError> {
        let session = self.session.as_ref().ok_or(SettleError::ConnectionLost)?;
        session.settle(what).await
    }
}

impl Consumer for GrpcConsumer {
    async fn receive(&mut self) -> Result<Vec<Delivery>, ReceiveError> {
        loop {
            let Some(session) = &self.session else {
                self.connect().await?;
                continue;
            };
            match session.read_until(SessionState::receive).await {
                Ok(deliveries) => return Ok(deliveries),
                Err(lost) => self.failed(&lost)?,
            }
        }
    }

    async fn ack(&self, ids: &[DeliveryId]) -> Result<u64, SettleError> {
        self.settle(|received| {
            let known = ids.iter().filter(|id| received.ids.remove(id).is_some());
            let ids: Vec<_> = known.copied().map(protocol::delivery_id).collect();
            (!ids.is_empty()).then_some(Ask::Ack(v1::Ack { ids }))
        })
        .await
    }

    async fn nack(&self, nacks: &[Nack]) -> Result<u64, SettleError> {
        self.settle(|received| {
            let known = nacks.iter().filter(|nack| received.ids.remove(&nack.id).is_some());
            let refusals: Vec<_> = known.map(protocol::nack).collect();
            (!refusals.is_empty()).then_some(Ask::Nack(v1::Nack { refusals }))
        })
        .await
    }

    async fn extend(&self, ids: &[DeliveryId], by: Duration) -> Result<(), SettleError> {
        let mut over = Vec::new();
        let until = self.ask.clock.now().after(by);
        let extended = self.settle(|received| {
            let ids: Vec<_> = ids
                .iter()
                .copied()
                .filter(|id| {
                    let known = received.extend(*id, until);
                    if !known {
                        over.push(*id);
                    }
                    known
                })
                .map(protocol::delivery_id)
                .collect();
            (!ids.is_empty()).then_some(Ask::Extend(v1::Extend { ids, by_ms: protocol::millis(by) }))
        });
        extended.await?;
        match over.as_slice() {
            [] => Ok(()),
            [first, rest @ ..] => Err(SettleError::LeaseOver { id: *first, more: rest.len() }),
        }
    }

    async fn leave(self) {
        let Some(session) = &self.session else { return };
        let leave = v1::SubscribeRequest { request: 0, what: Some(Ask::Leave(v1::Leave {})) };
        let left = async {
            if session.requests.send(leave).await.is_ok() {
                // Until the queue ends the stream.
                while let Ok(reply) = session.answers.next().await {
                    drop(reply);
                }
            }
        };
        if tokio::time::timeout(LEAVE_LIMIT, left).await.is_err() {
            tracing::debug!("the queue did not answer a leave");
        }
    }
}

impl Session {
    async fn open(dial: Arc<Dial>, ask: Arc<Subscribing>, number: u32) -> Result<Self, Lost> {
        let mut client = dial.connect().await?;
        let (requests, mut outgoing) = mpsc::channel(REQUESTS);
        let join = Ask::Join(protocol::join(&ask.topic, &ask.group, &ask.options));
        let first = requests.try_send(v1::SubscribeRequest { request: 0, what: Some(join) });
        first.map_err(|error| dial.lost(&error.to_string()))?;
        let body = stream::poll_fn(move |context| outgoing.poll_recv(context));
        let opened = client.subscribe(dial.request(body)).await;
        let answers = Answers::new(opened.map_err(|status| dial.ended(&status))?.into_inner());
        let (held, lost, since) = (Mutex::default(), OnceLock::new(), Instant::now());
        let session = Self { dial, ask, number, since, requests, answers, held, lost };
        session.read_until(|held| held.is_joined.then_some(())).await?;
        Ok(session)
    }

    fn held(&self) -> MutexGuard<'_, SessionState> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads until `look` finds a result.
    async fn read_until<T>(&self, mut look: impl FnMut(&mut SessionState) -> Option<T>) -> Result<T, Lost> {
        loop {
            if let Some(found) = look(&mut self.held()) {
                return Ok(found);
            }
            if let Some(lost) = self.lost.get() {
                return Err(lost.clone());
            }
            match self.answers.next().await {
                Ok(reply) => self.came(reply),
                Err(status) => drop(self.end(self.why(status.as_ref()))),
            }
        }
    }

    async fn settle(&self, what: impl FnOnce(&mut Received) -> Option<Ask>) -> Result<u64, SettleError> {
        let (request, answer) = {
            let mut held = self.held();
            let Some(what) = what(&mut held.received) else { return Ok(0) };
            held.last_request += 1;
            let request = held.last_request;
            let (answer, answered) = oneshot::channel();
            held.waiting.insert(request, answer);
            (v1::SubscribeRequest { request, what: Some(what) }, answered)
        };
        let _waiting = WaitingRequest { session: self, request: request.request };
        let exchange = async {
            self.requests.send(request).await.ok()?;
            answer.await.ok()
        };
        let lost =
            match tokio::time::timeout(ANSWER_LIMIT, self.answers.until(exchange, |reply| self.came(reply)))
                .await
            {
                Ok(Ok(Some(settled))) => {
                    return protocol::settle_error(settled).map_err(|error| self.named(error));
                }
                Ok(Ok(None)) => self.why(None),
                Ok(Err(status)) => self.why(status.as_ref()),
                Err(_) => self.dial.lost("no answer in time"),
            };
        Err(self.end(lost))
    }

    /// The error with the id as returned to the caller.
    fn named(&self, error: SettleError) -> SettleError {
        match error {
            SettleError::Unknown { id, more } => {
                SettleError::Unknown { id: id.of_session(self.number), more }
            }
            SettleError::LeaseOver { id, more } => {
                SettleError::LeaseOver { id: id.of_session(self.number), more }
            }
            other => other,
        }
    }

    fn why(&self, status: Option<&Status>) -> Lost {
        status.map_or_else(|| self.dial.lost("the queue ended the stream"), |status| self.dial.ended(status))
    }

    fn came(&self, reply: v1::SubscribeReply) {
        let now = self.ask.clock.now();
        let mut held = self.held();
        match reply.what {
            Some(Reply::Joined(_)) => held.is_joined = true,
            Some(Reply::Deliveries(deliveries)) => {
                let mut read = Vec::new();
                for delivery in deliveries.deliveries {
                    match protocol::delivery_of(delivery, &self.ask.topic, now) {
                        Ok(delivery) => {
                            let id = delivery.id.of_session(self.number);
                            read.push(Delivery { id, ..delivery });
                        }
                        // Not settled, so that it becomes a dead letter that a person can see.
                        Err(error) => tracing::warn!(%error, "a delivery that this version does not read"),
                    }
                }
                if !read.is_empty() {
                    held.ready.push_back(read);
                }
            }
            Some(Reply::Settled(settled)) => {
                if let Some(waiting) = held.waiting.remove(&settled.request) {
                    // The caller may have stopped waiting.
                    waiting.send(settled).ok();
                }
            }
            None => {}
        }
    }

    /// The stream is unusable from now on: all waiters get the error.
    fn end(&self, lost: Lost) -> SettleError {
        self.lost.get_or_init(|| lost);
        self.held().waiting.clear();
        SettleError::ConnectionLost
    }
}

/// A request that is forgotten when its caller stops waiting.
struct WaitingRequest<'a> {
    session: &'a Session,
    request: u64,
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.session.held().waiting.remove(&self.request);
    }
}

impl SessionState {
    fn receive(&mut self) -> Option<Vec<Delivery>> {
        let deliveries = self.ready.pop_front()?;
        self.received.add(&deliveries);
        Some(deliveries)
    }
}

/// Unsettled deliveries of one stream, with their deadlines.
#[derive(Debug, Default)]
struct Received {
    ids: BTreeMap<DeliveryId, Millis>,
    /// The number of ids that triggers the next search for old ones.
    full: usize,
}

impl Received {
    fn add(&mut self, deliveries: &[Delivery]) {
        self.ids.extend(deliveries.iter().map(|delivery| (delivery.id, delivery.deadline)));
        if self.ids.len() < self.full.max(FORGET_FROM) {
            return;
        }
        // Nobody settles a delivery this late; without this a consumer that drops deliveries would grow.
        let newest = self.ids.values().max().copied().unwrap_or_default();
        self.ids.retain(|_, deadline| newest.since(*deadline) < FORGET_AFTER);
        self.full = self.ids.len() * 2;
    }

    /// Whether it is still held here.
    fn extend(&mut self, id: DeliveryId, until: Millis) -> bool {
        self.ids.get_mut(&id).map(|deadline| *deadline = until).is_some()
    }
}
