//! How the queue is opened.

use std::time::Duration;

use gpuvitals_queue::{BrokerSettings, OpenError, Queue, QueueClock};

use crate::failure::{Exit, Failure};

/// Opens the queue, in memory or from its directory.
///
/// # Errors
/// If the directory cannot be used, or its contents cannot be read.
pub(crate) async fn open(settings: &BrokerSettings, grace: Duration) -> Result<Queue, Failure> {
    let terms = settings.queue(grace);
    for what in settings.ineffective_settings() {
        tracing::warn!(what, "the queue keeps nothing on disk, and this setting has no effect");
    }
    let Some(path) = settings.directory() else {
        tracing::info!("the queue is in memory and ends with this process");
        return Ok(Queue::in_process(terms, QueueClock::system()));
    };
    let (queue, opened) = Queue::open(path, terms, QueueClock::system()).await.map_err(|error| {
        let exit = match &error {
            OpenError::Locked { .. } => Exit::Unavailable,
            OpenError::Directory { source, .. } => Exit::of(source),
            OpenError::Version { .. } => Exit::Data,
            _ => Exit::Io,
        };
        Failure::caused(exit, format!("cannot open the queue's directory {}", path.display()), error)
    })?;
    tracing::info!(
        dir = %path.display(), frames = opened.frames, messages = opened.messages, dead_letters = opened.dead_letters,
        records = opened.records, bytes = opened.bytes, "the queue is open"
    );
    if let Some(torn) = &opened.torn {
        tracing::warn!("{torn}");
    }
    for damage in &opened.damage {
        tracing::error!(damage, "something stored is damaged, and messages are gone; the rest is served");
    }
    Ok(queue)
}
