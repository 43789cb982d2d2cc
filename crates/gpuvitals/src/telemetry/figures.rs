//! What the exporter counts about itself.

use std::sync::atomic::{AtomicU64, Ordering};

use gpuvitals_exposition::{Family, Kind, Labels};

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

/// As families for Prometheus.
pub(super) fn families(counts: &Counts, waiting: &Waiting) -> Vec<Family> {
    #[expect(clippy::cast_precision_loss, reason = "as in every Prometheus client")]
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let one =
        |name, help, value| Family { name, help, kind: Kind::Counter, samples: vec![(Labels::new(), value)] };
    let reason = |reason: &str| vec![("reason", reason.to_owned())];
    let waiting_spans = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
    vec![
        one(
            "gpuvitals_otlp_spans_sent_total",
            "Spans that the receiver of OTLP took.",
            read(&counts.spans_sent),
        ),
        Family {
            name: "gpuvitals_otlp_spans_dropped_total",
            help: "Spans that were not sent: too many waited, or the receiver refused them.",
            kind: Kind::Counter,
            samples: vec![
                (reason("no_room"), read(&waiting.dropped)),
                (reason("refused"), read(&counts.spans_refused)),
            ],
        },
        Family {
            name: "gpuvitals_otlp_spans_waiting",
            help: "Spans that wait to be sent.",
            kind: Kind::Gauge,
            samples: vec![(Labels::new(), waiting_spans.into())],
        },
        one(
            "gpuvitals_otlp_metrics_sent_total",
            "Times that the receiver of OTLP took all metrics.",
            read(&counts.metrics_sent),
        ),
        one(
            "gpuvitals_otlp_points_refused_total",
            "Data points of metrics that the receiver of OTLP refused.",
            read(&counts.points_refused),
        ),
        one("gpuvitals_otlp_failures_total", "Requests by OTLP that failed.", read(&counts.failures)),
    ]
}
