//! How a GPU works and rests under one holder, beside which it is seen that a job has stalled.

use gpuvitals_core::usage::IDLE_BELOW_PCT;

use super::threshold::LOADED_FROM_PCT;

/// Work and pauses of a GPU under its present holder, as far back as they were looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkRhythm {
    /// Minutes under load.
    pub loaded_minutes: usize,
    /// The longest time in which it did nothing, and after which it worked again, nanoseconds.
    pub longest_pause_ns: i64,
    /// Since when it does nothing, nanoseconds UTC since 1970; none: it works.
    idle_since_ns: Option<i64>,
}

impl WorkRhythm {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self { loaded_minutes: 0, longest_pause_ns: 0, idle_since_ns: None };

    /// With a minute more that began then, by its mean and highest utilisation in %.
    pub(super) fn take(&mut self, start_ns: i64, mean_pct: f64, highest_pct: f64) {
        if highest_pct < IDLE_BELOW_PCT {
            self.idle_since_ns.get_or_insert(start_ns);
            return;
        }
        let since_ns = self.idle_since_ns.take();
        // Before it first worked it did not pause, it had not begun.
        if let Some(since_ns) = since_ns.filter(|_| self.loaded_minutes > 0) {
            self.longest_pause_ns = self.longest_pause_ns.max(start_ns - since_ns);
        }
        self.loaded_minutes += usize::from(mean_pct >= LOADED_FROM_PCT);
    }
}
