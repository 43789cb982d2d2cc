//! What becomes of messages, counted.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use gpuvitals_core::clock;
use gpuvitals_core::figures::{Family, Kind};
use gpuvitals_core::time::MINUTE_NS;

/// Of messages that are not taken for one reason one a minute is in the log.
const SAID_EVERY_NS: i64 = MINUTE_NS;

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It changed what is known of a job.
    Taken,
    /// Its sender may not tell.
    Stranger,
    /// It is no message.
    Malformed,
    /// It did not come in time.
    Late,
    /// Too many jobs are known.
    Full,
    /// The system gave no connection for it.
    Failed,
}

impl Heard {
    const ALL: [Self; 6] =
        [Self::Taken, Self::Stranger, Self::Malformed, Self::Late, Self::Full, Self::Failed];

    fn name(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Stranger => "stranger",
            Self::Malformed => "malformed",
            Self::Late => "late",
            Self::Full => "full",
            Self::Failed => "failed",
        }
    }
}

/// What became of messages so far.
#[derive(Debug, Default)]
pub(crate) struct HeardCounts {
    counts: [AtomicU64; Heard::ALL.len()],
    /// When each was last in the log, monotonic; 0: never.
    said_ns: [AtomicI64; Heard::ALL.len()],
}

impl HeardCounts {
    /// Counts a message; one that is not taken is said, with the reason.
    pub(super) fn note(&self, heard: Heard, why: &str) {
        let (Some(count), Some(said_ns)) =
            (self.counts.get(heard as usize), self.said_ns.get(heard as usize))
        else {
            return;
        };
        count.fetch_add(1, Ordering::Relaxed);
        let (now_ns, last_ns) = (clock::mono_ns(), said_ns.load(Ordering::Relaxed));
        if heard != Heard::Taken && (last_ns == 0 || now_ns - last_ns >= SAID_EVERY_NS) {
            said_ns.store(now_ns, Ordering::Relaxed);
            tracing::warn!(
                why,
                cause = heard.name(),
                "a hook's message was not taken; more of this cause are only counted"
            );
        }
    }

    pub(crate) fn family(&self) -> Family {
        let counts = Heard::ALL.into_iter().zip(&self.counts);
        let counts = counts.map(|(heard, count)| (heard.name(), count.load(Ordering::Relaxed)));
        Family::new(
            "gpuvitals_job_messages_total",
            Kind::Counter,
            "Messages of a batch system's hooks, by what became of them.",
        )
        .by("result", counts)
    }
}
