//! Durations in buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::Number;

/// Upper bounds of the buckets in microseconds, each inclusive; one more bucket takes longer durations. From
/// a publish in memory to an abandoned request, two or three a decade, with one at each promised limit (1 ms,
/// 5 ms, 10 ms, 50 ms).
pub const BUCKET_BOUNDS: [u64; 15] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000,
];
const BUCKETS: usize = BUCKET_BOUNDS.len() + 1;

/// Counts durations, without a lock. All histograms have the same bounds, so that the latencies of two
/// services can be compared.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    micros: AtomicU64,
}

/// Counts of a histogram so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketCounts {
    /// Durations in each bucket, by [`BUCKET_BOUNDS`]; not cumulative.
    pub counts: [u64; BUCKETS],
    /// Sum of the durations in microseconds.
    pub micros: u64,
}

impl Histogram {
    /// Counts a duration.
    pub fn observe(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let place = BUCKET_BOUNDS.partition_point(|bound| *bound < micros);
        if let Some(bucket) = self.buckets.get(place) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn read(&self) -> BucketCounts {
        let counts = self.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed));
        BucketCounts { counts, micros: self.micros.load(Ordering::Relaxed) }
    }
}

impl BucketCounts {
    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The series of a histogram in Prometheus' form: suffix of the name, upper bound in seconds of a bucket, and value. Buckets are
    /// cumulative; after them come the sum in seconds and the count.
    pub fn series(&self) -> impl Iterator<Item = (&'static str, Option<String>, Number)> {
        let seconds = |micros: u64| {
            Number::Nanoseconds(i64::try_from(micros).unwrap_or(i64::MAX).saturating_mul(1_000))
        };
        let bounds =
            BUCKET_BOUNDS.map(|micros| seconds(micros).text()).into_iter().chain(["+Inf".to_owned()]);
        let sums = self.counts.into_iter().scan(0_u64, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        let buckets = bounds.zip(sums).map(|(bound, sum)| ("_bucket", Some(bound), sum.into()));
        buckets.chain([("_sum", None, seconds(self.micros)), ("_count", None, self.count().into())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_at_a_bound_is_in_the_bucket_below_it() {
        let histogram = Histogram::default();
        for took in [Duration::ZERO, Duration::from_micros(100), Duration::from_micros(101)] {
            histogram.observe(took);
        }
        histogram.observe(Duration::from_mins(1));
        let BucketCounts { counts, micros } = histogram.read();
        assert_eq!((counts[0], counts[1], counts[BUCKETS - 1]), (2, 1, 1));
        assert_eq!((histogram.read().count(), micros), (4, 60_000_201));
        assert!(BUCKET_BOUNDS.is_sorted());
    }
}
