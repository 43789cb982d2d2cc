//! Queries to NATS, in its own protocol.
#![expect(clippy::indexing_slicing, reason = "a key that JSON lacks reads as null")]

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gpuvitals_core::{causes, time};
use gpuvitals_queue::Millis;
use gpuvitals_queue::nats::{NatsAdmin, NatsDeadLetter, NatsError};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::messages;
use super::place::Place;
use crate::failure::{Exit, Failure};

/// NATS that is asked.
pub(super) struct Nats {
    pub admin: NatsAdmin,
    runtime: Runtime,
    place: Place,
}

impl Nats {
    /// The server there.
    ///
    /// # Errors
    /// If the runtime cannot be created.
    pub(super) fn new(place: &Place) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|e| Failure::io("cannot start the runtime", e))?;
        Ok(Self { admin: NatsAdmin::new(&place.url, &place.access), runtime, place: place.clone() })
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// When NATS does not answer, or refuses.
    pub(super) fn ask<T>(&self, asked: impl Future<Output = Result<T, NatsError>>) -> Result<T, Failure> {
        self.runtime.block_on(asked).map_err(|error| self.refused(&error))
    }

    /// Statistics of a topic.
    ///
    /// # Errors
    /// If it is missing; if NATS does not answer, or refuses.
    pub(super) fn topic(&self, topic: &str) -> Result<Value, Failure> {
        Ok(json!(self.ask(self.admin.stats(topic))?))
    }

    /// Dead letters as a broker gives them.
    ///
    /// # Errors
    /// When NATS does not answer, or refuses.
    pub(super) fn dead(&self, topic: &str, from: u64, limit: usize) -> Result<Value, Failure> {
        // One more than is asked for: is there a next page?
        let letters = self.ask(self.admin.dead_letters(topic, from, limit.saturating_add(1)))?;
        let next = letters.get(limit).map(|letter| letter.id);
        let shown: Vec<Value> = letters.iter().take(limit).map(shown).collect();
        Ok(json!({ "dead": shown, "next": next }))
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
    // An unreadable payload is shown as it was published, as a broker does.
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
