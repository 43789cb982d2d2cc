//! Dead letters: a stream of their own beside each topic's.

use super::error::NatsError;
use super::head::{self, Remnant};
use super::names::Topic;
use super::producer;
use super::session::Session;
use crate::broker::Failure;
use crate::frame::{Frame, Millis};

/// Keeps the message at `sequence` as a dead letter. One that was kept before, by somebody who then died, is
/// not kept twice; one that was replayed is a message of its own.
pub(super) async fn write(
    session: &Session,
    dead: &Topic,
    sequence: u64,
    frame: &Frame,
    remnant: &Remnant,
    reason: &Failure,
    died_at: Millis,
) -> Result<(), NatsError> {
    let headers = head::of_dead(frame, remnant, reason, died_at);
    let Remnant { group, published_at, .. } = remnant;
    let id = format!("dead-{group}-{}-{sequence}", published_at.0);
    let sent = producer::publish(session, &dead.subject, headers, Some(id), &frame.payload).await;
    sent.map(drop).map_err(|refusal| refusal.into_error(&dead.subject))
}
