//! The stream of a topic: made where it is missing. In one of ours, what the settings name is changed to what they say;
//! otherwise one that exists is used as it is.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::Info as GroupInfo;
use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::error::NatsError;
use super::names::{self, Topic};
use super::session::{Found, Session};
use super::settings::{DUPLICATE_WINDOW, MAX_BYTES, MAX_DEAD_BYTES, NatsSettings};
use crate::broker::Durability;
use crate::config::WhenFull;

/// Marks streams of ours, which their consumers keep within bounds.
const MARK: &str = "made by gpuvitals; its consumers remove what all of them have acknowledged";

/// Marks their dead letters.
const DEAD_MARK: &str = "dead letters, made by gpuvitals";

/// Shortest window of a foreign stream in which a repeat is still likely to be recognised, seconds.
const SHORT_WINDOW_S: u64 = 10;

/// What one has to know of a topic's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shelf {
    /// Its name.
    pub(super) stream: String,
    /// How safe an acknowledged message is in it.
    pub(super) durability: Durability,
    /// What a consumer has to filter by; none where the stream holds nothing else.
    pub(super) filter: Option<String>,
    /// Whether its consumers remove what all have acknowledged.
    pub(super) is_trimmed: bool,
}

/// Finds the stream of `topic`, or makes it.
pub(super) async fn ensure(
    session: &Session,
    topic: &Topic,
    settings: &NatsSettings,
) -> Result<Shelf, NatsError> {
    match find_stream(session, topic).await {
        Ok(Found::It(stream)) => fit(&stream.adapted(session, named(settings)).await, topic),
        Ok(Found::Nothing) => make(session, topic, topic_config(session, topic, settings)).await,
        // Whoever may only publish and receive works with a stream that somebody has made under this name.
        Err(NatsError::Denied(_)) => Ok(Shelf {
            stream: topic.stream.clone(),
            durability: Durability::Written,
            filter: Some(topic.subject.clone()),
            is_trimmed: false,
        }),
        Err(error) => Err(error),
    }
}

/// Finds the stream for dead letters, or makes it.
pub(super) async fn ensure_dead(
    session: &Session,
    dead: &Topic,
    settings: &NatsSettings,
) -> Result<(), NatsError> {
    match find_stream(session, dead).await {
        Ok(Found::It(stream)) => fit(&stream.adapted(session, named_of_dead(settings)).await, dead).map(drop),
        Err(NatsError::Denied(_)) => Ok(()),
        Ok(Found::Nothing) => make(session, dead, dead_config(session, dead, settings)).await.map(drop),
        Err(error) => Err(error),
    }
}

/// Finds the stream of `topic`.
pub(super) async fn find(session: &Session, topic: &Topic) -> Result<Found<Shelf>, NatsError> {
    match find_stream(session, topic).await? {
        Found::It(stream) => fit(&stream.info, topic).map(Found::It),
        Found::Nothing => Ok(Found::Nothing),
    }
}

/// What a stream says of itself.
pub(super) async fn find_info(session: &Session, stream: &str) -> Result<Found<Info>, NatsError> {
    session.find(&format!("stream {stream}"), &format!("STREAM.INFO.{stream}"), &Value::Null).await
}

/// What the consumers of a stream say of themselves. `None` if one of them is not heard of.
pub(super) async fn groups(session: &Session, stream: &str) -> Result<Option<Vec<GroupInfo>>, NatsError> {
    session.list("consumers", &format!("CONSUMER.LIST.{stream}")).await
}

/// A stream that exists.
struct Stream {
    info: Info,
    /// As the server said it: an update must not take away what this program has no name for.
    config: Value,
}

/// The stream of `topic` under its own name, or somebody else's that takes its subject.
async fn find_stream(session: &Session, topic: &Topic) -> Result<Found<Stream>, NatsError> {
    #[derive(Deserialize)]
    struct Names {
        streams: Option<Vec<String>>,
    }
    if let Found::It(stream) = look_at(session, &topic.stream).await? {
        return Ok(Found::It(stream));
    }
    let query = json!({ "subject": topic.subject });
    let names: Names = session.ask("streams by subject", "STREAM.NAMES", &query).await?;
    match names.streams.and_then(|names| names.into_iter().next()) {
        Some(name) => look_at(session, &name).await,
        None => Ok(Found::Nothing),
    }
}

async fn look_at(session: &Session, stream: &str) -> Result<Found<Stream>, NatsError> {
    let (what, subject) = (format!("stream {stream}"), format!("STREAM.INFO.{stream}"));
    let Found::It(said) = session.find::<Value>(&what, &subject, &Value::Null).await? else {
        return Ok(Found::Nothing);
    };
    let info = Info::deserialize(&said)
        .map_err(|error| NatsError::unavailable(format!("{what}: odd answer: {error}")))?;
    Ok(Found::It(Stream { info, config: said.get("config").cloned().unwrap_or_default() }))
}

impl Stream {
    /// What it is once it has the settings that were named: changed where it is ours. What is not changed is told, and
    /// does not keep anybody from using it.
    async fn adapted(self, session: &Session, mut named: Map<String, Value>) -> Info {
        let Self { info, mut config } = self;
        let is_ours = matches!(info.config.description.as_deref(), Some(MARK | DEAD_MARK));
        let Some(fields) = config.as_object_mut() else { return info };
        named.retain(|name, value| fields.get(name) != Some(value));
        let stream = &info.config.name;
        if !is_ours && !named.is_empty() {
            tracing::warn!(stream, "the stream was made by others; what the URL says of it is not applied");
            return info;
        }
        named.retain(|name, value| match unwise(session, &info.config, name, value) {
            Some(reason) => {
                tracing::warn!(stream, setting = name, "the stream stays as it is there: {reason}");
                false
            }
            None => true,
        });
        if named.is_empty() {
            return info;
        }
        fields.extend(named);
        let what = format!("the settings of stream {stream}");
        match session.ask::<Info>(&what, &format!("STREAM.UPDATE.{stream}"), &config).await {
            Ok(updated) => {
                tracing::info!(stream, "changed the stream in NATS to what the URL says");
                updated
            }
            Err(error) => {
                tracing::warn!(stream, %error, "the stream stays as it is, which is not what the URL says");
                info
            }
        }
    }
}

/// Why a setting is not changed to this value, though the server would do it.
fn unwise(session: &Session, config: &Config, name: &str, value: &Value) -> Option<&'static str> {
    // No bound is -1, or 0.
    let bytes_now = u64::try_from(config.max_bytes).ok().filter(|bytes| *bytes > 0).unwrap_or(u64::MAX);
    match (name, value.as_u64()) {
        ("max_bytes", Some(bytes)) if bytes < bytes_now => {
            Some("with a lower bound the server would drop the oldest messages, read or not")
        }
        ("num_replicas", Some(2..)) if !in_cluster(session) => Some("the server is not one of a cluster"),
        _ => None,
    }
}

fn in_cluster(session: &Session) -> bool {
    session.client.server_info().cluster.is_some()
}

/// What the settings name of a topic's stream, as JetStream calls it.
fn named(settings: &NatsSettings) -> Map<String, Value> {
    let mut named = named_of_both(settings);
    named.extend(settings.max_bytes.map(|bytes| ("max_bytes".to_owned(), json!(bytes))));
    let discard = settings.when_full.map(discard);
    named.extend(discard.map(|discard| ("discard".to_owned(), json!(discard))));
    named
}

/// What they name of its dead letters' stream.
fn named_of_dead(settings: &NatsSettings) -> Map<String, Value> {
    let mut named = named_of_both(settings);
    named.extend(settings.max_dead_bytes.map(|bytes| ("max_bytes".to_owned(), json!(bytes))));
    named
}

fn named_of_both(settings: &NatsSettings) -> Map<String, Value> {
    let nanos = |window: Duration| json!(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX));
    let replicas = settings.replicas.map(|replicas| ("num_replicas".to_owned(), json!(replicas)));
    let window = settings.duplicate_window.map(|window| ("duplicate_window".to_owned(), nanos(window)));
    replicas.into_iter().chain(window).collect()
}

fn discard(when_full: WhenFull) -> DiscardPolicy {
    match when_full {
        WhenFull::Refuse => DiscardPolicy::New,
        WhenFull::DropOldest => DiscardPolicy::Old,
    }
}

async fn make(session: &Session, topic: &Topic, config: Config) -> Result<Shelf, NatsError> {
    let what =
        format!("stream {} ({} bytes, {} replicas)", config.name, config.max_bytes, config.num_replicas);
    let made = session.ask::<Info>(&what, &format!("STREAM.CREATE.{}", config.name), &json!(config)).await;
    match made {
        Ok(info) => {
            tracing::info!(stream = topic.stream, replicas = config.num_replicas, "made a stream in NATS");
            fit(&info, topic)
        }
        // Another was faster.
        Err(NatsError::Refused { reason, .. }) if reason.contains(&taken()) => {
            match find(session, topic).await? {
                Found::It(shelf) => Ok(shelf),
                Found::Nothing => Err(NatsError::Refused { what: what.into(), reason }),
            }
        }
        Err(error) => Err(error),
    }
}

/// How an answer ends that says that the name is in use with another configuration.
fn taken() -> String {
    format!("error code {})", ErrorCode::STREAM_NAME_EXIST.0)
}

/// Holds what no group has acknowledged up to the bound, and what nobody reads as well: with the retention by
/// interest, messages that are published before the first group exists would be acknowledged and dropped.
fn topic_config(session: &Session, topic: &Topic, settings: &NatsSettings) -> Config {
    Config {
        max_bytes: i64::try_from(settings.max_bytes.unwrap_or(MAX_BYTES)).unwrap_or(i64::MAX),
        discard: discard(settings.when_full.unwrap_or_default()),
        description: Some(MARK.to_owned()),
        ..config(session, topic, settings)
    }
}

fn dead_config(session: &Session, dead: &Topic, settings: &NatsSettings) -> Config {
    Config {
        max_bytes: i64::try_from(settings.max_dead_bytes.unwrap_or(MAX_DEAD_BYTES)).unwrap_or(i64::MAX),
        discard: DiscardPolicy::Old,
        description: Some(DEAD_MARK.to_owned()),
        ..config(session, dead, settings)
    }
}

fn config(session: &Session, topic: &Topic, settings: &NatsSettings) -> Config {
    Config {
        name: topic.stream.clone(),
        subjects: vec![topic.subject.clone()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_consumers: -1,
        max_message_size: -1,
        num_replicas: settings.replicas.unwrap_or(if in_cluster(session) { 3 } else { 1 }),
        duplicate_window: settings.duplicate_window.unwrap_or(DUPLICATE_WINDOW),
        ..Config::default()
    }
}

/// Whether a stream can be used; what is worth knowing about it is logged.
fn fit(info: &Info, topic: &Topic) -> Result<Shelf, NatsError> {
    let config = &info.config;
    let unfit = |reason: String| {
        Err(NatsError::Unfit { what: format!("stream {}", config.name).into(), reason: reason.into() })
    };
    if !config.subjects.iter().any(|pattern| names::takes(pattern, &topic.subject)) {
        return unfit(format!("it does not take subject {}; add that to its subjects", topic.subject));
    }
    if config.no_ack {
        return unfit("it acknowledges nothing (no_ack); a publisher could not know what is safe".to_owned());
    }
    if config.sealed {
        return unfit("it is sealed".to_owned());
    }
    let is_ours = config.description.as_deref() == Some(MARK);
    if !is_ours && !topic.name.ends_with(crate::name::DEAD_SUFFIX) {
        tell(config);
    }
    let is_alone = matches!(&config.subjects[..], [only] if *only == topic.subject);
    Ok(Shelf {
        stream: config.name.clone(),
        durability: match config.storage {
            StorageType::File => Durability::Written,
            StorageType::Memory => Durability::Memory,
        },
        filter: (!is_alone).then(|| topic.subject.clone()),
        is_trimmed: is_ours
            && config.retention == RetentionPolicy::Limits
            && config.discard == DiscardPolicy::New,
    })
}

fn tell(config: &Config) {
    let stream = &config.name;
    tracing::info!(stream, "the stream was made by others and is used as it is");
    let odd = [
        (config.storage == StorageType::Memory, "it keeps messages in memory only"),
        (config.retention == RetentionPolicy::Interest, "what is published while it has no consumer is lost"),
        (config.retention == RetentionPolicy::WorkQueue, "it serves one group only"),
        (config.discard == DiscardPolicy::Old, "at its bound the oldest messages go, read or not"),
        (config.max_age.as_secs() > 0, "messages go at its max_age, read or not"),
        (
            config.duplicate_window.as_secs() < SHORT_WINDOW_S,
            "its duplicate window is short: a repeated publish may be stored twice",
        ),
    ];
    for (_, text) in odd.iter().filter(|(is, _)| *is) {
        tracing::warn!(stream, "{text}");
    }
}
