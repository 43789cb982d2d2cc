//! Headers of a publish by HTTP, as the queue reads them; the facts of a dead letter also in NATS.

use std::borrow::Cow;

use axum::http::HeaderName;
use serde::{Deserialize, Serialize};

use crate::frame::{DeadFacts, Millis};

/// The producer that a request comes from.
pub(crate) const PRODUCER: HeaderName = HeaderName::from_static("x-gpuvitals-producer");
/// Which of its requests it is.
pub(crate) const SEQUENCE: HeaderName = HeaderName::from_static("x-gpuvitals-sequence");
/// The facts of a dead letter, as a JSON object.
pub(crate) const DEAD: HeaderName = HeaderName::from_static("x-gpuvitals-dead");

/// `content-type` of one message, or an array.
pub(crate) const JSON: &str = "application/json";
/// `content-type` of rows in binary form.
pub(crate) const BATCH: &str = "application/vnd.gpuvitals.batch";

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Facts<'a> {
    topic: Cow<'a, str>,
    group: Cow<'a, str>,
    offset: u64,
    attempts: u32,
    reason: Cow<'a, str>,
    published_at_ms: u64,
}

/// The facts of a dead letter as a header's value.
pub(crate) fn dead_text(dead: &DeadFacts) -> String {
    let facts = Facts {
        topic: (*dead.topic).into(),
        group: (*dead.group).into(),
        offset: dead.offset,
        attempts: dead.attempts,
        reason: (*dead.reason).into(),
        published_at_ms: dead.published_at.0,
    };
    // Texts and numbers can always be written.
    serde_json::to_string(&facts).unwrap_or_default()
}

/// The facts that a header's value says.
///
/// # Errors
///
/// What is wrong with it, in words.
pub(crate) fn dead_of(text: &[u8]) -> Result<DeadFacts, String> {
    let facts: Facts<'_> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    Ok(DeadFacts {
        topic: facts.topic.into(),
        group: facts.group.into(),
        offset: facts.offset,
        attempts: facts.attempts,
        reason: DeadFacts::shortened(&facts.reason),
        published_at: Millis(facts.published_at_ms),
    })
}
