//! From queue to store: decode, validate, make durable, acknowledge.
//!
//! A frame is acknowledged after the store has synced its rows, never before. While the store cannot take rows (a
//! full disk) a worker keeps what it has, extends its leases and tries again; it takes nothing new, so the queue
//! fills and the source slows down. What can never be stored goes to the dead letters with its reason.

mod opening;
mod progress;
mod worker;

use gpuvitals_core::causes;
use gpuvitals_queue::Consumer;
use tokio::task::{JoinError, JoinSet};

use crate::failure::{Exit, Failure};

pub(crate) use opening::unpacked;
pub(crate) use progress::Progress;
pub(crate) use worker::{Ended, Terms};

/// Sets a worker going for each consumer.
pub(crate) fn spawn<C>(consumers: Vec<C>, terms: &Terms) -> JoinSet<Ended>
where
    C: Consumer + Sync + 'static,
{
    consumers.into_iter().map(|consumer| worker::work(consumer, terms.clone())).collect()
}

/// What it means that a worker ended although nobody told it to.
pub(crate) fn ended_early(ended: Result<Ended, JoinError>) -> Failure {
    match ended {
        Ok(Ended::Queue(error)) => {
            Failure::new(Exit::Unavailable, format!("nothing can be collected any more: {}", causes(&error)))
        }
        Ok(ended) => Failure::new(Exit::Bug, format!("a collector ended before its time: {ended:?}")),
        Err(error) => Failure::caused(Exit::Bug, "a collector ended by a panic", error),
    }
}
