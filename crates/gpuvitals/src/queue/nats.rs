//! NATS is asked by its own protocol.
#![expect(clippy::indexing_slicing, reason = "a key that JSON lacks reads as null")]

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gpuvitals_core::{causes, time};
use gpuvitals_queue::Millis;
use gpuvitals_queue::nats::{NatsAdmin, NatsDeadLetter, NatsError, NatsRedriven};
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

    /// Publishes dead letters to their topic again.
    ///
    /// # Errors
    /// When NATS does not answer, or refuses.
    pub(super) fn replay(&self, topic: &str, ids: &[u64]) -> Result<Given, Failure> {
        let redriven = self.runtime.block_on(self.admin.redrive(topic, ids));
        let NatsRedriven { letters, without_room } = redriven.map_err(|error| self.refused(&error))?;
        Ok(Given { letters, without_room, ..Given::default() })
    }

    /// Deletes dead letters.
    ///
    /// # Errors
    /// When NATS does not answer, or refuses.
    pub(super) fn purge(&self, topic: &str, ids: &[u64]) -> Result<u64, Failure> {
        self.runtime.block_on(self.admin.purge_dead(topic, ids)).map_err(|error| self.refused(&error))
    }

    /// Ends a group of a topic.
    ///
    /// # Errors
    /// When there is no such group; when NATS does not answer, or refuses.
    pub(super) fn remove_group(&self, topic: &str, group: &str) -> Result<(), Failure> {
        self.runtime.block_on(self.admin.remove_group(topic, group)).map_err(|error| self.refused(&error))
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

fn shown(letter: &NatsDeadLetter) -> Value {
    let spelled =
        |at: Millis| time::format(i64::try_from(at.0).unwrap_or(i64::MAX).saturating_mul(1_000_000));
    let frame = &letter.frame;
    let mut shown = json!({
        "id": letter.id, "died_at": spelled(letter.died_at), "messages_count": frame.count,
        "content_type": frame.content_type, "encoding": frame.encoding,
    });
    if let Some(dead) = &frame.dead {
        shown["group"] = (*dead.group).into();
        shown["offset"] = dead.offset.into();
        shown["reason"] = (*dead.reason).into();
        shown["attempts"] = dead.attempts.into();
        shown["published_at"] = spelled(dead.published_at).into();
    }
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
    use gpuvitals_queue::{ContentType, Frame};

    use super::*;

    #[test]
    fn a_letter_that_cannot_be_read_is_shown_as_it_was_published() {
        let letter = |payload: &'static [u8]| NatsDeadLetter {
            id: 1,
            frame: Frame::new(ContentType::Json, 1, payload),
            died_at: Millis(1),
        };
        let good = shown(&letter(b"{\"a\": 1}"));
        assert_eq!((&good["messages"], good.get("payload_base64")), (&json!([{"a": 1}]), None));
        let bad = shown(&letter(b"no json"));
        assert_eq!((&bad["payload_base64"], bad.get("messages")), (&"bm8ganNvbg==".into(), None));
        assert_eq!((&bad["messages_count"], &bad["content_type"]), (&1.into(), &"json".into()));
        assert_eq!(bad.get("reason"), None, "nobody gave one");
    }
}
