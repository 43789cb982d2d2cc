//! Counts of the exporter, and its log lines about the receiver.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gpuvitals_core::figures::{Family, Kind};
use gpuvitals_queue::link::Outbox;

/// Counts of the exporter.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Spans that the receiver took.
    pub(super) spans_sent: AtomicU64,
    /// Spans of batches that the receiver did not take.
    pub(super) spans_not_taken: AtomicU64,
    /// Spans that found no room.
    pub(super) spans_no_room: AtomicU64,
    /// Spans that wait to be sent, or are being sent.
    pub(super) spans_waiting: AtomicU64,
    /// Data points of metrics in requests that the receiver took, with those that it refused within one.
    pub(super) points_sent: AtomicU64,
    /// Data points that the receiver refused of metrics it took.
    pub(super) points_refused: AtomicU64,
    /// Data points that found no room.
    pub(super) points_no_room: AtomicU64,
    /// Data points in requests that the receiver will never take.
    pub(super) points_not_taken: AtomicU64,
    /// Sendings that failed, of spans or of metrics.
    pub(super) failures: AtomicU64,
}

impl Counts {
    /// As families.
    pub(super) fn families(&self, outbox: &Outbox) -> Vec<Family> {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let points = [
            ("no_room", outbox.dropped() + count(&self.points_no_room)),
            ("not_taken", count(&self.points_not_taken)),
            ("refused", count(&self.points_refused)),
        ];
        let dropped = [("no_room", &self.spans_no_room), ("not_taken", &self.spans_not_taken)];
        vec![
            Family::counter(
                "gpuvitals_otlp_spans_sent_total",
                "Spans in batches that the receiver of OTLP took, with those that it refused within one.",
                &self.spans_sent,
            ),
            Family::new(
                "gpuvitals_otlp_spans_dropped_total",
                Kind::Counter,
                "Spans that were not sent: too many waited, or the receiver did not take them.",
            )
            .by("reason", dropped),
            Family::gauge("gpuvitals_otlp_spans_waiting", "Spans that wait to be sent.", &self.spans_waiting),
            Family::counter(
                "gpuvitals_otlp_points_sent_total",
                "Data points of metrics in requests that the receiver of OTLP took, with those that it refused within one.",
                &self.points_sent,
            ),
            Family::new(
                "gpuvitals_otlp_points_dropped_total",
                Kind::Counter,
                "Data points of metrics that were lost: the queue was full, or the receiver refused the request or a part of it.",
            )
            .by("reason", points),
            Family::gauge(
                "gpuvitals_otlp_points_waiting",
                "Data points of metrics that wait to be sent, or are being sent.",
                outbox.waiting(),
            ),
            Family::counter("gpuvitals_otlp_failures_total", "Sendings by OTLP that failed.", &self.failures),
        ]
    }
}

/// Traces or metrics. A receiver may take one of them and not the other; each change is logged once.
#[derive(Debug)]
pub(super) struct Signal {
    name: &'static str,
    is_failing: AtomicBool,
}

impl Signal {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, is_failing: AtomicBool::new(false) }
    }

    /// The receiver took a request.
    pub(super) fn taken(&self) {
        if self.is_failing.swap(false, Ordering::Relaxed) {
            tracing::info!(signal = self.name, "the receiver of OTLP takes data again");
        }
    }

    /// The receiver did not take a request.
    pub(super) fn not_taken(&self, reason: &str) {
        if !self.is_failing.swap(true, Ordering::Relaxed) {
            tracing::warn!(signal = self.name, reason, "the OTLP receiver does not accept data");
        }
    }
}
