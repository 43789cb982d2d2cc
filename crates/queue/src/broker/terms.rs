//! What goes into the broker and what comes out of it.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use gpuvitals_log::Place;
use serde::Serialize;
use utoipa::ToSchema;

use crate::frame::{DeadFacts, Frame, Millis};
use crate::name::NameError;

/// A topic, for as long as its broker lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub(super) usize);

/// A group, for as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub(super) u64);

/// One member of one group, from its subscription until it leaves or dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId(pub(super) u64);

/// Names one delivery in its group: what was delivered, and for which time.
///
/// The token tells a delivery from the ones before it: an acknowledgement with an old token still counts
/// as long as nobody has acknowledged the frame, but it extends and refuses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId {
    /// The frame's place in its topic.
    pub offset: u64,
    /// Grows with every delivery of the frame to the group. It begins at 1 for a frame that was published since the
    /// queue was opened, and at another number in each later life. In the upper half, a consumer of a queue elsewhere
    /// notes the number of its connection (NATS: how often it has created its group), from 0; that never travels.
    pub token: u64,
}

impl DeliveryId {
    /// The same delivery, as received on a connection, or in a life of the group.
    pub(crate) fn of_session(self, session: u32) -> Self {
        Self { token: u64::from(session) << u32::BITS | u64::from(self.count()), ..self }
    }

    /// The connection it was received on, or the life of the group.
    pub(crate) fn session(self) -> u32 {
        u32::try_from(self.token >> u32::BITS).unwrap_or_default()
    }

    /// The token without the connection.
    pub(crate) fn count(self) -> u32 {
        u32::try_from(self.token & u64::from(u32::MAX)).unwrap_or_default()
    }
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.offset, self.count())
    }
}

/// A frame, lent to a consumer until the deadline.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// What to acknowledge.
    pub id: DeliveryId,
    /// Where the frame was published.
    pub topic: Arc<str>,
    /// The frame as it was published.
    pub frame: Arc<Frame>,
    /// Attempt, counted from 1. Deliveries that were given back unused, or whose consumer was lost, do not count.
    pub attempt: u32,
    /// When the frame was published.
    pub published_at: Millis,
    /// When it goes to someone else unless acknowledged or extended.
    pub deadline: Millis,
}

/// Something with a frame that may have to be read first.
#[derive(Clone, Debug)]
pub struct Lent<T> {
    /// The thing; its frame is blank if it has to be read.
    pub item: T,
    /// Where the log has the frame, if it is not in memory.
    pub place: Option<Place>,
}

/// Where a new group begins. It says nothing to a group that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the oldest frame that is held.
    #[default]
    Oldest,
    /// With the next frame that is published.
    Newest,
}

/// How a consumer wants to be served.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerOptions {
    /// Where the group begins if this consumer is its first.
    pub start: Start,
    /// How long the group outlives its last member, if this consumer is its first. `None`: for ever.
    pub group_ttl: Option<Duration>,
    /// Most messages this consumer has at once. A frame with more is delivered alone.
    pub max_in_flight: NonZeroU32,
    /// Most messages one receive answers with; a frame with more comes alone. `None`: what the credits allow.
    pub max_batch: Option<NonZeroU32>,
    /// Number of the consumer that this connection is a part of: those of one number in a group count as one subscriber.
    /// `None`: it is a consumer by itself.
    pub consumer: Option<NonZeroU64>,
    /// How long this consumer has to acknowledge. `None`: the queue's setting.
    pub ack_timeout: Option<Duration>,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            start: Start::Oldest,
            group_ttl: None,
            max_in_flight: NonZeroU32::MIN.saturating_add(999),
            max_batch: None,
            consumer: None,
            ack_timeout: None,
        }
    }
}

/// How safe a published frame is when its receipt is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ToSchema, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum FrameDurability {
    /// In memory: lost with the process.
    Memory,
    /// Written, not yet synced: lost with the machine's power.
    Written,
    /// Synced to disk.
    Synced,
}

/// The answer to a publish that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The frame's place in its topic; `None` for a duplicate.
    pub offset: Option<u64>,
    /// How safe the frame is now.
    pub durability: FrameDurability,
    /// The frame had been taken before and was not stored again.
    pub duplicate: bool,
}

/// What came of the first half of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The frame has an offset and room; it is to be made durable, and then to land.
    New {
        /// The topic that it was published to.
        topic: TopicId,
        /// Its number in the topic, from 0.
        offset: u64,
        /// When it was published.
        at: Millis,
        /// How safe it must be before it lands.
        durability: FrameDurability,
    },
    /// It is held in memory as its topic promises, or was taken before.
    Taken(Receipt),
    /// The same frame is under way: what becomes of that becomes of this.
    UnderWay {
        /// The topic that it was published to.
        topic: TopicId,
        /// Its number in the topic, from 0.
        offset: u64,
    },
}

/// What is to happen to a frame that a consumer does not acknowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NackKind {
    /// Try again after a backoff; it counts as an attempt.
    Retry,
    /// Never try again: a dead letter at once.
    Reject,
    /// Give it to someone else at once; it does not count as an attempt.
    Release,
}

/// What a consumer says of a delivery that it does not acknowledge.
#[derive(Clone, Debug)]
pub struct Nack {
    /// The delivery that it is about.
    pub id: DeliveryId,
    /// What is to happen to it.
    pub kind: NackKind,
    /// Why; kept with a dead letter, cut after 512 bytes.
    pub reason: Arc<str>,
}

/// Why a delivery failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No acknowledgement by the deadline.
    #[error("not acknowledged in time")]
    AckTimeout,
    /// The consumer vanished without leaving.
    #[error("consumer went away")]
    ConsumerGone,
    /// The consumer asked for another try.
    #[error("refused by consumer: {0}")]
    Refused(Arc<str>),
    /// The consumer ruled out another try.
    #[error("rejected by consumer: {0}")]
    Rejected(Arc<str>),
    /// Given back unused; never the reason of a dead letter.
    #[error("given back")]
    Released,
}

/// A frame that could not be used, kept for a person.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// Its place in the topic of dead letters: later ones have higher ids.
    pub id: u64,
    /// When it was given up.
    pub died_at: Millis,
    /// Where it came from, and why it is dead.
    pub facts: DeadFacts,
    /// The frame as it was published, without stamp; without payload if its bytes are gone.
    pub frame: Arc<Frame>,
}

/// Which dead letters are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadSelection {
    /// The oldest ones, so many of them.
    Oldest(usize),
    /// These, by id.
    Ids(Vec<u64>),
}

/// What putting dead letters back did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Letters that were published to their topic again.
    pub letters: usize,
    /// Letters left because the topic is at its bound.
    pub without_room: usize,
    /// Letters left because their bytes are gone.
    pub unreadable: usize,
}

/// Somebody may now be able to go on. The broker says so once; waiting is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wake {
    /// Consumers of a group: there may be something to receive, or the end.
    Group(GroupId),
    /// Publishers of a topic: there may be room, or the end.
    Space(TopicId),
    /// Whoever waits for the drain: look again.
    Drained,
}

/// A publish was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The topic's name is refused.
    #[error("cannot publish to a topic of this name")]
    Topic(#[source] NameError),
    /// The producer's id is empty or too long.
    #[error("producer id has {len} bytes, 1 to 128 are allowed")]
    ProducerId {
        /// Its length in bytes.
        len: usize,
    },
    /// A frame of no messages.
    #[error("frame has no messages")]
    NoMessages,
    /// A frame that the topic can never hold, or the queue's limit of a frame does not let through.
    #[error("frame of {messages} messages and {bytes} bytes is larger than what the queue takes")]
    TooLarge {
        /// Messages in it.
        messages: u32,
        /// Bytes it counts.
        bytes: u64,
    },
    /// The topic is at its bound.
    #[error("topic {topic} is full: {remedy}")]
    Full {
        /// Name of the topic.
        topic: Arc<str>,
        /// Why it fills there, and what makes room.
        remedy: &'static str,
        /// When a queue elsewhere asks to be tried again.
        retry_after: Option<Duration>,
    },
    /// One more topic than the queue allows.
    #[error("queue has its {limit} topics already")]
    TooManyTopics {
        /// How many there may be, by the settings.
        limit: usize,
    },
    /// The stamp's number is so far behind the producer's highest that nobody knows whether the frame was taken. Sent
    /// again under the same stamp it is refused again; under one of a new producer id it is taken, perhaps twice.
    #[error("{reason}")]
    SequenceTooOld {
        /// Which number of which producer, for people.
        reason: Arc<str>,
    },
    /// The queue shuts down.
    #[error("queue is shutting down")]
    Closed,
    /// The publisher stopped waiting for room.
    #[error("publish was cancelled while waiting for room")]
    Cancelled,
    /// The frame could not be made as durable as its topic promises, and is not held: a full disk, a broken one.
    #[error("queue cannot store: {reason}")]
    Storage {
        /// What the disk said.
        reason: Arc<str>,
        /// Whether trying again can help without a restart of the queue.
        passes: bool,
    },
    /// The queue could not be reached or did not answer: whether the frame was taken is not known.
    #[error("queue is not available: {reason}")]
    Unavailable {
        /// What the connection said.
        reason: Arc<str>,
    },
    /// The queue does not let the publisher do this: no token, one it does not know, or one without the right.
    #[error("queue denied access: {reason}")]
    Denied {
        /// What the queue said.
        reason: Arc<str>,
    },
    /// The queue does not read the frame.
    #[error("queue refused the frame: {reason}")]
    Malformed {
        /// What the queue said.
        reason: Arc<str>,
    },
    /// The queue refused for another reason that trying again does not change, such as settings that do not fit.
    #[error("queue refused: {reason}")]
    Refused {
        /// What the queue said.
        reason: Arc<str>,
    },
}

impl PublishError {
    /// A topic of a broker is at its bound. `retry_after`: when a queue elsewhere asks to be tried again.
    pub fn full(topic: impl Into<Arc<str>>, retry_after: Option<Duration>) -> Self {
        let remedy = "more comes than is collected. Start or add collectors (gpuvitals queue stats names the group that is \
                      behind), or raise broker.messages_max and broker.bytes_max";
        Self::Full { topic: topic.into(), remedy, retry_after }
    }

    /// Whether the same frame, stamped, is worth sending again. A queue that cannot store is restarted or mended, so
    /// that whoever holds the frame does not throw it away for that.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Full { .. } | Self::Unavailable { .. } | Self::Storage { .. })
    }

    /// Whether the refusal names this frame: others may be taken, and no change of settings lets it through but that of a
    /// limit.
    pub fn names_frame(&self) -> bool {
        matches!(
            self,
            Self::TooLarge { .. } | Self::NoMessages | Self::ProducerId { .. } | Self::Malformed { .. }
        )
    }
}

/// A subscription was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The topic's name is refused.
    #[error("cannot subscribe to a topic of this name")]
    Topic(#[source] NameError),
    /// The group's name is refused.
    #[error("cannot subscribe as a group of this name")]
    Group(#[source] NameError),
    /// One more topic than the queue allows.
    #[error("queue has its {limit} topics already")]
    TooManyTopics {
        /// How many there may be, by the settings.
        limit: usize,
    },
    /// One more group than the topic allows.
    #[error("topic has its {limit} groups already")]
    TooManyGroups {
        /// How many there may be, by the settings.
        limit: usize,
    },
    /// The queue shuts down.
    #[error("queue is shutting down")]
    Closed,
    /// The group could not be made durable.
    #[error("queue cannot store: {reason}")]
    Storage {
        /// What the disk said.
        reason: Arc<str>,
    },
}

/// Nothing will be received any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The queue shuts down and has nothing more for this group.
    #[error("queue is shutting down")]
    Closed,
    /// The consumer has left, or its group was removed.
    #[error("consumer is not subscribed")]
    NotSubscribed,
    /// A queue elsewhere does not let the consumer do this: no token, one it does not know, or one without the right.
    #[error("queue denied access: {reason}")]
    Denied {
        /// What the queue said.
        reason: Arc<str>,
    },
    /// A queue elsewhere refused the subscription for another reason that trying again does not change.
    #[error("queue refused: {reason}")]
    Refused {
        /// What the queue said.
        reason: Arc<str>,
    },
}

/// An acknowledgement, refusal or extension that could not be applied in full. What was valid in it has
/// been applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// A delivery that this group never saw.
    #[error("delivery {id} is unknown, as are {more} more")]
    Unknown {
        /// The first of them, in the order of the call.
        id: DeliveryId,
        /// How many others.
        more: usize,
    },
    /// A lease to extend that is over.
    #[error("lease of delivery {id} is over, as are {more} more")]
    LeaseOver {
        /// The first of them, in the order of the call.
        id: DeliveryId,
        /// How many others.
        more: usize,
    },
    /// The consumer has left, or its group was removed.
    #[error("consumer is not subscribed")]
    NotSubscribed,
    /// The connection to a queue elsewhere was lost. What was not settled before is delivered again.
    #[error("connection to the queue was lost")]
    ConnectionLost,
}

/// A request about a topic or group that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// No such topic.
    #[error("topic does not exist")]
    UnknownTopic,
    /// No such group.
    #[error("group does not exist")]
    UnknownGroup,
}
