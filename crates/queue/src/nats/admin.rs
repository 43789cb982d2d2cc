//! Topics and dead letters in NATS, for people.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{Info, RawMessage};
use futures_util::TryStreamExt;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::error::NatsError;
use super::headers;
use super::names::{self, Topic};
use super::session::{Endpoint, Session};
use super::stream;
use crate::frame::{ContentType, Frame, Millis};
use crate::link::{Credentials, QueueUrl};
use crate::name::DEAD_SUFFIX;

/// Statistics of a topic. NATS counts frames, not messages (rows).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NatsStats {
    /// Name of the stream.
    pub stream: String,
    /// Frames held, acknowledged ones included.
    pub frames: u64,
    /// The same, under the name that a broker's statistics have.
    pub messages: u64,
    /// Consumers that wait for frames.
    pub subscribers: u64,
    /// Frames published in the life of the stream.
    pub published: u64,
    /// Frames acknowledged, over all groups.
    pub acked: u64,
    /// When the stream was made, in seconds since 1970.
    pub made_s: i64,
    /// Bytes that the topic's stream holds.
    pub bytes: u64,
    /// Servers that keep a copy of each frame.
    pub replicas: usize,
    /// Dead letters held, in frames.
    pub dead_letters: u64,
    /// Every group by name.
    pub groups: BTreeMap<String, NatsGroupStats>,
}

/// Statistics of one group of a topic, in frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NatsGroupStats {
    /// Not yet acknowledged (in flight included).
    pub lag: u64,
    /// With a consumer now.
    pub in_flight: u64,
    /// Acknowledged, with all before.
    pub acked: u64,
    /// Consumers that wait for frames.
    pub waiting: u64,
    /// Delivered more than once, and not yet acknowledged.
    pub redelivered: u64,
}

/// A message of a topic of dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NatsDeadLetter {
    /// Its sequence number in that topic.
    pub id: u64,
    /// The frame. Its origin and reason are missing if something else than a consumer published it.
    pub frame: Frame,
    /// When it was stored.
    pub died_at: Millis,
}

/// The result of putting dead letters back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatsRedriven {
    /// Published to the topic again, and no longer dead letters.
    pub letters: u64,
    /// Left because the topic is full.
    pub without_room: u64,
}

/// A client for statistics and dead letters.
#[derive(Debug)]
pub struct NatsAdmin {
    endpoint: Endpoint,
}

impl NatsAdmin {
    /// A client. It connects with the first request.
    pub fn new(url: &QueueUrl, access: &Credentials) -> Self {
        Self { endpoint: Endpoint::new(url, access) }
    }

    /// Statistics of all topics, by name.
    ///
    /// # Errors
    ///
    /// NATS is away, or refuses.
    pub async fn all_stats(&self) -> Result<BTreeMap<String, NatsStats>, NatsError> {
        let mut all = BTreeMap::new();
        for name in self.topics().await? {
            let stats = self.stats(&name).await?;
            all.insert(name, stats);
        }
        Ok(all)
    }

    /// Names of all topics with a stream of ours, sorted, without those of dead letters.
    ///
    /// # Errors
    ///
    /// NATS is away, or refuses.
    pub async fn topics(&self) -> Result<Vec<String>, NatsError> {
        let session = self.endpoint.session().await?;
        let names = session.jetstream.stream_names().map_err(NatsError::unavailable);
        let names: Vec<String> = session.permitted(names.try_collect()).await?;
        let topics = names.iter().filter_map(|stream| names::topic_of(stream));
        let mut topics: Vec<_> = topics.filter(|topic| !topic.ends_with(DEAD_SUFFIX)).collect();
        topics.sort();
        Ok(topics)
    }

    /// Statistics of one topic.
    ///
    /// # Errors
    ///
    /// The topic is missing; NATS is away, or refuses.
    pub async fn stats(&self, topic: &str) -> Result<NatsStats, NatsError> {
        let (session, topic) = self.open(topic).await?;
        let info = existing(&session, &topic).await?;
        let dead = stream::find(&session, &topic.dead()).await?;
        let stream = session.jetstream.get_stream_no_info(&info.config.name).await;
        let consumers = stream.map_err(NatsError::unavailable)?.consumers();
        let groups = consumers.map_err(NatsError::unavailable).map_ok(|group| {
            let in_flight = u64::try_from(group.num_ack_pending).unwrap_or(u64::MAX);
            let stats = NatsGroupStats {
                lag: group.num_pending.saturating_add(in_flight),
                in_flight,
                acked: group.ack_floor.consumer_sequence,
                waiting: u64::try_from(group.num_waiting).unwrap_or(u64::MAX),
                redelivered: u64::try_from(group.num_redelivered).unwrap_or(u64::MAX),
            };
            (names::group(&group.name), stats)
        });
        let groups: BTreeMap<_, NatsGroupStats> = session.permitted(groups.try_collect()).await?;
        Ok(NatsStats {
            frames: info.state.messages,
            messages: info.state.messages,
            subscribers: groups.values().map(|group| group.waiting).sum(),
            published: info.state.last_sequence,
            acked: groups.values().map(|group| group.acked).sum(),
            made_s: info.created.unix_timestamp(),
            bytes: info.state.bytes,
            replicas: info.config.num_replicas,
            dead_letters: dead.map_or(0, |dead| dead.state.messages),
            groups,
            stream: info.config.name,
        })
    }

    /// Ends a group of a topic.
    ///
    /// # Errors
    ///
    /// The topic or group is missing; NATS is away, or refuses.
    pub async fn remove_group(&self, topic: &str, group: &str) -> Result<(), NatsError> {
        let (session, topic) = self.open(topic).await?;
        let stream = existing(&session, &topic).await?.config.name;
        let consumer = names::consumer(group).map_err(NatsError::Name)?;
        let (what, subject) = (format!("group {group}"), format!("CONSUMER.DELETE.{stream}.{consumer}"));
        let deleted: Option<IgnoredAny> = session.request(&what, subject, &json!({})).await?;
        deleted.map(drop).ok_or_else(|| NatsError::unusable(&what, "it does not exist"))
    }

    /// Dead letters of a topic, oldest first: at most `limit`, with ids not below `from`.
    ///
    /// # Errors
    ///
    /// The topic is missing; NATS is away, or refuses.
    pub async fn dead_letters(
        &self,
        topic: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<NatsDeadLetter>, NatsError> {
        let (session, topic) = self.open(topic).await?;
        let Some(dead) = Dead::find(&session, &topic).await? else { return Ok(Vec::new()) };
        dead.list(from, limit).await
    }

    /// Publishes dead letters to their topic again, for all its groups, and deletes them then: those named, or all.
    ///
    /// # Errors
    ///
    /// The topic is missing; NATS is away, or refuses. Letters before the failure have been put back.
    pub async fn redrive(&self, topic: &str, ids: &[u64]) -> Result<NatsRedriven, NatsError> {
        let (session, topic) = self.open(topic).await?;
        let mut redriven = NatsRedriven::default();
        let Some(dead) = Dead::find(&session, &topic).await? else { return Ok(redriven) };
        for letter in dead.selected(ids).await? {
            let frame = Frame { dead: None, ..letter.frame };
            // Recognised as a repeat if this process ends before it deletes the letter.
            let id = format!("redrive-{}-{}", letter.id, letter.died_at.0);
            match session.publish(&topic, &id, headers::of_frame(&frame), frame.payload).await {
                Ok(_) => {
                    dead.delete(letter.id).await?;
                    redriven.letters += 1;
                }
                Err(NatsError::Full(_)) => redriven.without_room += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(redriven)
    }

    /// Deletes dead letters of a topic, those named or all, and returns their number.
    ///
    /// # Errors
    ///
    /// The topic is missing; NATS is away, or refuses. Letters before the failure have been deleted.
    pub async fn purge_dead(&self, topic: &str, ids: &[u64]) -> Result<u64, NatsError> {
        #[derive(Deserialize)]
        struct Purged {
            purged: u64,
        }
        let (session, topic) = self.open(topic).await?;
        let Some(dead) = Dead::find(&session, &topic).await? else { return Ok(0) };
        if ids.is_empty() {
            let filter = json!({ "filter": dead.topic.subject });
            let purged =
                session.request::<Purged>("a purge", format!("STREAM.PURGE.{}", dead.stream), &filter);
            return Ok(purged.await?.map_or(0, |purged| purged.purged));
        }
        let mut deleted = 0;
        for letter in dead.selected(ids).await? {
            dead.delete(letter.id).await?;
            deleted += 1;
        }
        Ok(deleted)
    }

    async fn open(&self, topic: &str) -> Result<(Session, Topic), NatsError> {
        Ok((self.endpoint.session().await?, Topic::new(topic).map_err(NatsError::Name)?))
    }
}

async fn existing(session: &Session, topic: &Topic) -> Result<Info, NatsError> {
    stream::find(session, topic).await?.ok_or_else(|| NatsError::UnknownTopic(Arc::clone(&topic.name)))
}

/// The dead letters of a topic.
struct Dead<'a> {
    session: &'a Session,
    topic: Topic,
    stream: String,
    /// Id of the newest one when this was made.
    last: u64,
}

impl<'a> Dead<'a> {
    /// `None`: the topic has never had any.
    ///
    /// # Errors
    /// The topic is missing, and so are dead letters of it; NATS is away, or refuses.
    async fn find(session: &'a Session, of: &Topic) -> Result<Option<Self>, NatsError> {
        let topic = of.dead();
        let Some(info) = stream::find(session, &topic).await? else {
            existing(session, of).await?;
            return Ok(None);
        };
        let (stream, last) = (info.config.name, info.state.last_sequence);
        Ok(Some(Self { session, topic, stream, last }))
    }

    /// At most `limit`, with ids not below `from`.
    async fn list(&self, from: u64, limit: usize) -> Result<Vec<NatsDeadLetter>, NatsError> {
        let (mut letters, mut next) = (Vec::new(), from);
        while letters.len() < limit && next <= self.last {
            let Some(letter) = self.next(next).await? else { break };
            next = letter.id.saturating_add(1);
            letters.push(letter);
        }
        Ok(letters)
    }

    /// Those named that exist, or all.
    async fn selected(&self, ids: &[u64]) -> Result<Vec<NatsDeadLetter>, NatsError> {
        if ids.is_empty() {
            return self.list(0, usize::MAX).await;
        }
        let mut letters = Vec::new();
        for id in ids {
            letters.extend(self.next(*id).await?.filter(|letter| letter.id == *id));
        }
        Ok(letters)
    }

    /// The first one with an id not below `from`.
    async fn next(&self, from: u64) -> Result<Option<NatsDeadLetter>, NatsError> {
        #[derive(Deserialize)]
        struct Stored {
            message: RawMessage,
        }
        let query = json!({ "seq": from.max(1), "next_by_subj": self.topic.subject });
        let subject = format!("STREAM.MSG.GET.{}", self.stream);
        let stored: Option<Stored> = self.session.request("a dead letter", subject, &query).await?;
        let Some(Stored { message }) = stored else { return Ok(None) };
        let message = StreamMessage::try_from(message).map_err(NatsError::unavailable)?;
        let stored_ms = u64::try_from(message.time.unix_timestamp_nanos() / 1_000_000);
        let stored_ms =
            stored_ms.map_err(|_| NatsError::unusable("a dead letter", "its time is before 1970"))?;
        // Anybody may have published anything.
        let frame = headers::frame(Some(&message.headers), &message.payload)
            .unwrap_or_else(|_| Frame::new(ContentType::Json, 1, message.payload));
        Ok(Some(NatsDeadLetter { id: message.sequence, frame, died_at: Millis(stored_ms) }))
    }

    async fn delete(&self, id: u64) -> Result<(), NatsError> {
        let (subject, query) =
            (format!("STREAM.MSG.DELETE.{}", self.stream), json!({ "seq": id, "no_erase": true }));
        self.session.request::<IgnoredAny>("a dead letter", subject, &query).await.map(drop)
    }
}
