//! Producer and consumer within this process.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::queue::Queue;
use super::{Consumer, Producer};
use crate::broker::{
    ConsumerId, Delivery, DeliveryId, Nack, PublishError, Receipt, ReceiveError, SettleError, Wake,
};
use crate::frame::Frame;
use crate::rows::Rows;

/// Hands frames to one topic of a [`Queue`].
#[derive(Clone, Debug)]
pub struct InProcessProducer {
    queue: Queue,
    topic: Arc<str>,
    /// Waits at the bound until this; refused there without it.
    waits_until: Option<CancellationToken>,
}

impl InProcessProducer {
    pub(super) fn new(queue: Queue, topic: Arc<str>, waits_until: Option<CancellationToken>) -> Self {
        Self { queue, topic, waits_until }
    }
}

impl Producer for InProcessProducer {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        match &self.waits_until {
            Some(cancel) => self.queue.publish_wait(&self.topic, frame, cancel).await,
            None => self.queue.publish(&self.topic, frame).await,
        }
    }
}

/// A member of a group of a [`Queue`].
#[derive(Debug)]
pub struct InProcessConsumer {
    queue: Queue,
    id: ConsumerId,
    wake: Wake,
    signal: Arc<Notify>,
}

impl InProcessConsumer {
    pub(super) fn new(queue: Queue, id: ConsumerId, wake: Wake) -> Self {
        let signal = queue.shared().signal(wake);
        Self { queue, id, wake, signal }
    }

    /// Lets this consumer have at most `max_in_flight` messages at once from now on; 0 pauses it. What it
    /// has already stays with it.
    pub fn set_credits(&self, max_in_flight: u32) {
        self.queue.shared().with(|broker, now| broker.set_credits(now, self.id, max_in_flight));
    }
}

impl Consumer for InProcessConsumer {
    async fn receive(&mut self) -> Result<Vec<Delivery>, ReceiveError> {
        // A consumer that never has to wait still lets others of its thread run.
        tokio::task::consume_budget().await;
        let something =
            |answer: &Result<Vec<Delivery>, _>| answer.as_ref().map_or(true, |some| !some.is_empty());
        let shared = self.queue.shared();
        shared.wait(&self.signal, |broker, now| Some(broker.receive(now, self.id)).filter(something)).await
    }

    async fn ack(&self, ids: &[DeliveryId]) -> Result<u64, SettleError> {
        self.queue.shared().with(|broker, now| broker.ack(now, self.id, ids))
    }

    async fn ack_rows(&self, id: DeliveryId, rows: &Rows) -> Result<u64, SettleError> {
        self.queue.shared().with(|broker, now| broker.ack_rows(now, self.id, id, rows))
    }

    async fn ack_up_to(&self, offset: u64) -> Result<u64, SettleError> {
        self.queue.shared().with(|broker, now| broker.ack_up_to(now, self.id, offset))
    }

    async fn nack(&self, nacks: &[Nack]) -> Result<u64, SettleError> {
        self.queue.shared().with(|broker, now| broker.nack(now, self.id, nacks))
    }

    async fn extend(&self, ids: &[DeliveryId], by: Duration) -> Result<(), SettleError> {
        self.queue.shared().with(|broker, now| broker.extend(now, self.id, ids, by))
    }

    async fn leave(self) {
        self.queue.shared().with(|broker, now| broker.leave(now, self.id));
    }
}

impl Drop for InProcessConsumer {
    /// Without [`Consumer::leave`] before, this is a crash.
    fn drop(&mut self) {
        let shared = self.queue.shared();
        shared.with(|broker, now| broker.kill(now, self.id));
        shared.forget(self.wake, &self.signal);
    }
}
