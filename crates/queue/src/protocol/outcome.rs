//! Outcomes of requests, on the network and in the broker.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use super::terms::{delivery_id, delivery_id_of, millis};
use super::v1;
use crate::broker::{FrameDurability, PublishError, Receipt, SettleError, SubscribeError};

/// Metadata key of a failed unary call's retry delay: decimal milliseconds.
pub(crate) const RETRY_AFTER_MS: &str = "retry-after-ms";

/// Metadata key in the answer to a publish stream: the largest payload, in bytes.
pub(crate) const MAX_FRAME_BYTES: &str = "max-frame-bytes";

/// Retry delay for a topic at its bound, unless the broker knows better.
const WHEN_FULL: Duration = Duration::from_millis(250);
/// Retry delay for a queue that stops or cannot store.
const WHEN_AWAY: Duration = Duration::from_secs(1);

/// An error and its causes in one line.
fn in_full(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause: &&(dyn Error + 'static)| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// A refused frame, as sent over the network.
pub(crate) fn refusal(error: &PublishError) -> v1::Refusal {
    let (code, retry_after) = match error {
        PublishError::Full { retry_after, .. } => {
            (Code::ResourceExhausted, Some(retry_after.unwrap_or(WHEN_FULL)))
        }
        PublishError::TooManyTopics { .. } => (Code::ResourceExhausted, None),
        PublishError::SequenceTooOld { .. } => (Code::FailedPrecondition, None),
        PublishError::Closed | PublishError::Unavailable { .. } => (Code::Unavailable, Some(WHEN_AWAY)),
        PublishError::Storage { passes, .. } => (Code::Internal, passes.then_some(WHEN_AWAY)),
        PublishError::Cancelled => (Code::Aborted, Some(WHEN_AWAY)),
        PublishError::Topic(_)
        | PublishError::ProducerId { .. }
        | PublishError::NoMessages
        | PublishError::Malformed { .. } => (Code::InvalidArgument, None),
        PublishError::Refused { .. } => (Code::Unknown, None),
        PublishError::Denied { .. } => (Code::PermissionDenied, None),
        PublishError::TooLarge { .. } => (Code::OutOfRange, None),
    };
    // If the client's error adds the rest itself, only the reason is sent.
    let message = match error {
        PublishError::Storage { reason, .. }
        | PublishError::Unavailable { reason }
        | PublishError::Denied { reason }
        | PublishError::Malformed { reason }
        | PublishError::Refused { reason } => reason.to_string(),
        error => in_full(error),
    };
    v1::Refusal {
        code: u32::try_from(i32::from(code)).unwrap_or_default(),
        message,
        retry_after_ms: retry_after
            .map_or(0, |after| u32::try_from(millis(after)).unwrap_or(u32::MAX).max(1)),
    }
}

/// The same as the status of a unary call.
pub(crate) fn status_of(refusal: v1::Refusal) -> Status {
    let code = i32::try_from(refusal.code).map_or(Code::Unknown, Code::from);
    let mut status = Status::new(code, refusal.message);
    if refusal.retry_after_ms > 0 {
        status.metadata_mut().insert(RETRY_AFTER_MS, MetadataValue::from(refusal.retry_after_ms));
    }
    status
}

/// A remote queue's refusal of a frame with this many messages and bytes.
fn publish_error(topic: &Arc<str>, (messages, bytes): (u32, u64), refusal: v1::Refusal) -> PublishError {
    let retry_after = Some(Duration::from_millis(refusal.retry_after_ms.into())).filter(|at| !at.is_zero());
    let reason: Arc<str> = refusal.message.into();
    match i32::try_from(refusal.code).map_or(Code::Unknown, Code::from) {
        Code::ResourceExhausted if retry_after.is_some() => {
            PublishError::full(Arc::clone(topic), retry_after)
        }
        Code::OutOfRange => PublishError::TooLarge { messages, bytes },
        Code::FailedPrecondition if retry_after.is_none() => PublishError::SequenceTooOld { reason },
        Code::Internal | Code::DataLoss => PublishError::Storage { reason, passes: retry_after.is_some() },
        _ if retry_after.is_some() => PublishError::Unavailable { reason },
        Code::PermissionDenied | Code::Unauthenticated => PublishError::Denied { reason },
        Code::InvalidArgument => PublishError::Malformed { reason },
        _ => PublishError::Refused { reason },
    }
}

fn receipt(receipt: &Receipt) -> v1::Receipt {
    let durability = match receipt.durability {
        FrameDurability::Memory => v1::Durability::Memory,
        FrameDurability::Written => v1::Durability::Written,
        FrameDurability::Synced => v1::Durability::Synced,
    };
    v1::Receipt { offset: receipt.offset, durability: durability.into(), duplicate: receipt.duplicate }
}

/// The answer to one frame of a stream.
pub(crate) fn reply(outcome: &Result<Receipt, PublishError>) -> v1::PublishReply {
    let outcome = match outcome {
        Ok(taken) => v1::publish_reply::Outcome::Receipt(receipt(taken)),
        Err(error) => v1::publish_reply::Outcome::Refusal(refusal(error)),
    };
    v1::PublishReply { outcome: Some(outcome) }
}

/// A remote queue's answer to a frame with this many messages and bytes.
pub(crate) fn outcome_of(
    topic: &Arc<str>,
    size: (u32, u64),
    reply: v1::PublishReply,
) -> Result<Receipt, PublishError> {
    let strange =
        |what: &str| Err(PublishError::Unavailable { reason: format!("answer without {what}").into() });
    match reply.outcome {
        Some(v1::publish_reply::Outcome::Receipt(receipt)) => {
            let durability = match receipt.durability() {
                v1::Durability::Memory => FrameDurability::Memory,
                v1::Durability::Written => FrameDurability::Written,
                v1::Durability::Synced => FrameDurability::Synced,
                v1::Durability::Unspecified => return strange("a known durability"),
            };
            Ok(Receipt { offset: receipt.offset, durability, duplicate: receipt.duplicate })
        }
        Some(v1::publish_reply::Outcome::Refusal(refusal)) => Err(publish_error(topic, size, refusal)),
        None => strange("an outcome"),
    }
}

/// The status of a refused subscription.
pub(crate) fn subscribe_status(error: &SubscribeError) -> Status {
    let code = match error {
        SubscribeError::Topic(_) | SubscribeError::Group(_) => Code::InvalidArgument,
        SubscribeError::TooManyTopics { .. } | SubscribeError::TooManyGroups { .. } => {
            Code::ResourceExhausted
        }
        SubscribeError::Closed | SubscribeError::Storage { .. } => Code::Unavailable,
    };
    Status::new(code, in_full(error))
}

/// The outcome of a request of a consumer that is still subscribed.
pub(crate) fn settled(request: u64, outcome: Result<u64, SettleError>) -> v1::Settled {
    let problem = |kind: v1::ProblemKind, id, more| v1::Problem {
        kind: kind.into(),
        id: Some(delivery_id(id)),
        more: u32::try_from(more).unwrap_or(u32::MAX),
    };
    let (messages, problem) = match outcome {
        Ok(messages) => (messages, None),
        Err(SettleError::Unknown { id, more }) => (0, Some(problem(v1::ProblemKind::Unknown, id, more))),
        Err(SettleError::LeaseOver { id, more }) => (0, Some(problem(v1::ProblemKind::LeaseOver, id, more))),
        Err(SettleError::NotSubscribed | SettleError::ConnectionLost) => (0, None),
    };
    v1::Settled { request, messages, problem }
}

/// A remote queue's answer to a request.
pub(crate) fn settle_error(settled: v1::Settled) -> Result<u64, SettleError> {
    let Some(problem) = settled.problem else { return Ok(settled.messages) };
    let more = usize::try_from(problem.more).unwrap_or(usize::MAX);
    let Ok(id) = delivery_id_of(problem.id) else { return Err(SettleError::ConnectionLost) };
    Err(match problem.kind() {
        v1::ProblemKind::LeaseOver => SettleError::LeaseOver { id, more },
        v1::ProblemKind::Unknown | v1::ProblemKind::Unspecified => SettleError::Unknown { id, more },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::DeliveryId;
    use crate::name::NameError;

    #[test]
    fn a_refusal_means_the_same_at_the_other_end() {
        let topic: Arc<str> = "t".into();
        let full = |ms: Option<u64>| PublishError::full("t", ms.map(Duration::from_millis));
        let storage = |passes| PublishError::Storage { reason: "disk full".into(), passes };
        let refused = |reason: &str| PublishError::Refused { reason: reason.into() };
        let malformed = |reason: &str| PublishError::Malformed { reason: reason.into() };
        for (here, there) in [
            (full(None), full(Some(250))),
            (full(Some(9)), full(Some(9))),
            (storage(true), storage(true)),
            (storage(false), storage(false)),
            (PublishError::Closed, PublishError::Unavailable { reason: "queue is shutting down".into() }),
            (
                PublishError::Topic(NameError::Empty),
                malformed("cannot publish to a topic of this name: name is empty"),
            ),
            (PublishError::NoMessages, malformed("frame has no messages")),
            (
                PublishError::TooLarge { messages: 7, bytes: 99 },
                PublishError::TooLarge { messages: 7, bytes: 99 },
            ),
            (PublishError::TooManyTopics { limit: 3 }, refused("queue has its 3 topics already")),
            (
                PublishError::Denied { reason: "no right".into() },
                PublishError::Denied { reason: "no right".into() },
            ),
        ] {
            let sent = reply(&Err(here.clone()));
            let came = outcome_of(&topic, (7, 99), sent).unwrap_err();
            assert_eq!(came, there);
            assert_eq!(came.is_retryable(), here.is_retryable() || here == PublishError::Closed, "{here}");
        }
    }

    #[test]
    fn what_settling_did_means_the_same_at_the_other_end() {
        let id = DeliveryId { offset: 1, token: 3 };
        for outcome in
            [Ok(7), Err(SettleError::Unknown { id, more: 4 }), Err(SettleError::LeaseOver { id, more: 0 })]
        {
            assert_eq!(settle_error(settled(1, outcome)), outcome);
        }
    }

    #[test]
    fn a_unary_refusal_says_in_its_metadata_when_to_come_again() {
        let full = PublishError::full("t", None);
        let status = status_of(refusal(&full));
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.metadata().get(RETRY_AFTER_MS).unwrap().to_str().unwrap(), "250");
        assert!(status_of(refusal(&PublishError::NoMessages)).metadata().get(RETRY_AFTER_MS).is_none());
    }
}
