//! What streams and consumers are made with.

use std::time::Duration;

use crate::config::{QueueConfig, WhenFull};
use crate::link::Backoff;

/// What streams and consumers are made with. Those that exist are used as they are.
#[derive(Clone, Debug)]
pub struct NatsSettings {
    /// Servers that keep a copy of every message. `None`: 3 where the server is one of a cluster, otherwise 1.
    pub replicas: Option<usize>,
    /// Most bytes a topic holds. JetStream reserves them when the stream is made.
    pub max_bytes: u64,
    /// What happens at the bound.
    pub when_full: WhenFull,
    /// For how long a repeated publish is recognised.
    pub duplicate_window: Duration,
    /// How long a consumer has to acknowledge, unless it asks for another time.
    pub ack_timeout: Duration,
    /// How often a message is delivered again after its first delivery; then it is a dead letter.
    pub max_retries: u32,
    /// The waits before redeliveries.
    pub backoff: Backoff,
    /// Most bytes kept as dead letters of a topic; beyond it the oldest go.
    pub max_dead_bytes: u64,
}

impl Default for NatsSettings {
    fn default() -> Self {
        let queue = QueueConfig::default();
        Self {
            replicas: None,
            max_bytes: 1 << 30,
            when_full: queue.when_full,
            duplicate_window: Duration::from_mins(2),
            ack_timeout: queue.ack_timeout,
            max_retries: queue.max_retries,
            backoff: Backoff { base: queue.backoff_base, cap: queue.backoff_cap },
            max_dead_bytes: queue.max_dead_bytes,
        }
    }
}
