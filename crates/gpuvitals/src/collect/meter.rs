//! What the collector says to Prometheus.

use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use gpuvitals_core::Status;
use gpuvitals_store::StoreStats;

use super::Progress;

const LATENCY: &str = "gpuvitals_collector_store_duration_seconds";

/// Prometheus text.
pub(crate) fn render(progress: &Progress, store: &StoreStats, workers: usize) -> String {
    let mut text = String::with_capacity(4 << 10);
    // Writing to a string does not fail.
    let _written = write(&mut text, progress, store, workers);
    text
}

fn write(text: &mut String, progress: &Progress, store: &StoreStats, workers: usize) -> std::fmt::Result {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut one = |name: &str, kind: &str, help: &str, value: &dyn Display| {
        let (bare, _) = name.split_once('{').unwrap_or((name, ""));
        if !help.is_empty() {
            writeln!(
                text,
                "# HELP gpuvitals_collector_{bare} {help}\n# TYPE gpuvitals_collector_{bare} {kind}"
            )?;
        }
        writeln!(text, "gpuvitals_collector_{name} {value}")
    };
    let stored = count(&progress.rows_stored);
    one("rows_stored_total", "counter", "Rows made durable, repeats among them.", &stored)?;
    let refused =
        "Rows or frames refused: their time is in the future, or they are no rows (these are dead letters).";
    one("refused_total{reason=\"future\"}", "counter", refused, &count(&progress.rows_future))?;
    one("refused_total{reason=\"invalid\"}", "counter", "", &count(&progress.messages_refused))?;
    let failures = count(&progress.store_failures);
    one("store_failures_total", "counter", "Tries to store that failed; they are repeated.", &failures)?;
    let healthy = u8::from(progress.health().status == Status::Healthy);
    one("healthy", "gauge", "1 where rows can be stored.", &healthy)?;
    one("workers", "gauge", "Workers.", &workers)?;
    one("gpus", "gauge", "GPUs that are known.", &store.gpus)?;
    one(
        "memory_rows",
        "gauge",
        "Rows that are in the log and in memory, and not in files yet.",
        &store.tail_rows,
    )?;
    one("cache_rows", "gauge", "Rows in files that are in memory as well.", &store.recent_rows)?;
    one("cache_bytes", "gauge", "Bytes of columns of these.", &store.recent_bytes)?;
    let (hits, asked) = (store.ends_from_memory, store.ends_asked);
    let help = "Questions for the rows of a GPU, by where the answer came from.";
    one("answers_total{from=\"memory\"}", "counter", help, &hits)?;
    one("answers_total{from=\"files\"}", "counter", "", &asked.saturating_sub(hits))?;
    let rows = store.flushed.rows + store.merged.rows;
    one("file_rows", "gauge", "Rows in files.", &rows)?;
    let bytes = store.flushed.bytes + store.merged.bytes;
    one("file_bytes", "gauge", "Bytes of files.", &bytes)?;
    writeln!(
        text,
        "# HELP {LATENCY} Time until rows that came together were durable.\n# TYPE {LATENCY} histogram"
    )?;
    progress.latency.write(text, LATENCY, "")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn everything_is_counted_and_the_histogram_adds_up() {
        let progress = Progress::new();
        progress.stored(7, Duration::from_micros(300));
        progress.stored(2, Duration::from_mins(1));
        progress.rows_future.store(3, Ordering::Relaxed);
        progress.not_stored("disk full");
        let store = StoreStats {
            gpus: 5,
            tail_rows: 9,
            recent_rows: 40,
            ends_asked: 10,
            ends_from_memory: 8,
            ..StoreStats::default()
        };
        let text = render(&progress, &store, 4);
        for line in [
            "# TYPE gpuvitals_collector_rows_stored_total counter",
            "gpuvitals_collector_rows_stored_total 9",
            "gpuvitals_collector_refused_total{reason=\"future\"} 3",
            "gpuvitals_collector_refused_total{reason=\"invalid\"} 0",
            "gpuvitals_collector_store_failures_total 1",
            "gpuvitals_collector_healthy 0",
            "gpuvitals_collector_gpus 5",
            "gpuvitals_collector_memory_rows 9",
            "gpuvitals_collector_cache_rows 40",
            "gpuvitals_collector_answers_total{from=\"memory\"} 8",
            "gpuvitals_collector_answers_total{from=\"files\"} 2",
            "gpuvitals_collector_store_duration_seconds_bucket{le=\"0.00025\"} 0",
            "gpuvitals_collector_store_duration_seconds_bucket{le=\"0.0005\"} 1",
            "gpuvitals_collector_store_duration_seconds_bucket{le=\"+Inf\"} 2",
            "gpuvitals_collector_store_duration_seconds_sum 60.000300",
            "gpuvitals_collector_store_duration_seconds_count 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches("# TYPE gpuvitals_collector_refused_total").count(), 1);
    }
}
