//! The counts of remote write under their names.

use gpuvitals_core::figures::{Family, Kind};

use crate::counts::ReceiverCounts;

/// As families; so many samples wait.
pub(super) fn families(counts: &ReceiverCounts, waiting: u64) -> Vec<Family> {
    let dropped = [
        ("limit", &counts.no_room),
        ("age", &counts.too_old),
        ("refused", &counts.refused),
        ("order", &counts.out_of_order),
    ];
    vec![
        Family::gauge(
            "gpuvitals_remote_write_up",
            "Whether the receiver of remote write answered the last request.",
            !counts.standing().is_away,
        ),
        Family::counter(
            "gpuvitals_remote_write_samples_sent_total",
            "Samples that the receiver of remote write took.",
            &counts.taken,
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
            &counts.requests,
        ),
        Family::counter(
            "gpuvitals_remote_write_failures_total",
            "Requests that found no receiver, or none with room, and were sent again.",
            &counts.postponed,
        ),
        Family::counter(
            "gpuvitals_remote_write_sent_bytes_total",
            "Bytes of the bodies of all requests, compressed.",
            &counts.bytes,
        ),
    ]
}
