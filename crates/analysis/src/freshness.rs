//! Which values are old.

use gpuvitals_core::MetricId;
use gpuvitals_core::batch::Value;
use gpuvitals_core::history::{Fleet, GpuState};

/// An instant, and the age from which a value is old at it.
#[derive(Debug, Clone, Copy)]
pub struct Freshness {
    /// The instant, now as a rule, nanoseconds UTC since 1970.
    pub now_ns: i64,
    /// The age, nanoseconds.
    pub stale_after_ns: i64,
}

impl Freshness {
    /// Whether a value of this time is old.
    pub fn is_old(self, at_ns: i64) -> bool {
        self.now_ns.saturating_sub(at_ns) > self.stale_after_ns
    }

    /// The latest value of a metric unless it is old.
    pub fn recent(self, gpu: &GpuState, metric: MetricId) -> Option<Value> {
        let latest = Fleet::latest(gpu, metric)?;
        (!self.is_old(latest.timestamp_ns)).then_some(latest.value)
    }

    /// Whether a GPU has rows, but no values any more, or never had any.
    pub fn is_blank(self, gpu: &GpuState) -> bool {
        let has_none = gpu.latest.is_empty() && gpu.extras.is_empty();
        !self.is_old(gpu.last_seen_ns) && (has_none || self.is_old(newest_value(gpu)))
    }
}

/// When a GPU had its newest value; without any when it was last seen.
pub(crate) fn newest_value(gpu: &GpuState) -> i64 {
    gpu.latest.iter().map(|(_, latest)| latest.timestamp_ns).max().unwrap_or(gpu.last_seen_ns)
}
