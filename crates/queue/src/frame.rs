//! Frames of messages, and their timestamps.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use utoipa::ToSchema;

/// Longest reason that a dead letter carries, in bytes.
pub(crate) const REASON_LEN_MAX: usize = 512;
/// What the facts of a dead letter take in memory beside their texts, and the frame that is not packed with others for them.
const DEAD_OVERHEAD_BYTES: usize = 320;

/// An instant in milliseconds since 1970-01-01 UTC, by a clock that never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// The instant `by` later, in whole milliseconds; stays at the end of time instead of wrapping.
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// Format of a frame's payload. The queue itself never opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ContentType {
    /// The binary form of a batch of rows.
    Batch,
    /// A JSON message, or an array of them.
    Json,
}

/// Compression of a frame's payload, by its publisher. Its reader decompresses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Not at all. (A batch is compressed inside.)
    #[default]
    Identity,
    /// One zstd frame.
    Zstd,
}

/// Producer and number of a frame: a repeated publish is recognised by them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProducerStamp {
    /// Names one run of one producer (a restarted producer takes a new id), at most 128 bytes.
    pub id: Arc<str>,
    /// Grows by one with every frame of this producer; a repeat carries the same number.
    pub sequence: u64,
}

/// Reason and origin of a dead letter. They travel with the frame, in a topic of dead letters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadFacts {
    /// The topic that the frame was published to.
    pub topic: Arc<str>,
    /// The group that gave up on it.
    pub group: Arc<str>,
    /// The frame's place in that topic.
    pub offset: u64,
    /// Delivery attempts; if the consumers were lost too often, the number of losses.
    pub attempts: u32,
    /// The last failure, in words; at most 512 bytes.
    pub reason: Arc<str>,
    /// When the frame was published to that topic.
    pub published_at: Millis,
}

impl DeadFacts {
    /// `reason`, cut to the length that dead letters carry.
    pub fn shortened(reason: &str) -> Arc<str> {
        reason.get(..reason.floor_char_boundary(REASON_LEN_MAX)).unwrap_or_default().into()
    }

    /// What they add to a frame's cost, in bytes: their texts, and that they stand by themselves.
    pub(crate) fn cost_bytes(&self) -> usize {
        DEAD_OVERHEAD_BYTES + self.topic.len() + self.group.len() + self.reason.len()
    }
}

/// Messages that travel together. Stored and forwarded unopened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Format of the payload.
    pub content_type: ContentType,
    /// How the payload is compressed.
    pub encoding: Encoding,
    /// Number of messages (rows) in the payload; at least 1.
    pub count: u32,
    /// The sender's stamp; without one, a repeat is a new frame.
    pub producer: Option<ProducerStamp>,
    /// Set for a dead letter.
    pub dead: Option<Box<DeadFacts>>,
    /// W3C `traceparent` of the span that published the frame, if it is part of a trace.
    pub trace: Option<Arc<str>>,
    /// The messages, as their publisher sent them.
    pub payload: Bytes,
}

impl Frame {
    /// Cost of a frame in addition to its payload and its texts, in bytes. The bookkeeping of a small frame takes no more memory.
    pub const OVERHEAD_BYTES: u64 = 64;

    /// A frame without a producer stamp, its payload not compressed.
    pub fn new(content_type: ContentType, count: u32, payload: impl Into<Bytes>) -> Self {
        let encoding = Encoding::Identity;
        Self {
            content_type,
            encoding,
            count,
            producer: None,
            dead: None,
            trace: None,
            payload: payload.into(),
        }
    }

    /// The same frame, with this compression declared for its payload.
    pub fn encoded(mut self, encoding: Encoding) -> Self {
        self.encoding = encoding;
        self
    }

    /// The same frame, stamped by its producer.
    pub fn stamped(mut self, id: impl Into<Arc<str>>, sequence: u64) -> Self {
        self.producer = Some(ProducerStamp { id: id.into(), sequence });
        self
    }

    /// Bytes this frame counts against a topic's bound: payload, trace, the facts of a dead letter and
    /// [`Self::OVERHEAD_BYTES`].
    pub fn cost_bytes(&self) -> u64 {
        Self::cost_of(self.payload.len(), self.trace.as_deref(), self.dead.as_deref())
    }

    /// What a frame of these parts counts.
    pub(crate) fn cost_of(payload_len: usize, trace: Option<&str>, dead: Option<&DeadFacts>) -> u64 {
        let len = payload_len + trace.map_or(0, str::len) + dead.map_or(0, DeadFacts::cost_bytes);
        Self::OVERHEAD_BYTES.saturating_add(u64::try_from(len).unwrap_or(u64::MAX))
    }
}
