//! Settings of the queue.

use std::time::Duration;

use clap::ValueEnum;

use crate::broker::FrameDurability;

/// Treatment of a publish when its topic has reached its bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum WhenFull {
    /// The publisher gets an error; nothing that is held is lost. Counted as refused.
    #[default]
    Refuse,
    /// The oldest frames make room. Counted as dropped.
    DropOldest,
}

/// Treatment of held messages at shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drain {
    /// Take no more, and continue delivering until every group has everything: for a queue in memory, which
    /// loses the rest. One on disk does as with [`Drain::Return`].
    #[default]
    Deliver,
    /// Deliver no more, and wait only for the acknowledgements of delivered messages.
    Return,
}

/// Settings of a queue; the bounds apply to each topic.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// Most messages a topic holds.
    pub max_messages: u64,
    /// Most bytes a topic holds, each frame counted by [`crate::Frame::cost_bytes`].
    pub max_bytes: u64,
    /// Treatment at either bound.
    pub when_full: WhenFull,
    /// Time that a consumer has to acknowledge a delivery, unless it asked for another time.
    pub ack_timeout: Duration,
    /// Longest duration of one lease, extensions included.
    pub max_lease: Duration,
    /// Deliveries after the first one failed; then the message is a dead letter.
    pub max_retries: u32,
    /// The longest delay before the first redelivery. It doubles with every further one; the actual delay is
    /// drawn between zero and that (full jitter).
    pub backoff_base: Duration,
    /// Upper limit of the doubling.
    pub backoff_cap: Duration,
    /// Most messages a topic keeps as dead letters; beyond it the oldest are dropped, counted.
    pub max_dead_messages: u64,
    /// Most bytes a topic keeps as dead letters.
    pub max_dead_bytes: u64,
    /// Most topics, without those of dead letters.
    pub max_topics: usize,
    /// Most groups of a topic.
    pub max_groups: usize,
    /// Most producers whose sequences are remembered, over all topics; beyond it the longest silent one of
    /// the topic with most is forgotten.
    pub max_producers: usize,
    /// Treatment of held messages at shutdown.
    pub drain: Drain,
    /// How long a shutdown waits for it.
    pub drain_timeout: Duration,
    /// Seeds the jitter of the backoff.
    pub seed: u64,
    /// Durability of a frame before its publish is answered and it is visible, if there is a log.
    pub durability: FrameDurability,
    /// Longest time that written records wait for a sync: the loss at a power cut for [`FrameDurability::Written`]
    /// frames and for acknowledgements.
    pub sync_every: Duration,
    /// Most bytes of memory for frames that are on disk too. The others are read back when they are
    /// delivered.
    pub memory_max: u64,
    /// Bytes of a segment of the log: space is released in units of this size. 4 KiB to 1 GiB; a frame must
    /// fit.
    pub segment_len: u32,
    /// Segments of the log kept ready beside those in use, zeroed ahead of time, so that no publish waits for
    /// a new file. Each takes [`QueueConfig::segment_len`] of the disk. At most 16.
    pub spare_segments: u32,
    /// Most bytes of records that wait to be written to the log, publishers' frames included: beyond it these
    /// are refused as at the topic's bound. A single larger frame may wait alone.
    pub unwritten_max: u32,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            max_messages: 2_000_000,
            max_bytes: 256 << 20,
            when_full: WhenFull::Refuse,
            ack_timeout: Duration::from_secs(5),
            max_lease: Duration::from_mins(10),
            max_retries: 3,
            backoff_base: Duration::from_millis(500),
            backoff_cap: Duration::from_secs(30),
            max_dead_messages: 100_000,
            max_dead_bytes: 64 << 20,
            max_topics: 1_024,
            max_groups: 64,
            max_producers: 16_384,
            drain: Drain::Deliver,
            drain_timeout: Duration::from_secs(5),
            seed: 0x6770_7576,
            durability: FrameDurability::Synced,
            sync_every: Duration::from_millis(100),
            memory_max: 64 << 20,
            segment_len: 16 << 20,
            spare_segments: 1,
            unwritten_max: 16 << 20,
        }
    }
}
