//! How long to wait before something that failed is tried again.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// Longest time for which the other side may ask to be left alone.
pub const ASKED_MAX: Duration = Duration::from_mins(5);

/// Delays between attempts: at most `base`, doubled with every failure up to `cap`. The actual delay is drawn
/// between zero and that (full jitter), so that clients that failed together do not retry together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The longest delay after the first failure.
    pub base: Duration,
    /// Upper limit of the doubling.
    pub cap: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: Duration::from_millis(100), cap: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// The longest delay after this many failures in a row, from 1.
    pub fn longest_after(&self, failures: u32) -> Duration {
        let doubled = 2_u32.checked_pow(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        self.base.saturating_mul(doubled).min(self.cap)
    }

    /// The delay after this many failures in a row, from 1.
    pub fn after(&self, failures: u32) -> Duration {
        let nanos = u64::try_from(self.longest_after(failures).as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(random() % nanos.saturating_add(1).max(1))
    }

    /// The same, and no shorter than the other side has asked for, of which five minutes are respected.
    pub fn after_asked(&self, failures: u32, asked: Option<Duration>) -> Duration {
        self.after(failures).max(asked.unwrap_or_default().min(ASKED_MAX))
    }
}

/// An unpredictable, unique number: the hash of nothing under a key of the system.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_cap_and_is_drawn_anew() {
        let backoff = Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(1) };
        for (failures, longest_ms) in [(1, 100), (2, 200), (4, 800), (5, 1_000), (4_000, 1_000)] {
            let waits: Vec<_> = (0..64).map(|_| backoff.after(failures)).collect();
            assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(longest_ms)));
            assert!(waits.iter().any(|wait| *wait > Duration::from_millis(longest_ms / 2)), "{waits:?}");
        }
    }

    #[test]
    fn who_asks_to_be_left_alone_is_for_five_minutes_at_most() {
        let backoff = Backoff::default();
        for (asked_s, waits_s) in [(60, 60), (3_600, 300)] {
            let asked = Some(Duration::from_secs(asked_s));
            assert_eq!(backoff.after_asked(1, asked), Duration::from_secs(waits_s));
        }
        assert!(backoff.after_asked(1, None) <= backoff.base);
    }
}
