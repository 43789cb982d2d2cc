//! How long things took, as Prometheus reads it: the one histogram of all that serve `/metrics`.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets: microseconds and their spelling in seconds. From a publish in memory to a request that was given up,
/// two or three a decade, with one at each limit that is promised somewhere (1 ms, 5 ms, 10 ms, 50 ms).
const BOUNDS: [(u64, &str); 15] = [
    (100, "0.0001"),
    (250, "0.00025"),
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (1_000_000, "1"),
    (2_500_000, "2.5"),
    (10_000_000, "10"),
];

/// Durations, counted in buckets. All of them have the same bounds, so that what one service took can be laid over what another
/// did. Counted without a lock.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    /// Something took this long.
    pub fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let place = BOUNDS.partition_point(|(bound, _)| *bound < micros);
        if let Some(bucket) = self.buckets.get(place) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Writes its series: `name` is that of the family, in seconds, and `labels` are set on each (`route="/health"`, or none).
    ///
    /// # Errors
    /// When `text` takes no more; a string always does.
    pub fn write(&self, text: &mut impl Write, name: &str, labels: &str) -> std::fmt::Result {
        let (before, braced) = match labels {
            "" => (String::new(), String::new()),
            labels => (format!("{labels},"), format!("{{{labels}}}")),
        };
        let mut sum = 0;
        for (bound, count) in BOUNDS.iter().map(|(_, bound)| *bound).chain(["+Inf"]).zip(&self.buckets) {
            sum += count.load(Ordering::Relaxed);
            writeln!(text, "{name}_bucket{{{before}le=\"{bound}\"}} {sum}")?;
        }
        let micros = self.micros.load(Ordering::Relaxed);
        writeln!(text, "{name}_sum{braced} {}.{:06}", micros / 1_000_000, micros % 1_000_000)?;
        writeln!(text, "{name}_count{braced} {sum}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_at_a_bound_is_below_it_and_the_buckets_add_up() {
        let histogram = Histogram::default();
        for took in [Duration::ZERO, Duration::from_micros(100), Duration::from_micros(101)] {
            histogram.observe(took);
        }
        histogram.observe(Duration::from_mins(1));
        let text = |labels| {
            let mut text = String::new();
            histogram.write(&mut text, "wait_seconds", labels).unwrap();
            text
        };
        let bare = text("");
        let lines: Vec<&str> = bare.lines().collect();
        assert_eq!(lines.len(), BOUNDS.len() + 3);
        assert_eq!(
            &lines[..2],
            ["wait_seconds_bucket{le=\"0.0001\"} 2", "wait_seconds_bucket{le=\"0.00025\"} 3"]
        );
        let end = &lines[BOUNDS.len() - 1..];
        assert_eq!(end[..2], ["wait_seconds_bucket{le=\"10\"} 3", "wait_seconds_bucket{le=\"+Inf\"} 4"]);
        assert_eq!(end[2..], ["wait_seconds_sum 60.000201", "wait_seconds_count 4"]);
        let labelled = text("route=\"/\"");
        assert!(labelled.starts_with("wait_seconds_bucket{route=\"/\",le=\"0.0001\"} 2\n"), "{labelled}");
        assert!(labelled.ends_with("wait_seconds_count{route=\"/\"} 4\n"), "{labelled}");
    }

    #[test]
    fn bounds_rise_and_are_spelled_as_they_are() {
        assert!(BOUNDS.is_sorted_by(|a, b| a.0 < b.0));
        for (micros, seconds) in BOUNDS {
            assert_eq!(Duration::from_secs_f64(seconds.parse().unwrap()), Duration::from_micros(micros));
        }
    }
}
