//! Producer and consumer within this process.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::queue::Queue;
use super::{Consumer, Producer};
use crate::broker::{
    Broker, ConsumerId, Delivery, DeliveryId, Lent, Nack, NackKind, PublishError, Receipt, ReceiveError,
    SettleError, Wake,
};
use crate::frame::{Frame, Millis};
use crate::journal::Unreadable;

/// Bytes that are read back at once; a frame that is longer is read alone.
const READ_LEN: usize = 1 << 20;
/// When a frame that cannot be read for now is tried again.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long a consumer takes nothing if nothing could be read.
const PAUSE: Duration = Duration::from_millis(250);

/// Hands frames to one topic of a [`Queue`]; waits for room in a full topic.
#[derive(Clone, Debug)]
pub struct InProcessProducer {
    queue: Queue,
    topic: Arc<str>,
}

impl InProcessProducer {
    pub(super) fn new(queue: Queue, topic: Arc<str>) -> Self {
        Self { queue, topic }
    }
}

impl Producer for InProcessProducer {
    async fn publish(&self, frame: Frame) -> Result<Receipt, PublishError> {
        self.queue.publish_wait(&self.topic, frame).await
    }
}

/// A member of a group of a [`Queue`].
#[derive(Debug)]
pub struct InProcessConsumer {
    queue: Queue,
    id: ConsumerId,
    wake: Wake,
    signal: Arc<Notify>,
    /// How long a lease is.
    lease: Duration,
    /// Leased, and not given away yet.
    granted: VecDeque<Lent<Delivery>>,
    reading: Option<Reading>,
    /// Nothing could be read: no more is taken until then.
    paused_until: Option<Instant>,
}

/// Deliveries whose frames are being read back. It outlives a receive that is given up, so that reading comes to its
/// end however often that happens.
#[derive(Debug)]
struct Reading {
    deliveries: Vec<Delivery>,
    frames: JoinHandle<Vec<Result<Frame, Unreadable>>>,
    /// When the leases are extended, should it take so long.
    renew_at: Instant,
}

impl InProcessConsumer {
    pub(super) fn new(queue: Queue, id: ConsumerId, wake: Wake, lease: Duration) -> Self {
        let signal = queue.shared().signal(wake);
        Self { queue, id, wake, signal, lease, granted: VecDeque::new(), reading: None, paused_until: None }
    }

    /// Begins to read the first of what was granted.
    fn read(&mut self) -> Reading {
        let mut len = 0;
        let (mut deliveries, mut places) = (Vec::new(), Vec::new());
        while let Some(place) = self.granted.front().and_then(|lent| lent.place) {
            len += place.payload_len();
            if len > READ_LEN && !places.is_empty() {
                break;
            }
            places.push(place);
            deliveries.extend(self.granted.pop_front().map(|lent| lent.item));
        }
        let frames = self.queue.shared().read(places);
        Reading { deliveries, frames, renew_at: self.next_renewal() }
    }

    fn next_renewal(&self) -> Instant {
        Instant::now() + (self.lease / 2).max(Duration::from_millis(1))
    }

    /// The deliveries that were being read, with their frames and their full time.
    async fn finish_reading(&mut self) -> Vec<Delivery> {
        let frames = loop {
            let Some(reading) = &mut self.reading else { return Vec::new() };
            tokio::select! {
                frames = &mut reading.frames => break frames,
                () = sleep_until(reading.renew_at) => {}
            }
            self.renew();
            let renew_at = self.next_renewal();
            self.reading.iter_mut().for_each(|reading| reading.renew_at = renew_at);
        };
        let now = self.renew();
        // The task panics only of a bug; then its frames are tried again.
        let mut frames = frames.unwrap_or_default().into_iter();
        let (mut read, mut lost, mut later) = (Vec::new(), Vec::new(), Vec::new());
        for mut delivery in self.reading.take().map(|reading| reading.deliveries).unwrap_or_default() {
            match frames.next() {
                Some(Ok(frame)) => {
                    delivery.frame = Arc::new(frame);
                    read.push(delivery);
                }
                Some(Err(Unreadable::Lost(reason))) => {
                    let reason = format!("cannot be read back: {reason}").into();
                    lost.push(Nack { id: delivery.id, kind: NackKind::Retry, reason });
                }
                Some(Err(Unreadable::ForNow)) | None => later.push(delivery.id),
            }
        }
        if read.is_empty() && !later.is_empty() {
            self.paused_until = Some(Instant::now() + PAUSE);
        }
        self.give_back(&lost, &later);
        // Somebody else may have those whose lease is over.
        read.retain(|delivery| delivery.deadline > now);
        read
    }

    /// Gives all that is not given away yet its full time again, as far as its lease lives; at what time.
    fn renew(&mut self) -> Millis {
        let reading = self.reading.iter_mut().flat_map(|reading| &mut reading.deliveries);
        let granted = self.granted.iter_mut().map(|lent| &mut lent.item);
        let (id, lease) = (self.id, self.lease);
        self.queue.shared().with(|broker, now| {
            for delivery in reading.chain(granted) {
                if let Some(deadline) = broker.renew(now, id, delivery.id, lease) {
                    delivery.deadline = deadline;
                }
            }
            now
        })
    }

    /// What is lost fails, as if this consumer had refused it: in the end it is a dead letter that says why. What may be
    /// read `later` is tried again then, and nothing is held against it.
    fn give_back(&self, lost: &[Nack], later: &[DeliveryId]) {
        if lost.is_empty() && later.is_empty() {
            return;
        }
        self.queue.shared().with(|broker, now| {
            // If the lease is over, it has failed already.
            broker.nack(now, self.id, lost).ok();
            broker.postpone(now, self.id, later, READ_AGAIN_AFTER);
        });
    }
}

impl Consumer for InProcessConsumer {
    async fn receive(&mut self) -> Result<Vec<Delivery>, ReceiveError> {
        // A consumer that never has to wait still lets others of its thread run.
        tokio::task::consume_budget().await;
        let something = |answer: &Result<Vec<_>, _>| answer.as_ref().map_or(true, |some| !some.is_empty());
        loop {
            if self.reading.is_some() {
                let deliveries = self.finish_reading().await;
                if !deliveries.is_empty() {
                    return Ok(deliveries);
                }
            }
            if let Some(pause) = self.paused_until {
                sleep_until(pause).await;
                self.paused_until = None;
            }
            if self.granted.is_empty() {
                let ask = |broker: &mut Broker, now| Some(broker.receive(now, self.id)).filter(something);
                self.granted = self.queue.shared().wait(&self.signal, ask).await?.into();
            }
            let here = self.granted.iter().take_while(|lent| lent.place.is_none()).count();
            if here > 0 {
                return Ok(self.granted.drain(..here).map(|lent| lent.item).collect());
            }
            self.reading = Some(self.read());
        }
    }

    async fn ack(&self, ids: &[DeliveryId]) -> Result<u64, SettleError> {
        self.queue.shared().with(|broker, now| broker.ack(now, self.id, ids))
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
    /// Without [`Consumer::leave`] before, the consumer counts as lost.
    fn drop(&mut self) {
        let shared = self.queue.shared();
        shared.with(|broker, now| broker.kill(now, self.id));
        shared.forget(self.wake, &self.signal);
    }
}
