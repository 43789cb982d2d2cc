//! What a person asks of topics in NATS: numbers, and dead letters to list, replay and purge.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::RawMessage;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::error::NatsError;
use super::head;
use super::names::{self, Topic};
use super::producer::{self, Refusal};
use super::session::{Endpoint, Found, Session};
use super::shelf::{self, Shelf};
use crate::broker::{DeadLetter, DeadSelection, Replayed};
use crate::frame::Millis;
use crate::link::{Access, QueueUrl};
use crate::name::DEAD_SUFFIX;

/// What NATS knows of a topic. It counts frames, not messages (rows).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NatsStats {
    /// The stream.
    pub stream: String,
    /// Frames in it; those that all groups have acknowledged are removed now and then.
    pub frames: u64,
    /// Bytes in it.
    pub bytes: u64,
    /// Servers that keep a copy of each.
    pub replicas: usize,
    /// Frames kept as dead letters.
    pub dead_letters: u64,
    /// Every group by name.
    pub groups: BTreeMap<String, NatsGroupStats>,
}

/// One group of a topic, in frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NatsGroupStats {
    /// Not yet acknowledged (in flight included).
    pub lag: u64,
    /// With a consumer now.
    pub in_flight: u64,
    /// Delivered more than once, and not yet acknowledged.
    pub redelivered: u64,
}

/// Asks NATS about topics and their dead letters.
#[derive(Debug)]
pub struct NatsAdmin {
    endpoint: Endpoint,
}

impl NatsAdmin {
    /// Somebody to ask. It connects with the first question.
    pub fn new(url: &QueueUrl, access: &Access) -> Self {
        Self { endpoint: Endpoint::new(url, access) }
    }

    /// Names of all topics that have a stream of ours, sorted.
    ///
    /// # Errors
    ///
    /// NATS is away, or refuses.
    pub async fn topics(&self) -> Result<Vec<String>, NatsError> {
        let session = self.session().await?;
        let streams: Option<Vec<String>> = session.list("streams", "STREAM.NAMES").await?;
        let streams = streams.ok_or_else(|| NatsError::unavailable("not all streams answer"))?;
        let topics = streams.iter().filter_map(|stream| names::topic_of(stream));
        let mut topics: Vec<_> = topics.filter(|topic| !topic.ends_with(DEAD_SUFFIX)).collect();
        topics.sort();
        Ok(topics)
    }

    /// Numbers of one topic.
    ///
    /// # Errors
    ///
    /// There is no such topic; NATS is away, or refuses.
    pub async fn stats(&self, topic: &str) -> Result<NatsStats, NatsError> {
        let session = self.session().await?;
        let topic = named(topic)?;
        let shelf = held(&session, &topic).await?;
        let Found::It(info) = shelf::find_info(&session, &shelf.stream).await? else {
            return Err(NatsError::UnknownTopic(topic.name));
        };
        let dead_letters = match shelf::find_info(&session, &topic.dead().stream).await? {
            Found::It(dead) => dead.state.messages,
            Found::Nothing => 0,
        };
        let groups =
            shelf::groups(&session, &shelf.stream).await?.unwrap_or_default().into_iter().map(|group| {
                let in_flight = u64::try_from(group.num_ack_pending).unwrap_or(u64::MAX);
                let stats = NatsGroupStats {
                    lag: group.num_pending.saturating_add(in_flight),
                    in_flight,
                    redelivered: u64::try_from(group.num_redelivered).unwrap_or(u64::MAX),
                };
                (names::group(&group.name), stats)
            });
        Ok(NatsStats {
            stream: info.config.name,
            frames: info.state.messages,
            bytes: info.state.bytes,
            replicas: info.config.num_replicas,
            dead_letters,
            groups: groups.collect(),
        })
    }

    /// Dead letters of a topic, oldest first: at most `limit`, with ids not below `from`. When a message was delivered
    /// first is not known in NATS; its publication stands there.
    ///
    /// # Errors
    ///
    /// NATS is away, or refuses, or there is something else than a dead letter in their stream.
    pub async fn dead_letters(
        &self,
        topic: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, NatsError> {
        let session = self.session().await?;
        let topic = named(topic)?;
        let (mut letters, mut next) = (Vec::new(), from.max(1));
        while letters.len() < limit {
            let Some(letter) = letter(&session, &topic, next, Which::From).await? else { break };
            next = letter.id.saturating_add(1);
            letters.push(letter);
        }
        Ok(letters)
    }

    /// Gives dead letters back to the groups that gave up on them, as if new.
    ///
    /// # Errors
    ///
    /// NATS is away, or refuses. Letters that were given back before that are.
    pub async fn replay_dead(&self, topic: &str, selection: &DeadSelection) -> Result<Replayed, NatsError> {
        let session = self.session().await?;
        let topic = named(topic)?;
        let shelf = held(&session, &topic).await?;
        let known = shelf::groups(&session, &shelf.stream).await?.unwrap_or_default();
        let mut replayed = Replayed::default();
        for letter in self.selected(&session, &topic, selection).await? {
            if !known.iter().any(|group| names::group(&group.name) == *letter.group) {
                replayed.without_group += 1;
                continue;
            }
            let remnant = head::Remnant {
                group: letter.group,
                attempts: 0,
                offset: letter.offset,
                published_at: letter.published_at,
            };
            let headers = head::of_again(&letter.frame, &remnant, Millis(0));
            // Whoever dies between the two is not heard twice.
            let id = format!("replay-{}-{}", letter.id, letter.died_at.0);
            match producer::publish(&session, &topic.subject, headers, Some(id), &letter.frame.payload).await
            {
                Ok(_) => {
                    remove(&session, &topic, letter.id).await?;
                    replayed.letters += 1;
                }
                Err(Refusal::Full) => replayed.without_room += 1,
                Err(refusal) => return Err(refusal.into_error(&topic.subject)),
            }
        }
        Ok(replayed)
    }

    /// Throws dead letters away. Answers how many letters.
    ///
    /// # Errors
    ///
    /// NATS is away, or refuses. Letters that were thrown away before that are.
    pub async fn purge_dead(&self, topic: &str, selection: &DeadSelection) -> Result<usize, NatsError> {
        let session = self.session().await?;
        let topic = named(topic)?;
        let letters = self.selected(&session, &topic, selection).await?;
        for letter in &letters {
            remove(&session, &topic, letter.id).await?;
        }
        Ok(letters.len())
    }

    async fn selected(
        &self,
        session: &Session,
        topic: &Topic,
        selection: &DeadSelection,
    ) -> Result<Vec<DeadLetter>, NatsError> {
        match selection {
            DeadSelection::Oldest(most) => self.dead_letters(&topic.name, 0, *most).await,
            DeadSelection::Ids(ids) => {
                let mut letters = Vec::new();
                for id in ids {
                    letters.extend(letter(session, topic, *id, Which::Exactly).await?);
                }
                Ok(letters)
            }
        }
    }

    async fn session(&self) -> Result<Session, NatsError> {
        self.endpoint.session().await
    }
}

fn named(topic: &str) -> Result<Topic, NatsError> {
    Topic::new(topic).map_err(NatsError::Topic)
}

async fn held(session: &Session, topic: &Topic) -> Result<Shelf, NatsError> {
    match shelf::find(session, topic).await? {
        Found::It(shelf) => Ok(shelf),
        Found::Nothing => Err(NatsError::UnknownTopic(Arc::clone(&topic.name))),
    }
}

/// Which letter is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// The one with the id.
    Exactly,
    /// The first one from the id on.
    From,
}

async fn letter(
    session: &Session,
    topic: &Topic,
    id: u64,
    which: Which,
) -> Result<Option<DeadLetter>, NatsError> {
    #[derive(Deserialize)]
    struct Stored {
        message: RawMessage,
    }
    let dead = topic.dead();
    let query = match which {
        Which::Exactly => json!({ "seq": id }),
        Which::From => json!({ "seq": id, "next_by_subj": dead.subject }),
    };
    let subject = format!("STREAM.MSG.GET.{}", dead.stream);
    let Found::It(stored) = session.find::<Stored>("a dead letter", &subject, &query).await? else {
        return Ok(None);
    };
    let id = stored.message.sequence;
    let odd = |reason: String| NatsError::Unfit {
        what: format!("message {id} of stream {}", dead.stream).into(),
        reason: reason.into(),
    };
    let message = StreamMessage::try_from(stored.message).map_err(|error| odd(error.to_string()))?;
    let headers = &message.headers;
    let frame = head::frame(Some(headers), &message.payload).map_err(|error| odd(error.to_string()))?;
    let (remnant, reason, died_at) = head::dead(Some(headers)).map_err(|error| odd(error.to_string()))?;
    Ok(Some(DeadLetter {
        id,
        topic: Arc::clone(&topic.name),
        group: remnant.group,
        offset: remnant.offset,
        count: frame.count,
        frame: Arc::new(frame),
        reason,
        attempts: remnant.attempts,
        published_at: remnant.published_at,
        first_delivered_at: remnant.published_at,
        died_at,
    }))
}

async fn remove(session: &Session, topic: &Topic, id: u64) -> Result<(), NatsError> {
    let subject = format!("STREAM.MSG.DELETE.{}", topic.dead().stream);
    session
        .find::<IgnoredAny>("a dead letter", &subject, &json!({ "seq": id, "no_erase": true }))
        .await
        .map(drop)
}
