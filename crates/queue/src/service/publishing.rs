//! A publish under way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::broker::{PublishError, Receipt};

/// A publish under way: frames are taken in the order in which they were handed over, whenever their outcomes are
/// awaited. Dropping it does not take the frame back.
#[derive(Debug)]
#[must_use = "a publish may fail"]
pub struct Publishing(PublishingState);

#[derive(Debug)]
enum PublishingState {
    Done(Option<Result<Receipt, PublishError>>),
    UnderWay(oneshot::Receiver<Result<Receipt, PublishError>>),
}

impl Publishing {
    /// One whose outcome is known.
    pub(crate) fn done(outcome: Result<Receipt, PublishError>) -> Self {
        Self(PublishingState::Done(Some(outcome)))
    }

    /// One whose outcome will be sent. A sender that is dropped means that the queue has closed.
    pub(crate) fn under_way(outcome: oneshot::Receiver<Result<Receipt, PublishError>>) -> Self {
        Self(PublishingState::UnderWay(outcome))
    }
}

impl Future for Publishing {
    type Output = Result<Receipt, PublishError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            PublishingState::Done(outcome) => {
                Poll::Ready(outcome.take().unwrap_or(Err(PublishError::Closed)))
            }
            PublishingState::UnderWay(outcome) => {
                Pin::new(outcome).poll(context).map(|sent| sent.unwrap_or(Err(PublishError::Closed)))
            }
        }
    }
}
