//! A consumer's place at NATS: its connection, its group's durable consumer, and what it has asked for.
//!
//! A pull asks for what is there and does not wait; where nothing is there, a second one waits for one message. So
//! hardly anything is delivered that is not taken at once, and its time does not run unseen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Info};
use async_nats::{Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::error::NatsError;
use super::super::names::{self, Topic};
use super::super::session::{Endpoint, Found, Session};
use super::super::settings::NatsSettings;
use super::super::shelf::{self, Shelf};
use super::watch::{Born, Watch};
use crate::broker::{ConsumerOptions, Start};

/// Most deliveries of a group that are out at once, over all members. The members' own credits come first.
const GROUP_IN_FLIGHT_MAX: u32 = 65_536;

/// Where the server stops to deliver a message: never, in practice. (With a backoff it does not take "never".)
const DELIVERIES_MAX: i64 = 1_000_000;

/// Steps of the backoff that the server is told; the last one holds from there on.
const BACKOFF_STEPS_MAX: u32 = 16;

/// How long a pull that waits may wait, and what is added before it counts as lost.
const WAITS: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_secs(2);

/// How long a pause is after the server refused a pull for a reason that passes.
const PAUSE: Duration = Duration::from_millis(200);

/// A member and what it wants.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) endpoint: Endpoint,
    pub(super) topic: Topic,
    /// Its group's durable consumer.
    pub(super) consumer: String,
    pub(super) settings: Arc<NatsSettings>,
    pub(super) options: ConsumerOptions,
}

impl Member {
    /// How long it wants to have to acknowledge.
    pub(super) fn ack_timeout(&self) -> Duration {
        self.options.ack_timeout.unwrap_or(self.settings.ack_timeout)
    }
}

#[derive(Debug)]
pub(super) struct Seat {
    pub(super) session: Session,
    shelf: Shelf,
    pub(super) born: Born,
    pub(super) watch: Watch,
    /// How long the server waits for an acknowledgement, by delivery.
    patience: Vec<Duration>,
    next: String,
    inbox: String,
    answers: Subscriber,
    pulls: u64,
    pull: Pull,
    /// The connection's count at the last pull: a pull does not outlive its connection.
    connections: u64,
    /// The stream of dead letters is there.
    pub(super) has_dead: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
enum Pull {
    /// None; the next one waits if there was nothing just now.
    None { waits: bool, not_before: Option<Instant> },
    /// Under way, for so many more messages, until then.
    UnderWay { left: usize, until: Instant },
}

/// What came of waiting.
#[derive(Debug)]
pub(super) enum Came {
    /// A message.
    Message(Message),
    /// Something else; ask again.
    Nothing,
}

impl Seat {
    pub(super) async fn take(member: &Member) -> Result<Self, NatsError> {
        let session = member.endpoint.session().await?;
        let connections = session.connections();
        let shelf = shelf::ensure(&session, &member.topic, &member.settings).await?;
        // Before the group is looked at, so that none is missed. Where it is not permitted, time has to do.
        let deleted = format!("$JS.EVENT.ADVISORY.CONSUMER.DELETED.{}.{}", shelf.stream, member.consumer);
        let deletions = session.client.subscribe(deleted).await.map_err(NatsError::unavailable)?;
        let info = ensure_group(&session, &shelf, member).await?;
        let born = Born::of(&info);
        let waits =
            if info.config.backoff.is_empty() { vec![info.config.ack_wait] } else { info.config.backoff };
        let inbox = session.client.new_inbox();
        let answers = session.client.subscribe(format!("{inbox}.*")).await.map_err(NatsError::unavailable)?;
        Ok(Self {
            next: format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", shelf.stream, member.consumer),
            connections,
            watch: Watch::over(&session, connections, &shelf, member, born, deletions),
            session,
            shelf,
            born,
            patience: waits,
            inbox,
            answers,
            pulls: 0,
            pull: Pull::None { waits: false, not_before: None },
            has_dead: AtomicBool::new(false),
        })
    }

    /// How long the server waits for the acknowledgement of the `delivery`-th delivery, from 1.
    pub(super) fn patience(&self, delivery: u32) -> Duration {
        let at = usize::try_from(delivery.saturating_sub(1)).unwrap_or(usize::MAX);
        self.patience.get(at).or(self.patience.last()).copied().unwrap_or_default()
    }

    /// What has come in the meantime.
    pub(super) fn come_already(&mut self) -> Option<Result<Came, NatsError>> {
        let message = self.answers.next().now_or_never()?;
        Some(self.came(message))
    }

    /// Asks for up to `most` messages where nothing is asked for, and waits for whatever comes first.
    pub(super) async fn wait(&mut self, most: usize) -> Result<Came, NatsError> {
        if self.session.connections() > self.connections {
            self.connections = self.session.connections();
            self.pull = Pull::None { waits: false, not_before: None };
        }
        let until = match self.pull {
            Pull::UnderWay { until, .. } => until,
            Pull::None { not_before: Some(not_before), waits } => {
                tokio::time::sleep_until(not_before).await;
                self.pull = Pull::None { waits, not_before: None };
                return Ok(Came::Nothing);
            }
            Pull::None { not_before: None, waits } => {
                self.pull(if waits { 1 } else { most }, waits).await?;
                return Ok(Came::Nothing);
            }
        };
        let session = self.session.clone();
        tokio::select! {
            message = self.answers.next() => self.came(message),
            () = session.made_again(self.connections) => Ok(Came::Nothing),
            () = tokio::time::sleep_until(until) => {
                self.pull = Pull::None { waits: true, not_before: None };
                Ok(Came::Nothing)
            }
        }
    }

    async fn pull(&mut self, batch: usize, waits: bool) -> Result<(), NatsError> {
        let request = if waits {
            json!({ "batch": batch, "expires": u64::try_from(WAITS.as_nanos()).unwrap_or(u64::MAX) })
        } else {
            json!({ "batch": batch, "no_wait": true })
        };
        self.pulls += 1;
        let (reply, body) = (format!("{}.{}", self.inbox, self.pulls), Bytes::from(request.to_string()));
        let sent = self.session.client.publish_with_reply(self.next.clone(), reply, body);
        match tokio::time::timeout(GRACE, sent).await {
            Ok(Ok(())) => {
                let until = Instant::now() + if waits { WAITS + GRACE } else { GRACE };
                self.pull = Pull::UnderWay { left: batch, until };
                Ok(())
            }
            Ok(Err(error)) => Err(NatsError::unavailable(error)),
            Err(_) => Err(NatsError::unavailable("a pull could not be sent")),
        }
    }

    fn came(&mut self, message: Option<Message>) -> Result<Came, NatsError> {
        let Some(message) = message else { return Err(NatsError::unavailable("the connection is closed")) };
        let Some(status) = message.status.filter(|status| *status != StatusCode::OK) else {
            if let Pull::UnderWay { left, until } = self.pull {
                self.pull = match left {
                    0 | 1 => Pull::None { waits: false, not_before: None },
                    _ => Pull::UnderWay { left: left - 1, until },
                };
            }
            return Ok(Came::Message(message));
        };
        if *message.subject != format!("{}.{}", self.inbox, self.pulls) {
            return Ok(Came::Nothing);
        }
        let said = message.description.as_deref().unwrap_or_default();
        let pause = Some(Instant::now() + PAUSE);
        match status {
            StatusCode::IDLE_HEARTBEAT => {}
            StatusCode::NOT_FOUND | StatusCode::TIMEOUT => {
                self.pull = Pull::None { waits: true, not_before: None }
            }
            StatusCode::REQUEST_TERMINATED if said == "Consumer is push based" => {
                return Err(NatsError::Unfit {
                    what: format!("consumer of {}", self.shelf.stream).into(),
                    reason: "it is a push consumer; a pull consumer is needed".into(),
                });
            }
            // Deleted; or without a leader, at a limit or shutting down, all of which passes.
            _ => {
                tracing::debug!(%status, said, "NATS ended a pull");
                if status == StatusCode::NO_RESPONDERS || said == "Consumer Deleted" {
                    self.watch.hint();
                }
                self.pull = Pull::None { waits: true, not_before: pause };
            }
        }
        Ok(Came::Nothing)
    }

    /// Stops what is asked for, and gives out what still came.
    pub(super) async fn close(&mut self) -> Vec<Message> {
        if tokio::time::timeout(GRACE, self.answers.unsubscribe()).await.is_err() {
            tracing::debug!("NATS was not told that the consumer leaves");
        }
        let mut left = Vec::new();
        while let Some(Some(message)) = self.answers.next().now_or_never() {
            left.extend(Some(message).filter(|message| message.status.is_none()));
        }
        left
    }

    /// Makes sure, once, that dead letters have a stream.
    pub(super) async fn ensure_dead(&self, member: &Member) -> Result<(), NatsError> {
        if !self.has_dead.load(Ordering::Relaxed) {
            shelf::ensure_dead(&self.session, &member.topic.dead(), &member.settings).await?;
            self.has_dead.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Finds the group's durable consumer, or makes it.
async fn ensure_group(session: &Session, shelf: &Shelf, member: &Member) -> Result<Info, NatsError> {
    let (stream, name) = (&shelf.stream, &member.consumer);
    let what = format!("consumer {name} of stream {stream}");
    let found = session.find::<Info>(&what, &format!("CONSUMER.INFO.{stream}.{name}"), &Value::Null).await?;
    if let Found::It(info) = found {
        return fit(info, member, &what);
    }
    let request = json!({ "stream_name": stream, "config": group_config(shelf, member) });
    let info = session.ask(&what, &format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"), &request).await?;
    tracing::info!(stream, consumer = name, "made a consumer in NATS");
    fit(info, member, &what)
}

/// The server counts deliveries and in practice never stops by itself ([`DELIVERIES_MAX`]): at its own limit it would
/// tell nobody and keep the message for ever. What was delivered too often is moved by the member that gets it next.
///
/// With a backoff, the server waits that long for an acknowledgement *instead of* `ack_wait`; so the time to
/// acknowledge is part of every step.
fn group_config(shelf: &Shelf, member: &Member) -> Value {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let (settings, ack_timeout) = (&member.settings, member.ack_timeout());
    let steps = settings.max_retries.min(BACKOFF_STEPS_MAX);
    let backoff: Vec<_> = (1..=steps)
        .map(|step| nanos(ack_timeout.saturating_add(settings.backoff.longest_after(step))))
        .collect();
    json!({
        "durable_name": member.consumer,
        "description": "made by gpuvitals",
        "deliver_policy": match member.options.start { Start::Oldest => "all", Start::Newest => "new" },
        "ack_policy": "explicit",
        "ack_wait": nanos(ack_timeout),
        "max_deliver": DELIVERIES_MAX,
        "backoff": backoff,
        "max_ack_pending": GROUP_IN_FLIGHT_MAX,
        "replay_policy": "instant",
        "filter_subject": shelf.filter,
        "inactive_threshold": member.options.group_ttl.map(nanos),
    })
}

/// Whether a consumer can be used.
fn fit(info: Info, member: &Member, what: &str) -> Result<Info, NatsError> {
    let config = &info.config;
    let unfit = |reason: &str| Err(NatsError::Unfit { what: what.into(), reason: reason.into() });
    if config.deliver_subject.is_some() {
        return unfit("it is a push consumer; a pull consumer is needed");
    }
    if config.ack_policy != AckPolicy::Explicit {
        return unfit("its messages are not acknowledged one by one; ack policy explicit is needed");
    }
    let filters = std::iter::once(&config.filter_subject).chain(&config.filter_subjects);
    let mut filters = filters.filter(|filter| !filter.is_empty()).peekable();
    if filters.peek().is_some() && !filters.any(|filter| names::takes(filter, &member.topic.subject)) {
        return unfit("its filter passes over the topic's subject");
    }
    let waits = config.backoff.first().copied().unwrap_or(config.ack_wait);
    if waits < member.ack_timeout() {
        let (wanted, given) = (member.ack_timeout(), waits);
        tracing::warn!(
            what,
            ?wanted,
            ?given,
            "the group exists with a shorter time to acknowledge; that one holds"
        );
    }
    if (1..DELIVERIES_MAX).contains(&config.max_deliver) {
        tracing::warn!(
            what,
            max_deliver = config.max_deliver,
            "the server stops to deliver a message after so often, and tells nobody"
        );
    }
    Ok(info)
}
