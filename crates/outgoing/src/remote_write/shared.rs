//! Sender and receiver share what is counted.

use gpuvitals_queue::link::Outbox;

use super::counts::Counts;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) outbox: Outbox,
    pub(crate) counts: Counts,
}
