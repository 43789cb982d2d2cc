//! How the queue is opened.

use gpuvitals_queue::{Clock, Drain, Durability, OpenError, Queue, QueueConfig, WhenFull};

use super::settings;
use crate::config::Config;
use crate::failure::{Exit, Failure};

/// Part of the grace that the queue may take to drain; the rest is that of the connections, or of the store behind it.
const QUEUE_SHARE: u32 = 2;

/// Opens the queue, in memory or from its directory.
///
/// # Errors
/// If the directory cannot be used, or its contents cannot be read.
pub(crate) async fn open(config: &Config) -> Result<Queue, Failure> {
    let terms = queue_config(config);
    for what in config.broker.ineffective_settings() {
        tracing::warn!(
            what,
            "nothing is kept on disk; broker.persistence_path (--persistence-path) names a directory"
        );
    }
    let Some(path) = config.broker.directory() else {
        tracing::info!("the queue is in memory and ends with this process");
        return Ok(Queue::in_process(terms, Clock::system()));
    };
    let (queue, opened) = Queue::open(path, terms, Clock::system()).await.map_err(|error| {
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

fn durability(setting: settings::Durability) -> Durability {
    match setting {
        settings::Durability::Memory => Durability::Memory,
        settings::Durability::Written => Durability::Written,
        settings::Durability::Synced => Durability::Synced,
    }
}

/// The queue's own settings.
fn queue_config(config: &Config) -> QueueConfig {
    let settings = &config.broker;
    QueueConfig {
        max_messages: settings.messages_max,
        max_bytes: settings.bytes_max.0,
        ack_timeout: settings.ack_timeout,
        max_retries: settings.max_retries,
        when_full: match settings.when_full {
            settings::WhenFull::Refuse => WhenFull::Refuse,
            settings::WhenFull::DropOldest => WhenFull::DropOldest,
        },
        durability: durability(settings.durability()),
        drain: if settings.directory().is_some() { Drain::Return } else { Drain::Deliver },
        drain_timeout: config.shutdown.grace / QUEUE_SHARE,
        ..QueueConfig::default()
    }
}
