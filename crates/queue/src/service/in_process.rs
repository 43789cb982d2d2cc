//! Producer and consumer within this process.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::queue::{Queue, fill};
use super::{Consumer, Producer};
use crate::broker::{
    Broker, ConsumerId, Delivery, DeliveryId, Lent, Nack, NackKind, PublishError, Receipt, ReceiveError,
    SettleError, Wake,
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
    /// Leased, and still to be read from disk.
    unread: Vec<Lent<Delivery>>,
}

impl InProcessConsumer {
    pub(super) fn new(queue: Queue, id: ConsumerId, wake: Wake) -> Self {
        let signal = queue.shared().signal(wake);
        Self { queue, id, wake, signal, unread: Vec::new() }
    }

    /// Lets this consumer have at most `max_in_flight` messages at once from now on; 0 pauses it. What it
    /// has already stays with it.
    pub fn set_credits(&self, max_in_flight: u32) {
        self.queue.shared().with(|broker, now| broker.set_credits(now, self.id, max_in_flight));
    }
}

impl InProcessConsumer {
    /// What cannot be read fails, as if this consumer had refused it: in the end it is a dead letter that says why.
    fn without_unreadable(&self, read: Vec<(Delivery, Option<Arc<str>>)>) -> Vec<Delivery> {
        let mut nacks = Vec::new();
        let mut deliveries = Vec::with_capacity(read.len());
        for (delivery, failure) in read {
            match failure {
                None => deliveries.push(delivery),
                Some(reason) => {
                    let reason = format!("cannot be read back: {reason}").into();
                    nacks.push(Nack { id: delivery.id, rows: None, kind: NackKind::Retry, reason });
                }
            }
        }
        if !nacks.is_empty() {
            // It was leased to this consumer just now; if the lease is over, it has failed already.
            self.queue.shared().with(|broker, now| broker.nack(now, self.id, &nacks)).ok();
        }
        deliveries
    }
}

impl Consumer for InProcessConsumer {
    async fn receive(&mut self) -> Result<Vec<Delivery>, ReceiveError> {
        // A consumer that never has to wait still lets others of its thread run.
        tokio::task::consume_budget().await;
        let something = |answer: &Result<Vec<_>, _>| answer.as_ref().map_or(true, |some| !some.is_empty());
        loop {
            if self.unread.is_empty() {
                let ask = |broker: &mut Broker, now| Some(broker.lend(now, self.id)).filter(something);
                self.unread = self.queue.shared().wait(&self.signal, ask).await?;
            }
            if self.unread.iter().all(|lent| lent.home.is_none()) {
                return Ok(self.unread.drain(..).map(|lent| lent.item).collect());
            }
            // They stay there until they are read, so that nothing is lost if this future is dropped.
            let read = fill(self.queue.shared(), self.unread.clone(), |delivery| &mut delivery.frame).await;
            self.unread.clear();
            let deliveries = self.without_unreadable(read);
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
        }
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
