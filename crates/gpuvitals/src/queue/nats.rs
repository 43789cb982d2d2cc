//! NATS is asked by its own protocol.
#![expect(clippy::indexing_slicing, reason = "a key that JSON lacks reads as null")]

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gpuvitals_core::{causes, time};
use gpuvitals_queue::nats::{NatsAdmin, NatsError};
use gpuvitals_queue::{DeadLetter, DeadSelection, Millis};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::admin::Given;
use super::{Place, messages};
use crate::failure::{Exit, Failure};

/// NATS that is asked.
pub(super) struct Nats {
    admin: NatsAdmin,
    runtime: Runtime,
    place: Place,
}

impl Nats {
    /// The server there.
    ///
    /// # Errors
    /// When there is no runtime.
    pub(super) fn new(place: &Place) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|e| Failure::io("cannot start the runtime", e))?;
        Ok(Self { admin: NatsAdmin::new(&place.url, &place.access), runtime, place: place.clone() })
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

    /// What ends a group, which is not done here.
    ///
    /// # Errors
    /// When there is no such topic; when NATS does not answer, or refuses.
    pub(super) fn no_removal(&self, topic: &str) -> Result<Failure, Failure> {
        let numbers = self.topic(topic)?;
        let stream = numbers["stream"].as_str().unwrap_or_default();
        let text = format!(
            "a group in NATS is a consumer of its stream: `nats consumer rm {stream}` asks which and ends it"
        );
        Ok(Failure::new(Exit::Usage, text))
    }

    fn refused(&self, error: &NatsError) -> Failure {
        let text = format!("{}: {}", self.place.url, causes(error));
        match error {
            NatsError::UnknownTopic(_) => {
                Failure::new(Exit::Data, format!("{text}; gpuvitals queue topics lists what there is"))
            }
            NatsError::Credentials { .. } | NatsError::Denied(_) => self.place.denied(&text),
            _ => Failure::new(Exit::Unavailable, text),
        }
    }
}

fn selection(ids: &[u64]) -> DeadSelection {
    if ids.is_empty() { DeadSelection::Oldest(usize::MAX) } else { DeadSelection::Ids(ids.to_vec()) }
}

fn shown(letter: &DeadLetter) -> Value {
    let spelled =
        |at: Millis| time::format(i64::try_from(at.0).unwrap_or(i64::MAX).saturating_mul(1_000_000));
    let frame = &letter.frame;
    let mut shown = json!({
        "id": letter.id, "group": &*letter.group, "offset": letter.offset, "reason": letter.reason.to_string(),
        "attempts": letter.attempts, "published_at": spelled(letter.published_at), "died_at": spelled(letter.died_at),
        "messages_count": frame.count, "content_type": frame.content_type, "encoding": frame.encoding,
    });
    // What cannot be read is given as it was published, as a broker does.
    match messages::of(frame) {
        Ok(messages) => {
            let messages = messages.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok());
            shown["messages"] = messages.collect();
        }
        Err(_) => shown["payload_base64"] = BASE64_STANDARD.encode(&frame.payload).into(),
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gpuvitals_queue::{ContentType, Failure, Frame};

    use super::*;

    #[test]
    fn a_letter_whose_messages_cannot_be_read_is_shown_as_it_was_published() {
        let letter = |payload: &'static [u8]| DeadLetter {
            id: 1,
            topic: "t".into(),
            group: "g".into(),
            offset: 7,
            frame: Arc::new(Frame::new(ContentType::Json, 1, payload)),
            count: 1,
            reason: Failure::AckTimeout,
            attempts: 4,
            published_at: Millis(0),
            first_delivered_at: Millis(0),
            died_at: Millis(1),
        };
        let good = shown(&letter(b"{\"a\": 1}"));
        assert_eq!((&good["messages"], good.get("payload_base64")), (&json!([{"a": 1}]), None));
        let bad = shown(&letter(b"no json"));
        assert_eq!((&bad["payload_base64"], bad.get("messages")), (&"bm8ganNvbg==".into(), None));
        assert_eq!((&bad["messages_count"], &bad["content_type"]), (&1.into(), &"json".into()));
    }
}
