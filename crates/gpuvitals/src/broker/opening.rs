//! How the queue is opened.

use gpuvitals_queue::{Clock, Drain, Durability, Queue, QueueConfig, WhenFull};

use crate::config::{self, Config};
use crate::failure::{Exit, Failure};

/// Part of the grace that the queue may take to drain; the rest is that of the connections, or of the store behind it.
const QUEUE_SHARE: u32 = 2;

/// Opens the queue, in memory or from its directory.
///
/// # Errors
/// When the directory cannot be opened.
pub(crate) async fn open(config: &Config) -> Result<Queue, Failure> {
    if config.broker.persistence {
        return Err(Failure::new(
            Exit::Config,
            "configuration: broker.persistence: this version keeps the queue in memory only",
        ));
    }
    Ok(Queue::in_process(queue_config(config), Clock::system()))
}

fn durability(setting: config::Durability) -> Durability {
    match setting {
        config::Durability::Memory => Durability::Memory,
        config::Durability::Written => Durability::Written,
        config::Durability::Synced => Durability::Synced,
    }
}

/// The queue's own terms.
fn queue_config(config: &Config) -> QueueConfig {
    let settings = &config.broker;
    QueueConfig {
        max_messages: settings.messages_max,
        max_bytes: settings.bytes_max,
        ack_timeout: settings.ack_timeout,
        max_retries: settings.max_retries,
        when_full: match settings.when_full {
            config::WhenFull::Refuse => WhenFull::Refuse,
            config::WhenFull::DropOldest => WhenFull::DropOldest,
        },
        durability: durability(settings.durability),
        topic_durability: settings
            .topics
            .iter()
            .filter_map(|(name, terms)| Some((name.clone(), durability(terms.durability?))))
            .collect(),
        memory_max: settings.memory_max,
        drain: if settings.persistence { Drain::Return } else { Drain::Deliver },
        drain_timeout: config.shutdown.grace / QUEUE_SHARE,
        ..QueueConfig::default()
    }
}
