//! A queue has two ends.

use std::future::Future;
use std::time::Duration;

use crate::broker::{Delivery, DeliveryId, Nack, PublishError, Receipt, ReceiveError, SettleError};
use crate::frame::Frame;

/// Hands frames to one topic.
pub trait Producer: Send + Sync {
    /// Hands over one frame; the receipt says how safe it is then.
    ///
    /// # Errors
    ///
    /// The frame was not taken, for the reason given. After a failure whose outcome is unknown the same
    /// frame may be sent again if it is stamped: a repeat is recognised.
    fn publish(&self, frame: Frame) -> impl Future<Output = Result<Receipt, PublishError>> + Send;
}

/// Receives the frames of one topic as a member of one group.
///
/// Everything received is to be acknowledged, refused or extended before its deadline. A consumer that is
/// dropped is a lost one: what it held comes again after a wait. After [`Consumer::leave`] it comes at once.
pub trait Consumer: Send {
    /// Waits until there is something, and takes as many frames as the credits allow: at least one.
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// There will never be anything again.
    fn receive(&mut self) -> impl Future<Output = Result<Vec<Delivery>, ReceiveError>> + Send;

    /// Acknowledges deliveries. Answers how many messages were not settled before.
    ///
    /// # Errors
    ///
    /// A delivery that the group never saw; the others are acknowledged.
    fn ack(&self, ids: &[DeliveryId]) -> impl Future<Output = Result<u64, SettleError>> + Send;

    /// Refuses deliveries. Answers how many messages that moved.
    ///
    /// # Errors
    ///
    /// A delivery that the group never saw; the others are refused.
    fn nack(&self, nacks: &[Nack]) -> impl Future<Output = Result<u64, SettleError>> + Send;

    /// Moves deadlines to `by` from now.
    ///
    /// # Errors
    ///
    /// A delivery that the group never saw or whose lease is over; the others are extended.
    fn extend(
        &self,
        ids: &[DeliveryId],
        by: Duration,
    ) -> impl Future<Output = Result<(), SettleError>> + Send;

    /// Leaves the group: what is not settled goes to others at once, uncounted.
    fn leave(self) -> impl Future<Output = ()> + Send;
}
