//! The stream of a topic.

use std::time::Duration;

use async_nats::jetstream::stream::{Config, DiscardPolicy, Info, RetentionPolicy, StorageType};
use gpuvitals_core::clock;
use serde::Deserialize;
use serde_json::json;

use super::error::NatsError;
use super::names::Topic;
use super::session::Session;
use super::settings::NatsSettings;
use crate::broker::FrameDurability;

/// Bound of a topic of dead letters, which drops its oldest there.
const DEAD_BYTES: i64 = 64 << 20;

/// How long a repeated publish is recognised. The server takes no more than `max_age`.
const DUPLICATE_WINDOW: Duration = Duration::from_mins(2);

/// How long a stream counts as new.
const NEW_FOR: Duration = Duration::from_mins(1);

/// A topic's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stream {
    pub(super) name: String,
    /// How safe an acknowledged message is.
    pub(super) durability: FrameDurability,
    /// Whether the server may still be making it. It answers requests for the stream before that is done, and a group
    /// that is created meanwhile never delivers a message (nats-server issue 3677).
    pub(super) is_new: bool,
}

/// Finds the stream of `topic`, or creates it.
pub(super) async fn ensure(
    session: &Session,
    topic: &Topic,
    settings: &NatsSettings,
) -> Result<Stream, NatsError> {
    match find(session, topic).await {
        Ok(Some(info)) => Ok(described(&info)),
        // Two may create it at once, and one of them differently: look again.
        Ok(None) => match create(session, topic, settings).await {
            Ok(info) => Ok(Stream { is_new: true, ..described(&info) }),
            Err(error) => match find(session, topic).await? {
                Some(info) => Ok(described(&info)),
                None => Err(error),
            },
        },
        // Without the permission to look, a stream under its usual name must exist.
        Err(NatsError::Denied(_)) => {
            Ok(Stream { name: topic.stream.clone(), durability: FrameDurability::Written, is_new: true })
        }
        Err(error) => Err(error),
    }
}

/// Finds the stream that takes the subject of `topic`, under any name.
pub(super) async fn find(session: &Session, topic: &Topic) -> Result<Option<Info>, NatsError> {
    #[derive(Deserialize)]
    struct StreamNames {
        streams: Option<Vec<String>>,
    }
    let query = json!({ "subject": topic.subject });
    let names: Option<StreamNames> =
        session.request("streams by subject", "STREAM.NAMES".to_owned(), &query).await?;
    match names.and_then(|names| names.streams).into_iter().flatten().next() {
        Some(name) => {
            session.request(&format!("stream {name}"), format!("STREAM.INFO.{name}"), &json!(null)).await
        }
        None => Ok(None),
    }
}

fn described(info: &Info) -> Stream {
    let durability = match info.config.storage {
        StorageType::File => FrameDurability::Written,
        StorageType::Memory => FrameDurability::Memory,
    };
    // The server's clock may be another one: a stream of the future is taken for a new one.
    let age_ns = i128::from(clock::now_ns()) - info.created.unix_timestamp_nanos();
    let is_new = age_ns < i128::try_from(NEW_FOR.as_nanos()).unwrap_or(i128::MAX);
    Stream { name: info.config.name.clone(), durability, is_new }
}

async fn create(session: &Session, topic: &Topic, settings: &NatsSettings) -> Result<Info, NatsError> {
    let in_cluster = session.client.server_info().cluster.is_some();
    let config = config(topic, settings, if in_cluster { 3 } else { 1 });
    let what =
        format!("stream {} ({} bytes, {} replicas)", config.name, config.max_bytes, config.num_replicas);
    let made = session.request::<Info>(&what, format!("STREAM.CREATE.{}", config.name), &config).await?;
    let info = made.ok_or_else(|| NatsError::unavailable(format_args!("{what} was not created")))?;
    tracing::info!(stream = topic.stream, replicas = config.num_replicas, "created a stream in NATS");
    Ok(info)
}

/// Retention by limits: by interest, messages published before the first group exists would be dropped, and a work
/// queue serves one group only.
fn config(topic: &Topic, settings: &NatsSettings, replicas: usize) -> Config {
    let (max_bytes, max_age, discard) = if topic.is_dead() {
        (DEAD_BYTES, Duration::ZERO, DiscardPolicy::Old)
    } else {
        (i64::try_from(settings.max_bytes).unwrap_or(i64::MAX), settings.max_age, DiscardPolicy::New)
    };
    Config {
        name: topic.stream.clone(),
        subjects: vec![topic.subject.clone()],
        description: Some("created by gpuvitals".to_owned()),
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        max_bytes,
        max_age,
        discard,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_consumers: -1,
        max_message_size: -1,
        num_replicas: settings.replicas.unwrap_or(replicas),
        duplicate_window: DUPLICATE_WINDOW.min(settings.max_age),
        ..Config::default()
    }
}
