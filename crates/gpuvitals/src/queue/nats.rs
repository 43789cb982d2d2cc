//! NATS is asked by its own protocol.

use gpuvitals_core::{causes, time};
use gpuvitals_queue::link::{Access, QueueUrl};
use gpuvitals_queue::nats::{NatsAdmin, NatsError};
use gpuvitals_queue::{DeadLetter, DeadSelection, Millis};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::admin::Given;
use super::messages;
use crate::failure::{Exit, Failure};

/// NATS that is asked.
pub(super) struct Nats {
    admin: NatsAdmin,
    runtime: Runtime,
    url: QueueUrl,
}

impl Nats {
    /// The server there.
    ///
    /// # Errors
    /// When there is no runtime.
    pub(super) fn new(url: &QueueUrl, access: &Access) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|e| Failure::io("cannot start the runtime", e))?;
        Ok(Self { admin: NatsAdmin::new(url, access), runtime, url: url.clone() })
    }

    /// Names of all topics.
    ///
    /// # Errors
    /// When NATS does not answer, or refuses.
    pub(super) fn topics(&self) -> Result<Vec<String>, Failure> {
        self.runtime.block_on(self.admin.topics()).map_err(|error| self.refused(&error))
    }

    /// Numbers of a topic.
    ///
    /// # Errors
    /// When there is none; when NATS does not answer, or refuses.
    pub(super) fn topic(&self, topic: &str) -> Result<Value, Failure> {
        let stats = self.runtime.block_on(self.admin.stats(topic)).map_err(|error| self.refused(&error))?;
        Ok(serde_json::to_value(stats).unwrap_or_default())
    }

    /// Dead letters as a broker gives them.
    ///
    /// # Errors
    /// When NATS does not answer, or refuses.
    pub(super) fn dead(&self, topic: &str, from: u64, limit: usize) -> Result<Value, Failure> {
        // One more than is asked for: is there a next page?
        let asked = self.admin.dead_letters(topic, from, limit.saturating_add(1));
        let letters = self.runtime.block_on(asked).map_err(|error| self.refused(&error))?;
        let next = letters.get(limit).map(|letter| letter.id);
        let shown: Vec<Value> = letters.iter().take(limit).map(shown).collect();
        Ok(json!({ "dead": shown, "next": next }))
    }

    /// Gives dead letters back.
    ///
    /// # Errors
    /// When NATS does not answer, or refuses.
    pub(super) fn replay(&self, topic: &str, ids: &[u64]) -> Result<Given, Failure> {
        let selection = selection(ids);
        let replayed = self.runtime.block_on(self.admin.replay_dead(topic, &selection));
        let replayed = replayed.map_err(|error| self.refused(&error))?;
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Ok(Given {
            letters: count(replayed.letters),
            without_group: count(replayed.without_group),
            without_room: count(replayed.without_room),
            left: 0,
        })
    }

    /// Throws dead letters away.
    ///
    /// # Errors
    /// When NATS does not answer, or refuses.
    pub(super) fn purge(&self, topic: &str, ids: &[u64]) -> Result<u64, Failure> {
        let selection = selection(ids);
        let purged = self.runtime.block_on(self.admin.purge_dead(topic, &selection));
        Ok(u64::try_from(purged.map_err(|error| self.refused(&error))?).unwrap_or(u64::MAX))
    }

    fn refused(&self, error: &NatsError) -> Failure {
        let exit = match error {
            NatsError::UnknownTopic(_) => Exit::Data,
            _ => Exit::Unavailable,
        };
        Failure::new(exit, format!("{}: {}", self.url, causes(error)))
    }
}

fn selection(ids: &[u64]) -> DeadSelection {
    if ids.is_empty() { DeadSelection::Oldest(usize::MAX) } else { DeadSelection::Ids(ids.to_vec()) }
}

fn shown(letter: &DeadLetter) -> Value {
    let spelled =
        |at: Millis| time::format(i64::try_from(at.0).unwrap_or(i64::MAX).saturating_mul(1_000_000));
    let messages = messages::of(&letter.frame, &letter.rows).unwrap_or_default();
    let messages: Vec<Value> = messages.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
    json!({
        "id": letter.id, "group": &*letter.group, "offset": letter.offset, "reason": letter.reason.to_string(),
        "attempts": letter.attempts, "published_at": spelled(letter.published_at), "died_at": spelled(letter.died_at),
        "messages_count": letter.rows.len(), "messages": messages,
    })
}
