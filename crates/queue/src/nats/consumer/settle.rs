//! What is told to the server about deliveries.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Subject;
use async_nats::jetstream::AckKind;

use super::NatsConsumer;
use super::held::Loan;
use super::seat::Seat;
use crate::broker::{Failure, Nack, NackKind, SettleError};
use crate::nats::dead;
use crate::nats::error::NatsError;

/// How long an answer waits for room on its way out, and for all of them to be out at the end.
const SENDS_WITHIN: Duration = Duration::from_secs(2);

impl NatsConsumer {
    /// The seat, once it is known that what is held is of the group that is there now: an answer about a delivery of an
    /// earlier life would be taken for one about whatever has its place in this one.
    pub(super) async fn sure(&self) -> Result<&Seat, SettleError> {
        let seat = self.seat.as_ref().ok_or(SettleError::ConnectionLost)?;
        match tokio::time::timeout(SENDS_WITHIN, seat.watch.is_there(&seat.session)).await {
            Ok(true) => Ok(seat),
            Ok(false) | Err(_) => Err(SettleError::ConnectionLost),
        }
    }

    /// Tells the server about a delivery, once it is known that it is of the group that is there now.
    pub(super) async fn send(&self, reply: &Subject, kind: AckKind) -> Result<(), SettleError> {
        self.publish(self.sure().await?, reply, kind).await
    }

    /// Tells the server about a delivery, if that is known; if it does not learn of it, the message comes again, which is
    /// no harm.
    pub(super) async fn tell(&self, reply: &Subject, kind: AckKind) {
        let seat = self.seat.as_ref().filter(|seat| seat.watch.is_there_now(&seat.session));
        let told = match seat {
            Some(seat) => self.publish(seat, reply, kind).await.is_ok(),
            None => false,
        };
        if !told {
            tracing::debug!(%reply, "an answer to NATS did not get out");
        }
    }

    async fn publish(&self, seat: &Seat, reply: &Subject, kind: AckKind) -> Result<(), SettleError> {
        let is_settled = matches!(kind, AckKind::Ack | AckKind::Term);
        let sent = seat.session.client.publish(reply.clone(), kind.into());
        match tokio::time::timeout(SENDS_WITHIN, sent).await {
            Ok(Ok(())) => {
                if is_settled {
                    seat.watch.acknowledged();
                }
                Ok(())
            }
            Ok(Err(_)) | Err(_) => Err(SettleError::ConnectionLost),
        }
    }

    /// Tells the server about messages that are acknowledged.
    pub(super) async fn acknowledge(&self, loans: &[Arc<Loan>]) -> Result<(), SettleError> {
        for loan in loans {
            self.send(&loan.reply, AckKind::Ack).await?;
        }
        self.freed.notify_one();
        Ok(())
    }

    /// Does with a refused message what is asked for.
    pub(super) async fn refuse(&self, loan: &Loan, nack: &Nack) -> Result<(), SettleError> {
        let reason = &nack.reason;
        let was_last = loan.attempt > self.member.settings.max_retries;
        let dead = match nack.kind {
            NackKind::Reject => Some(Failure::Rejected(Arc::clone(reason))),
            NackKind::Retry if was_last => Some(Failure::Refused(Arc::clone(reason))),
            NackKind::Retry | NackKind::Release => None,
        };
        let outcome = match &dead {
            Some(failure) => Box::pin(self.write_dead(loan, loan.attempt, failure)).await,
            None => Ok(()),
        };
        let has_arrived = outcome.is_ok();
        if let Err(error) = outcome {
            let topic = &*self.member.topic.name;
            tracing::warn!(%error, topic, id = %loan.id, "a dead letter could not be kept; the message comes again");
        }
        let kind = match (&dead, nack.kind) {
            (Some(_), _) if has_arrived => AckKind::Term,
            (None, NackKind::Release) => AckKind::Nak(None),
            _ => AckKind::Nak(Some(self.pause(loan))),
        };
        self.send(&loan.reply, kind).await?;
        self.freed.notify_one();
        if has_arrived { Ok(()) } else { Err(SettleError::ConnectionLost) }
    }

    /// Moves a message that nobody is to try any more.
    pub(super) async fn bury_at_delivery(&self, loan: &Loan, failure: &Failure) {
        // The delivery that finds it used up is no try.
        let attempts = loan.attempt.saturating_sub(u32::from(*failure == Failure::AckTimeout));
        match self.write_dead(loan, attempts, failure).await {
            Ok(()) => self.tell(&loan.reply, AckKind::Term).await,
            Err(error) => {
                let topic = &*self.member.topic.name;
                tracing::warn!(%error, topic, id = %loan.id, "a dead letter could not be kept; the message comes again");
                self.tell(&loan.reply, AckKind::Nak(Some(self.pause(loan)))).await;
            }
        }
    }

    /// Sends out what is still on its way.
    pub(super) async fn flush(&self) {
        if let Some(seat) = &self.seat
            && !matches!(tokio::time::timeout(SENDS_WITHIN, seat.session.client.flush()).await, Ok(Ok(())))
        {
            tracing::debug!("not all answers got out to NATS; what they were about comes again");
        }
    }

    async fn write_dead(&self, loan: &Loan, attempts: u32, failure: &Failure) -> Result<(), NatsError> {
        let seat = self.connected()?;
        seat.ensure_dead(&self.member).await?;
        let (dead, sequence) = (self.member.topic.dead(), loan.id.offset);
        let remnant = loan.remnant(&self.group, attempts);
        let died_at = self.clock.now();
        dead::write(&seat.session, &dead, sequence, &loan.frame, &remnant, failure, died_at).await
    }

    fn connected(&self) -> Result<&Seat, NatsError> {
        self.seat.as_ref().ok_or_else(|| NatsError::unavailable("not connected now"))
    }

    /// How long a failed message waits: a chance part of the longest wait.
    fn pause(&self, loan: &Loan) -> Duration {
        self.member.settings.backoff.after(loan.attempt)
    }
}
