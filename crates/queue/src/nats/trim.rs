//! Removing from a stream what all its consumers have acknowledged.
//!
//! JetStream's own way, retention by interest, drops what is published while there is no consumer, acknowledged or
//! not. Here a consumer asks now and then how far all of them are, and purges up to the slowest. Where that fails,
//! the stream fills and publishers are told, so nothing is lost.
//!
//! A trim belongs to one life of a group, and so to one of its stream: in another the places begin anew.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::Instant;

use super::error::NatsError;
use super::session::Session;
use super::shelf;

/// Between two trims, at least.
const PERIOD: Duration = Duration::from_secs(4);

/// When a consumer looked last, and what it found.
#[derive(Debug)]
pub(super) struct Trim {
    /// Something was acknowledged since.
    acknowledged: Arc<AtomicBool>,
    due: Option<Instant>,
    /// Up to here it was purged.
    floor: u64,
    /// It is not permitted.
    is_off: bool,
}

impl Trim {
    /// Nothing is trimmed before `acknowledged`.
    pub(super) fn new(acknowledged: Arc<AtomicBool>) -> Self {
        Self { acknowledged, due: None, floor: 0, is_off: false }
    }

    /// Looks and purges, if it is time.
    pub(super) async fn run(&mut self, session: &Session, stream: &str) {
        let now = Instant::now();
        if self.is_off
            || self.due.is_some_and(|due| now < due)
            || !self.acknowledged.swap(false, Ordering::Relaxed)
        {
            return;
        }
        self.due = Some(now + PERIOD);
        match self.purge(session, stream).await {
            Ok(()) => {}
            Err(error @ NatsError::Denied(_)) => {
                self.is_off = true;
                tracing::warn!(stream, %error, "what all groups have acknowledged stays in the stream");
            }
            Err(error) => {
                self.acknowledged.store(true, Ordering::Relaxed);
                tracing::debug!(stream, %error, "the stream was not trimmed");
            }
        }
    }

    async fn purge(&mut self, session: &Session, stream: &str) -> Result<(), NatsError> {
        let Some(groups) = shelf::groups(session, stream).await? else { return Ok(()) };
        let Some(floor) = groups.iter().map(|group| group.ack_floor.stream_sequence).min() else {
            return Ok(());
        };
        if floor <= self.floor {
            return Ok(());
        }
        let up_to = json!({ "seq": floor.saturating_add(1) });
        session.ask::<IgnoredAny>("a purge", &format!("STREAM.PURGE.{stream}"), &up_to).await?;
        self.floor = floor;
        Ok(())
    }
}
