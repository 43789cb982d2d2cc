//! Figures of the collector.

use gpuvitals_core::Status;
use gpuvitals_core::figures::{Family, Kind};

use crate::CollectorProgress;

/// Figures of the collector. Every count is there from the start.
pub fn families(progress: &CollectorProgress, workers: usize) -> Vec<Family> {
    let refused = [("future", &progress.rows_future), ("invalid", &progress.messages_refused)];
    vec![
        Family::counter(
            "gpuvitals_collector_rows_stored_total",
            "Rows made durable, repeats among them.",
            &progress.rows_stored,
        ),
        Family::new(
            "gpuvitals_collector_refused_total",
            Kind::Counter,
            "Rows or frames refused: their time is in the future, or they are no rows (these are dead letters).",
        )
        .by("reason", refused),
        Family::new(
            "gpuvitals_collector_rows_ahead_total",
            Kind::Counter,
            "Rows whose time was more than 5 s ahead of the clock here, by host. They were stored, and count for the latest \
             state when their time has come.",
        )
        .by("host", progress.rows_ahead().into_iter().map(|(host, rows)| (host.to_string(), rows))),
        Family::counter(
            "gpuvitals_collector_values_invalid_total",
            "Values left out of rows that were taken: they cannot be true, or no column takes them.",
            &progress.values_invalid,
        ),
        Family::counter(
            "gpuvitals_collector_store_failures_total",
            "Tries to store that failed; they are repeated.",
            &progress.store_failures,
        ),
        Family::gauge(
            "gpuvitals_collector_healthy",
            "1 where rows can be stored.",
            progress.health().status == Status::Healthy,
        ),
        Family::gauge("gpuvitals_collector_workers", "Workers.", workers),
        Family::histogram(
            "gpuvitals_collector_store_duration_seconds",
            "Time until rows that came together were durable.",
            &progress.latency,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use gpuvitals_core::figures::render;

    use super::*;

    #[test]
    fn everything_is_counted_and_the_histogram_adds_up() {
        let progress = CollectorProgress::new();
        progress.stored(7, Duration::from_micros(300));
        progress.stored(2, Duration::from_mins(1));
        progress.rows_future.store(3, Ordering::Relaxed);
        progress.ahead("node-1", 2);
        progress.ahead("node-1", 3);
        progress.not_stored("disk full");
        let text = String::from_utf8(render(&families(&progress, 4))).unwrap();
        for line in [
            "# TYPE gpuvitals_collector_rows_stored_total counter",
            "gpuvitals_collector_rows_stored_total 9",
            "gpuvitals_collector_refused_total{reason=\"future\"} 3",
            "gpuvitals_collector_refused_total{reason=\"invalid\"} 0",
            "gpuvitals_collector_rows_ahead_total{host=\"node-1\"} 5",
            "gpuvitals_collector_values_invalid_total 0",
            "gpuvitals_collector_store_failures_total 1",
            "gpuvitals_collector_healthy 0",
            "gpuvitals_collector_store_duration_seconds_bucket{le=\"0.00025\"} 0",
            "gpuvitals_collector_store_duration_seconds_bucket{le=\"0.0005\"} 1",
            "gpuvitals_collector_store_duration_seconds_bucket{le=\"+Inf\"} 2",
            "gpuvitals_collector_store_duration_seconds_sum 60.0003",
            "gpuvitals_collector_store_duration_seconds_count 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches("# TYPE gpuvitals_collector_refused_total").count(), 1);
    }
}
