//! Counts of the exporter under their names, and its log lines about the receiver.

use std::sync::atomic::AtomicU64;

use gpuvitals_core::figures::{Family, Kind};

use crate::counts::{ReceiverCounts, read};
use crate::verdict::{Standing, Verdict};

/// Counts of both signals. A receiver may take one of them and not the other.
#[derive(Debug, Default)]
pub(super) struct OtlpCounts {
    pub(super) spans: ReceiverCounts,
    /// Spans that wait to be sent, or are being sent.
    pub(super) spans_waiting: AtomicU64,
    /// Of metrics the data points.
    pub(super) points: ReceiverCounts,
}

impl OtlpCounts {
    /// As families; so many data points wait.
    pub(super) fn families(&self, points_waiting: u64) -> Vec<Family> {
        let Self { spans, spans_waiting, points } = self;
        let failures = [spans, points].map(|it| read(&it.postponed) + read(&it.refusals));
        vec![
            Family::counter(
                "gpuvitals_otlp_spans_sent_total",
                "Spans in batches that the receiver of OTLP took, with those that it refused within one.",
                &spans.taken,
            ),
            Family::new(
                "gpuvitals_otlp_spans_dropped_total",
                Kind::Counter,
                "Spans that were not sent: too many waited, or the receiver did not take them.",
            )
            .by("reason", [("no_room", &spans.no_room), ("not_taken", &spans.refused)]),
            Family::gauge("gpuvitals_otlp_spans_waiting", "Spans that wait to be sent.", spans_waiting),
            Family::counter(
                "gpuvitals_otlp_points_sent_total",
                "Data points of metrics in requests that the receiver of OTLP took, with those that it refused within one.",
                read(&points.taken) + read(&points.left_out),
            ),
            Family::new(
                "gpuvitals_otlp_points_dropped_total",
                Kind::Counter,
                "Data points of metrics that were lost: the queue was full, or the receiver refused the request or a part of it.",
            )
            .by(
                "reason",
                [("no_room", &points.no_room), ("not_taken", &points.refused), ("refused", &points.left_out)],
            ),
            Family::gauge(
                "gpuvitals_otlp_points_waiting",
                "Data points of metrics that wait to be sent, or are being sent.",
                points_waiting,
            ),
            Family::counter(
                "gpuvitals_otlp_failures_total",
                "Sendings by OTLP that failed.",
                failures.iter().sum::<u64>(),
            ),
        ]
    }
}

/// Says of a signal that the receiver does not take it, or takes it again; each change once.
pub(super) fn tell(signal: &'static str, before: Standing, verdict: &Verdict) {
    match verdict {
        Verdict::Taken { .. } if before.is_failing() => {
            tracing::info!(signal, "the receiver of OTLP takes data again");
        }
        Verdict::Refused { reason, .. } | Verdict::Later { reason, .. } if !before.is_failing() => {
            tracing::warn!(signal, reason, "the OTLP receiver does not accept data");
        }
        _ => {}
    }
}
