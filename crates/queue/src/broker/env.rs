//! What every transition of the state machine shares: time, settings, chance, and whom to wake.

use std::collections::BTreeMap;
use std::time::Duration;

use gpuvitals_log::Place;

use super::entries::HeldFrame;
use super::facts::TopicFacts;
use super::given_up::GivenUp;
use super::terms::{FrameDurability, GroupId, Wake};
use crate::config::{QueueConfig, WhenFull};
use crate::frame::Millis;

/// How far the queue is on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Takes and gives.
    Open,
    /// Takes nothing more, gives what is left.
    Sealed,
    /// Takes and gives nothing.
    Stopped,
}

/// What a topic may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) when_full: WhenFull,
}

#[derive(Debug)]
pub(super) struct Env {
    pub(super) config: QueueConfig,
    pub(super) now: Millis,
    pub(super) phase: Phase,
    /// No deadline is earlier than this one.
    pub(super) earliest: Option<Millis>,
    pub(super) wakes: Vec<Wake>,
    /// Whether there is a log to keep facts and frames.
    pub(super) keeps: bool,
    /// The records of a log are being applied.
    pub(super) reads_log: bool,
    pub(super) facts: TopicFacts,
    /// Frames that take memory although they are on disk too, and their bytes.
    pub(super) cached_frames: usize,
    pub(super) cached_bytes: u64,
    /// How many held frames lie in each segment of the log.
    pub(super) in_segments: BTreeMap<u64, u64>,
    /// Bytes of their records, about.
    pub(super) kept_bytes: u64,
    /// Frames that groups have given up on, whose dead letters nobody has begun to publish.
    pub(super) given_up: Vec<GivenUp>,
    /// Frames that groups have given up on, whose dead letters are not published yet.
    pub(super) dying: usize,
    /// Producers that are remembered, over all topics.
    pub(super) producers: usize,
    next_group: u64,
    rng: u64,
}

impl Env {
    /// That of a broker without a log.
    pub(super) fn new(config: QueueConfig, now: Millis) -> Self {
        Self {
            rng: config.seed,
            config,
            now,
            phase: Phase::Open,
            earliest: None,
            wakes: Vec::new(),
            keeps: false,
            reads_log: false,
            facts: TopicFacts::default(),
            cached_frames: 0,
            cached_bytes: 0,
            in_segments: BTreeMap::new(),
            kept_bytes: 0,
            given_up: Vec::new(),
            dying: 0,
            producers: 0,
            next_group: 0,
        }
    }

    /// Beside a log, which is read first.
    pub(super) fn beside_log(config: QueueConfig, now: Millis) -> Self {
        Self { keeps: true, reads_log: true, ..Self::new(config, now) }
    }

    /// Durability of a frame before its publish is answered.
    pub(super) fn durability(&self) -> FrameDurability {
        if self.keeps { self.config.durability } else { FrameDurability::Memory }
    }

    /// What a topic may hold, of dead letters or of others.
    pub(super) fn bound(&self, is_dead: bool) -> Bound {
        let QueueConfig { max_messages, max_bytes, when_full, max_dead_messages, max_dead_bytes, .. } =
            self.config;
        if is_dead {
            Bound { messages: max_dead_messages, bytes: max_dead_bytes, when_full: WhenFull::DropOldest }
        } else {
            Bound { messages: max_messages, bytes: max_bytes, when_full }
        }
    }

    /// The id of a group that is made.
    pub(super) fn take_group_id(&mut self) -> GroupId {
        self.next_group += 1;
        GroupId(self.next_group - 1)
    }

    /// A held frame lies at this place of the log.
    pub(super) fn lies_at(&mut self, place: Place) {
        *self.in_segments.entry(place.segment()).or_default() += 1;
        self.kept_bytes += record_bytes(place);
    }

    /// A held frame lies there no more.
    pub(super) fn left(&mut self, place: Place) {
        let segment = place.segment();
        self.kept_bytes = self.kept_bytes.saturating_sub(record_bytes(place));
        if let Some(frames) = self.in_segments.get_mut(&segment) {
            *frames = frames.saturating_sub(1);
            if *frames == 0 {
                self.in_segments.remove(&segment);
            }
        }
    }

    /// A frame that was held takes no memory any more.
    pub(super) fn uncached(&mut self, held: &HeldFrame) {
        if held.is_cached() {
            self.cached_frames = self.cached_frames.saturating_sub(1);
            self.cached_bytes = self.cached_bytes.saturating_sub(held.cost);
        }
    }

    /// A group has given up on a frame.
    pub(super) fn give_up(&mut self, given_up: GivenUp) {
        self.dying += 1;
        self.given_up.push(given_up);
    }

    /// Asks for a call of `advance` at `at`.
    pub(super) fn arm(&mut self, at: Millis) {
        self.earliest = Some(self.earliest.map_or(at, |earliest| earliest.min(at)));
    }

    pub(super) fn wake(&mut self, wake: Wake) {
        if !self.wakes.contains(&wake) {
            self.wakes.push(wake);
        }
    }

    /// How long to wait before the redelivery after the `failures`-th failure: exponential, full jitter.
    pub(super) fn backoff(&mut self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        let longest = self.config.backoff_base.saturating_mul(doubled).min(self.config.backoff_cap);
        let longest_ms = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX - 1).min(u64::MAX - 1);
        Duration::from_millis(self.random() % (longest_ms + 1))
    }

    /// SplitMix64 (Steele, Lea, Flood 2014): enough for jitter, and the same on every machine.
    fn random(&mut self) -> u64 {
        self.rng = self.rng.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.rng;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// What a record takes in the log, with its header and padding, about.
fn record_bytes(place: Place) -> u64 {
    u64::try_from(place.payload_len()).unwrap_or(u64::MAX).saturating_add(28)
}
