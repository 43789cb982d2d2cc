//! What the exporter counts about itself.

use std::sync::atomic::{AtomicU64, Ordering};

use gpuvitals_core::figures::{Family, Kind};

use super::spans::Waiting;

/// Counts of the exporter.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Spans that the receiver has.
    pub(super) spans_sent: AtomicU64,
    /// Spans that it refused.
    pub(super) spans_refused: AtomicU64,
    /// Times that all metrics were taken.
    pub(super) metrics_sent: AtomicU64,
    /// Data points that it refused of metrics it took.
    pub(super) points_refused: AtomicU64,
    /// Requests that failed, of spans or of metrics.
    pub(super) failures: AtomicU64,
}

/// As families.
pub(super) fn families(counts: &Counts, waiting: &Waiting) -> Vec<Family> {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    vec![
        Family::counter(
            "gpuvitals_otlp_spans_sent_total",
            "Spans that the receiver of OTLP took.",
            read(&counts.spans_sent),
        ),
        Family::new(
            "gpuvitals_otlp_spans_dropped_total",
            Kind::Counter,
            "Spans that were not sent: too many waited, or the receiver refused them.",
        )
        .by("reason", [("no_room", read(&waiting.dropped)), ("refused", read(&counts.spans_refused))]),
        Family::gauge("gpuvitals_otlp_spans_waiting", "Spans that wait to be sent.", waiting.len()),
        Family::counter(
            "gpuvitals_otlp_metrics_sent_total",
            "Times that the receiver of OTLP took all metrics.",
            read(&counts.metrics_sent),
        ),
        Family::counter(
            "gpuvitals_otlp_points_refused_total",
            "Data points of metrics that the receiver of OTLP refused.",
            read(&counts.points_refused),
        ),
        Family::counter(
            "gpuvitals_otlp_failures_total",
            "Requests by OTLP that failed.",
            read(&counts.failures),
        ),
    ]
}
