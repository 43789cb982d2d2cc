//! What is not well with a queue, by cause: for its health, and for the log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gpuvitals_core::Status;

use crate::frame::Millis;
use crate::stats::QueueHealth;

/// How long a passing trouble shows after it last happened.
const SHOWS: Duration = Duration::from_secs(10);
/// How often one cause is logged at most.
const LOGGED_EVERY: Duration = Duration::from_mins(1);

/// The cause of a problem of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// A topic is at its bound and refused publishers lately.
    Full,
    /// A topic has dead letters.
    DeadLetters,
    /// Something could not be written lately.
    Store,
    /// Something could not be read back lately.
    Read,
    /// Parts of the log are damaged.
    Damage,
    /// Nothing can be stored until the queue is reopened.
    Poisoned,
    /// The queue is shutting down.
    Closing,
}

impl Cause {
    fn status(self) -> Status {
        match self {
            Self::Poisoned | Self::Closing => Status::Unhealthy,
            _ => Status::Degraded,
        }
    }

    /// Whether it is logged here: problems found at a start or an end are logged there.
    fn is_logged(self) -> bool {
        !matches!(self, Self::Damage | Self::Poisoned | Self::Closing)
    }
}

/// Something that is not well, and what it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) cause: Cause,
    /// Topic, if it is about one.
    pub(crate) topic: Option<Arc<str>>,
    /// A sentence with its count.
    pub(crate) words: String,
}

impl Trouble {
    /// A problem of the whole queue.
    pub(crate) fn new(cause: Cause, words: String) -> Self {
        Self { cause, topic: None, words }
    }
}

/// The health that results from these.
pub(crate) fn health(troubles: Vec<Trouble>) -> QueueHealth {
    let worst = troubles.iter().map(|trouble| trouble.cause.status()).max();
    QueueHealth {
        status: worst.unwrap_or(Status::Healthy),
        reasons: troubles.into_iter().map(|trouble| trouble.words).collect(),
    }
}

/// A temporary problem: how often it happened since it was last well, and when last.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    count: u64,
    last: Option<Millis>,
}

impl Recent {
    /// Adds `count` occurrences.
    pub(crate) fn note(&mut self, now: Millis, count: u64) {
        self.count = self.lately(now).unwrap_or(0).saturating_add(count);
        self.last = Some(now);
    }

    /// Number of occurrences, if it is still shown.
    pub(crate) fn lately(&self, now: Millis) -> Option<u64> {
        self.last.filter(|last| now.since(*last) < SHOWS).map(|_| self.count)
    }
}

/// Logs problems: each cause when it begins, again at most once a minute while its words change, and when it
/// is over.
#[derive(Debug, Default)]
pub(crate) struct TroubleLog {
    logged: BTreeMap<Subject, Logged>,
}

/// The subject of a problem: a cause, and a topic if it is about one.
type Subject = (Cause, Option<Arc<str>>);

#[derive(Debug)]
struct Logged {
    at: Millis,
    words: String,
}

impl TroubleLog {
    /// Processes the present problems.
    pub(crate) fn look(&mut self, now: Millis, troubles: &[Trouble]) {
        let is_quiet = |logged: &Logged| now.since(logged.at) < LOGGED_EVERY;
        for Trouble { cause, topic, words } in troubles.iter().filter(|trouble| trouble.cause.is_logged()) {
            let key = (*cause, topic.clone());
            if self.logged.get(&key).is_none_or(|logged| logged.words != *words && !is_quiet(logged)) {
                tracing::warn!("{words}");
                self.logged.insert(key, Logged { at: now, words: words.clone() });
            }
        }
        self.logged.retain(|(cause, topic), logged| {
            let is_there = troubles.iter().any(|trouble| trouble.cause == *cause && trouble.topic == *topic);
            if is_there || is_quiet(logged) {
                return true;
            }
            tracing::info!("no longer so: {}", logged.words);
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::{Millis, Recent};

    #[test]
    fn what_passes_is_counted_from_when_it_began() {
        let mut recent = Recent::default();
        assert_eq!(recent.lately(Millis(0)), None);
        recent.note(Millis(0), 2);
        recent.note(Millis(9_999), 3);
        assert_eq!(recent.lately(Millis(19_998)), Some(5));
        assert_eq!(recent.lately(Millis(19_999)), None);
        recent.note(Millis(30_000), 1);
        assert_eq!(recent.lately(Millis(30_000)), Some(1));
    }
}
