//! What the gateway counts about itself, beside what its listener counts.

use std::sync::atomic::{AtomicU64, Ordering};

use gpuvitals_core::figures::Family;
use gpuvitals_core::number::float;

use crate::dto::GatewayStats;

/// Counters of the gateway.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    hits: AtomicU64,
    misses: AtomicU64,
    missed: AtomicU64,
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Meter {
    /// An answer came from the cache.
    pub(crate) fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// An answer had to be made.
    pub(crate) fn miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// A slow client lost batches.
    pub(crate) fn lagged(&self, batches: u64) {
        self.missed.fetch_add(batches, Ordering::Relaxed);
    }

    /// Answers from the cache.
    pub(crate) fn hits(&self) -> u64 {
        read(&self.hits)
    }

    /// Answers that were made.
    pub(crate) fn misses(&self) -> u64 {
        read(&self.misses)
    }

    /// Share of answers that came from the cache.
    pub(crate) fn hit_rate(&self) -> Option<f64> {
        let (hits, misses) = (self.hits(), self.misses());
        let all = hits.saturating_add(misses);
        (all > 0).then(|| float(hits) / float(all))
    }

    /// What `/metrics` shows of it.
    pub(crate) fn families(&self, stats: &GatewayStats) -> Vec<Family> {
        let memory = stats.memory_bytes.map(|bytes| {
            Family::gauge("process_resident_memory_bytes", "Resident memory of the process.", bytes)
        });
        let families = vec![
            Family::counter(
                "gpuvitals_gateway_cache_hits_total",
                "Answers from the cache.",
                stats.cache_hits,
            ),
            Family::counter(
                "gpuvitals_gateway_cache_misses_total",
                "Answers that had to be made.",
                stats.cache_misses,
            ),
            Family::gauge("gpuvitals_gateway_cache_bytes", "Bytes of ready answers.", stats.cache_bytes),
            Family::gauge("gpuvitals_gateway_streams", "Live streams that are open.", stats.streams),
            Family::counter(
                "gpuvitals_gateway_stream_missed_total",
                "Batches that slow clients of live streams lost.",
                read(&self.missed),
            ),
            Family::gauge(
                "gpuvitals_gateway_uptime_seconds",
                "Time since the gateway started.",
                stats.uptime_seconds,
            ),
        ];
        families.into_iter().chain(memory).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_share_of_hits() {
        let meter = Meter::default();
        assert_eq!(meter.hit_rate(), None);
        meter.hit();
        meter.hit();
        meter.miss();
        assert_eq!(meter.hit_rate().map(|rate| (rate * 3.0).round()), Some(2.0));
    }
}
