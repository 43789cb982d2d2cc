//! Receiving from JetStream.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_nats::Subject;
use async_nats::datetime::DateTime;
use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{
    AckPolicy, Config as AnyConfig, Consumer as PullConsumer, DeliverPolicy, FromConsumer, Info,
};
use async_nats::jetstream::{self, AckKind};
use futures_util::FutureExt;
use gpuvitals_core::backoff::Backoff;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::error::NatsError;
use super::headers;
use super::leases::{Lease, Leases};
use super::names::{self, Topic};
use super::session::Endpoint;
use super::settings::NatsSettings;
use super::stream::{self, Stream};
use super::subscription::{SENDS_WITHIN, Subscription};
use crate::broker::{
    ConsumerOptions, Delivery, DeliveryId, Failure, Nack, NackKind, ReceiveError, SettleError, Start,
};
use crate::config::QueueConfig;
use crate::frame::{ContentType, DeadFacts, Frame, Millis};
use crate::link::{Away, ConnectError, Credentials, QueueUrl};
use crate::name::check_topic;
use crate::service::{Consumer, QueueClock};

/// Waits between attempts to join the group.
const RETRY: Backoff = Backoff { base: Duration::from_millis(200), cap: Duration::from_secs(5) };

/// How long a new group waits for the server to have made its new stream. That took 70 ms on a loaded machine.
const STREAM_IS_MADE_WITHIN: Duration = Duration::from_secs(1);

/// Most messages of one pull.
const PULL_MAX: u64 = 256;

/// Most deliveries of a group in flight at once, over all members. The members' own credits come first.
const GROUP_IN_FLIGHT_MAX: i64 = 65_536;

/// Two times of a group's creation that differ by less are of one group: a server that is not in a cluster reports
/// another one after its first restart, by about a millisecond.
const CREATED_SPREAD: Duration = Duration::from_millis(100);

/// A member of a group of a topic in NATS JetStream. It connects with the first [`Consumer::receive`], and again
/// whenever the connection is lost.
///
/// A member of a group that is removed creates it anew.
pub struct NatsConsumer {
    member: Arc<NatsMember>,
    clock: QueueClock,
    subscription: Option<Subscription>,
    /// The subscription to come, made in a task so that it goes on while nobody waits in `receive`.
    joining: JoinSet<Result<Subscription, NatsError>>,
    leases: Mutex<Leases>,
    /// When the server created the group that the leases are of.
    created: Option<DateTime>,
    /// Received messages on their way to the dead letters, each with its reason.
    dead_letters: VecDeque<(Lease, Arc<str>)>,
    /// Signals that a delivery was settled: there may be credits.
    freed: Notify,
    /// Messages (rows) in a frame, rather too many than too few; 0 before the first one.
    rows_per_frame: u64,
    failures: u32,
}

/// A member and its settings.
struct NatsMember {
    endpoint: Endpoint,
    topic: Topic,
    group: Arc<str>,
    /// The group's durable consumer.
    consumer: String,
    settings: Arc<NatsSettings>,
    options: ConsumerOptions,
}

impl NatsConsumer {
    /// A member of `group` of `topic`.
    ///
    /// # Errors
    ///
    /// A name is refused.
    pub fn new(
        url: &QueueUrl,
        access: &Credentials,
        topic: &str,
        group: &str,
        options: &ConsumerOptions,
    ) -> Result<Self, ConnectError> {
        let bad = |what| move |source| ConnectError::Name { what, source };
        check_topic(topic).map_err(bad("topic"))?;
        let member = NatsMember {
            endpoint: Endpoint::new(url, access),
            topic: Topic::new(topic).map_err(bad("topic"))?,
            group: group.into(),
            consumer: names::consumer(group).map_err(bad("group"))?,
            settings: Arc::clone(&url.nats),
            options: *options,
        };
        Ok(Self {
            member: Arc::new(member),
            clock: QueueClock::system(),
            subscription: None,
            joining: JoinSet::new(),
            leases: Mutex::default(),
            created: None,
            dead_letters: VecDeque::new(),
            freed: Notify::new(),
            rows_per_frame: 0,
            failures: 0,
        })
    }

    /// The reason why NATS is not reached, if so.
    pub fn away(&self) -> watch::Receiver<Away> {
        self.member.endpoint.away().subscribe()
    }

    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the group, after a wait if that has failed before.
    async fn join(&mut self) -> Result<(), NatsError> {
        if self.joining.is_empty() {
            let wait = if self.failures == 0 { Duration::ZERO } else { RETRY.after(self.failures) };
            let member = Arc::clone(&self.member);
            self.joining.spawn(async move {
                tokio::time::sleep(wait).await;
                member.join().await
            });
        }
        let Some(joined) = self.joining.join_next().await else { return Ok(()) };
        let subscription = joined.map_err(NatsError::unavailable)??;
        let created = subscription.consumer.cached_info().created;
        let known = self.created.replace(created);
        if known.is_none_or(|known| (created - known).unsigned_abs() >= CREATED_SPREAD) {
            self.leases().restart();
            self.dead_letters.clear();
        }
        self.subscription = Some(subscription);
        Ok(())
    }

    /// Goes one step towards messages.
    async fn step(&mut self) -> Result<Vec<Delivery>, NatsError> {
        if self.subscription.is_none() {
            self.join().await?;
        }
        while let Some((lease, reason)) = self.dead_letters.front() {
            // The delivery that exceeds the retries is no attempt.
            let attempts = lease.attempt.min(self.member.settings.max_retries.saturating_add(1));
            if let Err(error) = self.dead_letter(lease, attempts, reason).await {
                tracing::debug!(%error, "a dead letter is not settled yet");
            }
            self.dead_letters.pop_front();
        }
        let Some(subscription) = &mut self.subscription else { return Ok(Vec::new()) };
        if !subscription.is_pulling() {
            // The server may have come back without its data, and another member may have created the group anew.
            if !subscription.is_of_this_connection().await {
                self.subscription = None;
                return Ok(Vec::new());
            }
            let now = Instant::now();
            let (in_flight, next_end) = {
                let leases = self.leases.get_mut().unwrap_or_else(PoisonError::into_inner);
                leases.forget_over(now, subscription.ack_wait);
                leases.in_flight(now)
            };
            let frames = frames_for(&self.member.options, in_flight, self.rows_per_frame);
            if let (0, Some(end)) = (frames, next_end) {
                tokio::select! { () = self.freed.notified() => {}, () = tokio::time::sleep_until(end) => {} }
                return Ok(Vec::new());
            }
            subscription.pull(frames.max(1)).await?;
        }
        let mut next = subscription.next().await?;
        let mut deliveries = Vec::new();
        while let Some(message) = next {
            deliveries.extend(self.accept(&message));
            let subscription = self.subscription.as_mut();
            // What goes wrong now shows in the next step.
            let more = subscription.and_then(|subscription| subscription.next().now_or_never());
            next = more.and_then(Result::ok).flatten();
        }
        Ok(deliveries)
    }

    /// Takes a message in. `None` if it is not to be delivered: it will be a dead letter.
    fn accept(&mut self, message: &jetstream::Message) -> Option<Delivery> {
        let (reply, info) = (message.reply.clone()?, message.info().ok()?);
        let ack_wait = self.subscription.as_ref()?.ack_wait;
        let leases = self.leases.get_mut().unwrap_or_else(PoisonError::into_inner);
        let attempt = u32::try_from(info.delivered).unwrap_or(u32::MAX);
        let published_ms = u64::try_from(info.published.unix_timestamp_nanos() / 1_000_000).ok()?;
        let understood = headers::frame(message.headers.as_ref(), &message.payload);
        let unreadable = understood.as_ref().err().map(|error| Failure::Rejected(error.to_string().into()));
        let is_used_up = attempt > self.member.settings.max_retries.saturating_add(1);
        let failure = unreadable.or_else(|| is_used_up.then_some(Failure::AckTimeout));
        let frame = understood.unwrap_or_else(|_| Frame::new(ContentType::Json, 1, message.payload.clone()));
        let lease = Lease {
            id: leases.id(info.stream_sequence, attempt),
            reply,
            frame: Arc::new(frame),
            attempt,
            published_at: Millis(published_ms),
            until: Instant::now() + ack_wait,
        };
        if let Some(failure) = failure {
            self.dead_letters.push_back((lease, failure.to_string().into()));
            return None;
        }
        let rows = u64::from(lease.frame.count);
        self.rows_per_frame = rows.max((self.rows_per_frame * 3 + rows).div_ceil(4));
        let delivery = Delivery {
            id: lease.id,
            topic: Arc::clone(&self.member.topic.name),
            frame: Arc::clone(&lease.frame),
            attempt,
            published_at: lease.published_at,
            deadline: self.clock.now().after(ack_wait),
        };
        leases.insert(lease);
        Some(delivery)
    }

    /// Publishes a frame to the dead letters and, once it is stored there, terminates its message. If that fails, the
    /// message comes again.
    async fn dead_letter(&self, lease: &Lease, attempts: u32, reason: &str) -> Result<(), SettleError> {
        match self.write_dead(lease, attempts, reason).await {
            Ok(()) => self.send(&lease.reply, AckKind::Term).await,
            Err(error) => {
                let topic = &*self.member.topic.name;
                tracing::warn!(%error, topic, id = %lease.id, "a dead letter was not stored; the message comes again");
                self.send(&lease.reply, AckKind::Nak(Some(delay(lease.attempt)))).await?;
                Err(SettleError::ConnectionLost)
            }
        }
    }

    /// Stores a dead letter. A message of another publisher may be too large for it: then the letter is without it.
    async fn write_dead(&self, lease: &Lease, attempts: u32, reason: &str) -> Result<(), NatsError> {
        let Some(Subscription { session, .. }) = &self.subscription else {
            return Err(NatsError::unavailable("the connection was lost"));
        };
        let NatsMember { topic, group, settings, .. } = &*self.member;
        let (dead, offset, published_at) = (topic.dead(), lease.id.offset, lease.published_at);
        let facts = |reason: &str| DeadFacts {
            topic: Arc::clone(&topic.name),
            group: Arc::clone(group),
            offset,
            attempts,
            reason: DeadFacts::shortened(reason),
            published_at,
        };
        let frame = &*lease.frame;
        let letter = Frame { dead: Some(Box::new(facts(reason))), ..frame.clone() };
        // The same for every attempt to store it, and another one for a message that was put back.
        let id = format!("dead-{group}-{offset}-{}", published_at.0);
        stream::ensure(session, &dead, settings).await?;
        let sent = session.publish(&dead, &id, headers::of_frame(&letter), letter.payload).await;
        let Err(NatsError::TooLarge) = sent else { return sent.map(drop) };
        let len = frame.payload.len();
        let reason = format!("the message of {len} bytes is too large for a dead letter: {reason}");
        let letter = Frame {
            dead: Some(Box::new(facts(&reason))),
            ..Frame::new(frame.content_type, frame.count, Vec::new())
        };
        session.publish(&dead, &id, headers::of_frame(&letter), letter.payload).await.map(drop)
    }

    /// Sends the settlement of a message. A lost one means that the message comes again.
    async fn send(&self, reply: &Subject, kind: AckKind) -> Result<(), SettleError> {
        let subscription = self.subscription.as_ref().ok_or(SettleError::ConnectionLost)?;
        let sent = subscription.session.client.publish(reply.clone(), kind.into());
        match tokio::time::timeout(SENDS_WITHIN, sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(SettleError::ConnectionLost),
        }
    }

    async fn refuse(&self, lease: &Lease, nack: &Nack) -> Result<(), SettleError> {
        let reason = || Arc::clone(&nack.reason);
        let failure = match nack.kind {
            NackKind::Reject => Failure::Rejected(reason()),
            NackKind::Retry if lease.attempt > self.member.settings.max_retries => Failure::Refused(reason()),
            NackKind::Retry => {
                return self.send(&lease.reply, AckKind::Nak(Some(delay(lease.attempt)))).await;
            }
            NackKind::Release => return self.send(&lease.reply, AckKind::Nak(None)).await,
        };
        self.dead_letter(lease, lease.attempt, &failure.to_string()).await
    }
}

impl fmt::Debug for NatsConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NatsMember { topic, group, .. } = &*self.member;
        f.debug_struct("NatsConsumer").field("topic", topic).field("group", group).finish_non_exhaustive()
    }
}

impl NatsMember {
    async fn join(&self) -> Result<Subscription, NatsError> {
        let session = self.endpoint.session().await?;
        let connection = session.connections();
        let Stream { name: stream, is_new, .. } =
            stream::ensure(&session, &self.topic, &self.settings).await?;
        let name = &self.consumer;
        let what = format!("consumer {name} of stream {stream}");
        let look =
            async || session.request(&what, format!("CONSUMER.INFO.{stream}.{name}"), &json!({})).await;
        let mut found: Option<Info> = look().await?;
        if found.is_none() && is_new {
            tokio::time::sleep(STREAM_IS_MADE_WITHIN).await;
            found = look().await?;
        }
        let info = if let Some(info) = found {
            info
        } else {
            let request = json!({ "stream_name": stream, "config": self.config() });
            let subject = format!("CONSUMER.DURABLE.CREATE.{stream}.{name}");
            let made = session.request(&what, subject, &request).await?;
            tracing::info!(stream, consumer = name, "created a consumer in NATS");
            made.ok_or_else(|| NatsError::unavailable(format_args!("{what}: its stream was deleted")))?
        };
        self.check(&info.config).map_err(|reason| NatsError::unusable(&what, reason))?;
        let (given, wanted) = (info.config.ack_wait, self.ack_timeout());
        if given < wanted {
            tracing::warn!(
                what,
                ?wanted,
                ?given,
                "the group exists with a shorter time to acknowledge, which applies"
            );
        }
        let config = Config::try_from_consumer_config(info.config.clone())
            .map_err(|error| NatsError::unusable(&what, error))?;
        let consumer = PullConsumer::new(config, info, session.jetstream.clone());
        Ok(Subscription::new(session, consumer, connection))
    }

    /// Refuses, with the remedy, a consumer of somebody else with which messages would be lost.
    fn check(&self, config: &AnyConfig) -> Result<(), String> {
        if config.ack_policy != AckPolicy::Explicit {
            return Err("it needs ack policy explicit".to_owned());
        }
        // One delivery more than the attempts: with that one a message becomes a dead letter.
        let (max_deliver, retries) = (config.max_deliver, self.settings.max_retries);
        if (1..i64::from(retries) + 2).contains(&max_deliver) {
            return Err(format!(
                "with max_retries={retries}, its max_deliver of {max_deliver} ends deliveries before a message \
                 becomes a dead letter: set it to -1 (nats consumer edit)"
            ));
        }
        let subject = &self.topic.subject;
        let filters =
            || config.filter_subjects.iter().chain([&config.filter_subject]).filter(|one| !one.is_empty());
        if filters().next().is_some() && !filters().any(|filter| names::takes(filter, subject)) {
            let filters: Vec<&str> = filters().map(String::as_str).collect();
            return Err(format!(
                "its filter {} does not take subject {subject}: change it (nats consumer edit), or use another \
                 group",
                filters.join(", ")
            ));
        }
        Ok(())
    }

    /// The configuration of the group's consumer. A wildcard stream of somebody else holds other subjects too, so it
    /// filters.
    fn config(&self) -> Config {
        Config {
            durable_name: Some(self.consumer.clone()),
            description: Some("created by gpuvitals".to_owned()),
            deliver_policy: match self.options.start {
                Start::Oldest => DeliverPolicy::All,
                Start::Newest => DeliverPolicy::New,
            },
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.ack_timeout(),
            max_deliver: -1,
            max_ack_pending: GROUP_IN_FLIGHT_MAX,
            filter_subject: self.topic.subject.clone(),
            inactive_threshold: self.options.group_ttl.unwrap_or_default(),
            ..Config::default()
        }
    }

    /// How long this member wants to have to acknowledge.
    fn ack_timeout(&self) -> Duration {
        self.options.ack_timeout.unwrap_or_else(|| QueueConfig::default().ack_timeout)
    }
}

/// Frames to ask for: a fetched message counts as delivered, so no more than the credits allow.
fn frames_for(options: &ConsumerOptions, in_flight: u64, rows_per_frame: u64) -> usize {
    let credits = u64::from(options.max_in_flight.get()).saturating_sub(in_flight);
    let max_batch = options.max_batch.map_or(u64::MAX, |max| u64::from(max.get()));
    let frames = credits.min(max_batch).checked_div(rows_per_frame).unwrap_or(1);
    usize::try_from(frames.min(PULL_MAX)).unwrap_or(1)
}

/// An error if there are deliveries to which a call did not apply; it takes the first one and the number of others.
fn none(ids: &[DeliveryId], error: impl Fn(DeliveryId, usize) -> SettleError) -> Result<(), SettleError> {
    ids.first().map_or(Ok(()), |id| Err(error(*id, ids.len() - 1)))
}

/// How long a failed message waits: a random part of the longest wait.
fn delay(attempt: u32) -> Duration {
    let QueueConfig { backoff_base: base, backoff_cap: cap, .. } = QueueConfig::default();
    Backoff { base, cap }.after(attempt)
}

impl Consumer for NatsConsumer {
    async fn receive(&mut self) -> Result<Vec<Delivery>, ReceiveError> {
        loop {
            let error = match self.step().await {
                Ok(deliveries) => {
                    if std::mem::take(&mut self.failures) > 0 {
                        self.member.endpoint.away().send_replace(None);
                    }
                    if deliveries.is_empty() {
                        continue;
                    }
                    return Ok(deliveries);
                }
                Err(error) => error,
            };
            self.subscription = None;
            if error.is_lasting() {
                return Err(error.into_receive_error());
            }
            tracing::debug!(%error, topic = &*self.member.topic.name, "cannot receive");
            self.failures = self.failures.saturating_add(1);
            self.member.endpoint.away().send_replace(Some(error.to_string().into()));
        }
    }

    async fn ack(&self, ids: &[DeliveryId]) -> Result<u64, SettleError> {
        let (mut unknown, mut count) = (Vec::new(), 0);
        for id in ids {
            let taken = self.leases().take(*id);
            match taken {
                Ok(Some(lease)) => {
                    self.send(&lease.reply, AckKind::Ack).await?;
                    count += u64::from(lease.frame.count);
                }
                Ok(None) => {}
                Err(id) => unknown.push(id),
            }
        }
        self.freed.notify_one();
        none(&unknown, |id, more| SettleError::Unknown { id, more }).map(|()| count)
    }

    async fn nack(&self, nacks: &[Nack]) -> Result<u64, SettleError> {
        let (mut unknown, mut count) = (Vec::new(), 0);
        for nack in nacks {
            let taken = self.leases().take_running(nack.id, Instant::now());
            match taken {
                Ok(Some(lease)) => {
                    self.refuse(&lease, nack).await?;
                    count += u64::from(lease.frame.count);
                }
                Ok(None) => {}
                Err(id) => unknown.push(id),
            }
        }
        self.freed.notify_one();
        none(&unknown, |id, more| SettleError::Unknown { id, more }).map(|()| count)
    }

    async fn extend(&self, ids: &[DeliveryId], _by: Duration) -> Result<(), SettleError> {
        let ack_wait = self.subscription.as_ref().ok_or(SettleError::ConnectionLost)?.ack_wait;
        let (mut unknown, mut over) = (Vec::new(), Vec::new());
        for id in ids {
            let extended = self.leases().extend(*id, Instant::now(), ack_wait);
            match extended {
                Ok(Some(reply)) => self.send(&reply, AckKind::Progress).await?,
                Ok(None) => over.push(*id),
                Err(id) => unknown.push(id),
            }
        }
        none(&unknown, |id, more| SettleError::Unknown { id, more })?;
        none(&over, |id, more| SettleError::LeaseOver { id, more })
    }

    async fn leave(mut self) {
        let mut replies: Vec<_> = self.leases().drain().into_iter().map(|lease| lease.reply).collect();
        replies.extend(self.dead_letters.drain(..).map(|(lease, _)| lease.reply));
        // Messages that have come and were not delivered.
        while let Some(subscription) = &mut self.subscription
            && let Some(Ok(Some(message))) = subscription.next().now_or_never()
        {
            replies.extend(message.reply.clone());
        }
        for reply in replies {
            if self.send(&reply, AckKind::Nak(None)).await.is_err() {
                return;
            }
        }
        if let Some(Subscription { session, .. }) = &self.subscription
            && !matches!(tokio::time::timeout(SENDS_WITHIN, session.client.flush()).await, Ok(Ok(())))
        {
            tracing::debug!("not all messages were given back to NATS; they come again later");
        }
    }
}
