//! A place is the queue that is asked, and how.

use gpuvitals_queue::link::{Credentials, QueueUrl};

use crate::failure::{Exit, Failure};

/// Prefix of all groups of tails.
pub(crate) const TAIL_PREFIX: &str = "tail-";

/// The queue that is asked.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) url: QueueUrl,
    pub(super) access: Credentials,
    /// The remedy if it denies access.
    pub(super) way_in: String,
}

impl Place {
    /// It denied access.
    pub(super) fn denied(&self, why: &str) -> Failure {
        let text = format!("{why}; {} (the flag is --token-file)", self.way_in);
        Failure::new(Exit::Permission, text)
    }
}
