//! A bounded queue in memory in front of a receiver that is not a broker.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Forwarded, forward};
use crate::broker::{ConsumerOptions, FrameDurability, PublishError, Receipt, ReceiveError, SubscribeError};
use crate::config::{Drain, QueueConfig, WhenFull};
use crate::frame::Frame;
use crate::service::{Producer, Queue, QueueClock};

/// Lease, longer than any process runs: a frame stays leased until it is sent. For queues whose only consumer ends with them.
pub const ENDLESS_LEASE: Duration = Duration::from_hours(24 * 365 * 10);
/// Names of the queue's topic, and of the group that sends.
const TOPIC: &str = "outbox";
const GROUP: &str = "receiver";

/// Why nothing is sent any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutboxError {
    /// The queue does not accept its consumer.
    #[error("subscribe to the outbox")]
    Subscribe(#[source] SubscribeError),
    /// The queue gives nothing.
    #[error("receive from the outbox")]
    Receive(#[source] ReceiveError),
}

/// What an [`Outbox`] sends to.
pub trait OutboxReceiver: Send + Sync {
    /// Sends a frame. No further attempt is needed then: it was delivered, or refused for good, which the receiver counts itself.
    ///
    /// # Errors
    /// It has to be sent again.
    fn send(&self, frame: Frame) -> impl Future<Output = Result<(), SendLater>> + Send;
}

/// A receiver takes nothing now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendLater {
    /// Why, for people.
    pub reason: Arc<str>,
    /// How long it wants to be left alone, if it says so.
    pub retry_after: Option<Duration>,
}

/// A receiver as the forwarder sees it.
struct AsProducer<'a, R>(&'a R);

impl<R: OutboxReceiver> Producer for AsProducer<'_, R> {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        match self.0.send(frame).await {
            Ok(()) => Ok(Receipt { offset: None, durability: FrameDurability::Memory, duplicate: false }),
            Err(SendLater { reason, retry_after: None }) => Err(PublishError::Unavailable { reason }),
            Err(SendLater { reason, retry_after }) => Err(PublishError::Full { topic: reason, retry_after }),
        }
    }
}

/// The queue. The newest frames are worth more than old ones: at the bound, in bytes, the oldest go. The frame that is being sent may be
/// among them: it is counted as dropped then, though it may still arrive.
#[derive(Debug)]
pub struct Outbox {
    queue: Queue,
    /// A frame has left the queue.
    settled: Notify,
}

impl Outbox {
    /// Room for so many bytes. Called inside the runtime that it is to run on.
    pub fn new(max_bytes: u64) -> Self {
        let config = QueueConfig {
            max_bytes,
            max_messages: 1 << 40,
            when_full: WhenFull::DropOldest,
            ack_timeout: ENDLESS_LEASE,
            max_lease: ENDLESS_LEASE,
            drain: Drain::Return,
            ..QueueConfig::default()
        };
        Self { queue: Queue::in_process(config, QueueClock::system()), settled: Notify::new() }
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// When it finds no room, though the oldest have gone.
    pub async fn push(&self, frame: Frame) -> Result<(), PublishError> {
        self.queue.publish(TOPIC, frame).await.map(drop)
    }

    /// Messages that wait.
    pub fn waiting(&self) -> u64 {
        // The topic comes with the first frame.
        self.queue.topic_stats(TOPIC).map_or(0, |topic| topic.messages)
    }

    /// Messages that were dropped at the bound.
    pub fn dropped(&self) -> u64 {
        self.queue.topic_stats(TOPIC).map_or(0, |topic| topic.dropped)
    }

    /// Ends when nothing waits.
    pub async fn emptied(&self) {
        loop {
            let settled = self.settled.notified();
            if self.waiting() == 0 {
                return;
            }
            settled.await;
        }
    }

    /// Sends to a receiver until `give_up`, one frame at a time and in order. A frame that the receiver cannot take now is sent
    /// again with growing, jittered delays, and not before it wants it; `failed` hears of each such attempt, in the receiver's
    /// words.
    ///
    /// # Errors
    /// Nothing is sent any more.
    pub async fn send(
        &self,
        receiver: &impl OutboxReceiver,
        give_up: &CancellationToken,
        failed: impl Fn(&str),
    ) -> Result<(), OutboxError> {
        // One frame at a time is away from the queue.
        let options = ConsumerOptions { max_in_flight: NonZeroU32::MIN, ..ConsumerOptions::default() };
        let consumer = self.queue.subscribe(TOPIC, GROUP, &options).await.map_err(OutboxError::Subscribe)?;
        let observe = |event: &Forwarded<'_>| {
            match event {
                // What the receiver said.
                Forwarded::Failed(
                    PublishError::Full { topic: reason, .. } | PublishError::Unavailable { reason },
                ) => failed(reason),
                Forwarded::Failed(error) => failed(&gpuvitals_core::causes(error)),
                Forwarded::Taken(_) | Forwarded::Refused(..) => {}
            }
            self.settled.notify_waiters();
        };
        forward(consumer, &AsProducer(receiver), 1, give_up, observe).await.map_err(OutboxError::Receive)
    }
}
