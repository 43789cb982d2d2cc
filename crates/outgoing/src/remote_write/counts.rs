//! Counts of remote write, and its log lines about the receiver.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpuvitals_core::figures::{Family, Kind};

/// What happened to the samples.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    sent: AtomicU64,
    refused: AtomicU64,
    too_old: AtomicU64,
    out_of_order: AtomicU64,
    unqueued: AtomicU64,
    bytes: AtomicU64,
    requests: AtomicU64,
    failures: AtomicU64,
    /// The last request found no receiver, or one that had no room.
    is_away: AtomicBool,
    /// The last answer was a refusal.
    is_refusing: AtomicBool,
}

fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

impl Counts {
    /// A request goes out with a body of so many bytes.
    pub(crate) fn goes_out(&self, bytes: usize) {
        add(&self.requests, 1);
        add(&self.bytes, bytes.try_into().unwrap_or(u64::MAX));
    }

    /// The receiver took these samples of a request, and dropped the others.
    pub(crate) fn answered(&self, taken: u64, refused: u64) {
        add(&self.sent, taken);
        add(&self.refused, refused);
        if self.is_away.swap(false, Ordering::Relaxed) {
            tracing::info!("the receiver of remote write answers again");
        }
    }

    /// The receiver has refused samples; said once until it takes a request.
    pub(crate) fn refused(&self, samples: u64, reason: &str) {
        if self.is_refusing.swap(true, Ordering::Relaxed) {
            tracing::debug!(
                samples,
                reason,
                "the receiver of remote write refuses samples, which are dropped"
            );
        } else {
            tracing::warn!(
                samples,
                reason,
                "the receiver of remote write refuses samples, which are dropped"
            );
        }
    }

    /// The receiver took a whole request.
    pub(crate) fn accepted(&self) {
        if self.is_refusing.swap(false, Ordering::Relaxed) {
            tracing::info!("the receiver of remote write takes samples again");
        }
    }

    /// A request has failed and is sent again.
    pub(crate) fn failed(&self, reason: &str) {
        add(&self.failures, 1);
        if !self.is_away.swap(true, Ordering::Relaxed) {
            tracing::warn!(reason, "the receiver of remote write takes nothing; samples wait");
        }
    }

    /// Samples have waited for too long.
    pub(crate) fn too_old(&self, samples: u64) {
        add(&self.too_old, samples);
    }

    /// Samples are older than one of their series that was sent.
    pub(crate) fn out_of_order(&self, samples: u64) {
        add(&self.out_of_order, samples);
    }

    /// Samples found no place in the queue.
    pub(crate) fn unqueued(&self, samples: u32) {
        add(&self.unqueued, samples.into());
    }

    /// As families; `waiting` samples are in the queue, `at_limit` were dropped by it.
    pub(crate) fn families(&self, waiting: u64, at_limit: u64) -> Vec<Family> {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let dropped = [
            ("limit", at_limit + count(&self.unqueued)),
            ("age", count(&self.too_old)),
            ("refused", count(&self.refused)),
            ("order", count(&self.out_of_order)),
        ];
        vec![
            Family::gauge(
                "gpuvitals_remote_write_up",
                "Whether the receiver of remote write answered the last request.",
                !self.is_away.load(Ordering::Relaxed),
            ),
            Family::counter(
                "gpuvitals_remote_write_samples_sent_total",
                "Samples that the receiver of remote write took.",
                &self.sent,
            ),
            Family::new(
                "gpuvitals_remote_write_samples_dropped_total",
                Kind::Counter,
                "Samples that were not sent: more waited than there is room for, they waited too long, the receiver refused \
                 them, or the clock was set back.",
            )
            .by("reason", dropped),
            Family::gauge(
                "gpuvitals_remote_write_samples_waiting",
                "Samples that wait to be sent, or are being sent.",
                waiting,
            ),
            Family::counter(
                "gpuvitals_remote_write_requests_total",
                "Requests to the receiver of remote write.",
                &self.requests,
            ),
            Family::counter(
                "gpuvitals_remote_write_failures_total",
                "Requests that found no receiver, or none with room, and were sent again.",
                &self.failures,
            ),
            Family::counter(
                "gpuvitals_remote_write_sent_bytes_total",
                "Bytes of the bodies of all requests, compressed.",
                &self.bytes,
            ),
        ]
    }
}
