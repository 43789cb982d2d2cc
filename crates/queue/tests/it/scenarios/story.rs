//! What the stories are told with.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_queue::{
    Broker, ConsumerId, ConsumerOptions, ContentType, DeadLetter, Delivery, DeliveryId, Frame, Millis, Nack,
    NackKind, PublishError, QueueConfig, SettleError, TopicStats,
};

pub(crate) const TOPIC: &str = "gpu-telemetry";
/// The default acknowledgement timeout.
pub(crate) const TIMEOUT: u64 = 5_000;

/// A broker and its time.
pub(crate) struct Story {
    pub(crate) broker: Broker,
    pub(crate) now: u64,
}

impl Story {
    pub(crate) fn new(change: impl FnOnce(&mut QueueConfig)) -> Self {
        let mut config = QueueConfig::default();
        change(&mut config);
        Self { broker: Broker::new(config, Millis(0)), now: 0 }
    }

    pub(crate) fn at(&mut self, now: u64) -> &mut Self {
        self.now = now;
        self
    }

    pub(crate) fn publish(&mut self, count: u32) -> Result<Option<u64>, PublishError> {
        let frame = Arc::new(Frame::new(ContentType::Batch, count, vec![7; 10]));
        self.broker.publish(Millis(self.now), TOPIC, &frame).map(|receipt| receipt.offset)
    }

    pub(crate) fn join(&mut self, group: &str) -> ConsumerId {
        self.join_with(group, |_| {})
    }

    pub(crate) fn join_with(&mut self, group: &str, change: impl FnOnce(&mut ConsumerOptions)) -> ConsumerId {
        let mut options = ConsumerOptions::default();
        change(&mut options);
        self.broker.subscribe(Millis(self.now), TOPIC, group, &options).unwrap()
    }

    pub(crate) fn receive(&mut self, who: ConsumerId) -> Vec<Delivery> {
        self.broker.receive(Millis(self.now), who).unwrap().into_iter().map(|lent| lent.item).collect()
    }

    pub(crate) fn only(&mut self, who: ConsumerId) -> Delivery {
        let mut deliveries = self.receive(who);
        assert_eq!(deliveries.len(), 1, "{deliveries:?}");
        deliveries.remove(0)
    }

    pub(crate) fn offsets(&mut self, who: ConsumerId) -> Vec<u64> {
        self.receive(who).iter().map(|delivery| delivery.id.offset).collect()
    }

    pub(crate) fn ack(&mut self, who: ConsumerId, ids: &[DeliveryId]) -> Result<u64, SettleError> {
        self.broker.ack(Millis(self.now), who, ids)
    }

    pub(crate) fn nack(&mut self, who: ConsumerId, id: DeliveryId, kind: NackKind) -> u64 {
        let nack = Nack { id, kind, reason: "bad row".into() };
        self.broker.nack(Millis(self.now), who, &[nack]).unwrap()
    }

    pub(crate) fn dead_letters(&self, from: u64) -> Vec<DeadLetter> {
        self.broker.dead_letters(TOPIC, from, 10).unwrap().into_iter().map(|lent| lent.item).collect()
    }

    pub(crate) fn stats(&mut self) -> TopicStats {
        self.broker.topic_stats(Millis(self.now), TOPIC).unwrap()
    }
}

pub(crate) fn credits(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap()
}

/// No jitter to think about: a failed message is due at once.
pub(crate) fn without_backoff(config: &mut QueueConfig) {
    config.backoff_base = Duration::ZERO;
}
