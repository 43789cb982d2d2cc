//! Takes frames from one queue and publishes them to another.

use std::collections::VecDeque;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::resend::{Event, Patience, Sender};
use crate::broker::{Delivery, Nack, NackKind, PublishError, ReceiveError};
use crate::service::{Consumer, Producer};

/// Lease, longer than any process runs: a frame stays leased until it is sent. For queues whose only consumer ends with them.
pub const ENDLESS_LEASE: Duration = Duration::from_hours(24 * 365 * 10);

/// The outcome of a forwarded frame.
#[derive(Debug)]
pub enum Forwarded<'a> {
    /// The other queue has taken a frame of this many messages.
    Taken(u32),
    /// An attempt failed; the frame is sent again.
    Failed(&'a PublishError),
    /// The other queue will never take a frame of this many messages: it is a dead letter here.
    Refused(u32, &'a PublishError),
}

/// Forwards frames until `stop`, in order and at most `window` at a time, and reports outcomes to `observe`.
/// Then it leaves its group, so that frames not taken are available to the next consumer.
///
/// A frame is acknowledged once the other queue has taken it. It waits, for any time, for a queue that is
/// away or full, cannot store, or denies access or the topic: it tries one frame until that is taken, and the
/// leases of all received frames must last that long. Only a refusal of the frame itself makes it a dead
/// letter.
///
/// Frames keep their stamps, so that a frame that is forwarded again (a lost answer, a lost acknowledgement)
/// is recognised as a repeat.
///
/// # Errors
///
/// Nothing will ever arrive again.
pub async fn forward(
    mut consumer: impl Consumer,
    producer: &impl Producer,
    window: usize,
    stop: &CancellationToken,
    mut observe: impl FnMut(&Forwarded<'_>),
) -> Result<(), ReceiveError> {
    let mut sender = Sender::new(producer, window, Patience::Settings);
    let mut received: VecDeque<Delivery> = VecDeque::new();
    loop {
        while sender.has_room()
            && let Some(delivery) = received.pop_front()
        {
            let frame = (*delivery.frame).clone();
            sender.send((delivery.id, frame.count), frame);
        }
        let event = tokio::select! {
            () = stop.cancelled() => break,
            event = sender.event(), if !sender.is_idle() => event,
            more = consumer.receive(), if sender.has_room() => {
                received.extend(more?);
                continue;
            }
        };
        // A frame that was dropped at the bound meanwhile is settled already.
        match event {
            Event::Taken { tag: (id, messages), .. } => {
                let _settled = consumer.ack(&[id]).await;
                observe(&Forwarded::Taken(messages));
            }
            Event::Failed(error) => observe(&Forwarded::Failed(&error)),
            Event::Refused { tag: (id, messages), error } => {
                let reason = error.to_string().into();
                let nack = Nack { id, kind: NackKind::Reject, reason };
                let _settled = consumer.nack(&[nack]).await;
                observe(&Forwarded::Refused(messages, &error));
            }
        }
    }
    drop(sender);
    consumer.leave().await;
    Ok(())
}
