//! Totals and rates of one topic.

use std::time::Duration;

use gpuvitals_core::number::float;

use crate::frame::Millis;
use crate::trouble::Recent;

/// Seconds over which a rate is taken.
const WINDOW_SECONDS: u64 = 10;
const WINDOW_SLOTS: usize = 10;

/// Messages a second over the last ten seconds.
#[derive(Debug)]
pub(super) struct Rate {
    since: Millis,
    /// (second, count) by second modulo the window.
    slots: [(u64, u64); WINDOW_SLOTS],
}

impl Rate {
    pub(super) fn new(since: Millis) -> Self {
        Self { since, slots: [(0, 0); WINDOW_SLOTS] }
    }

    pub(super) fn add(&mut self, now: Millis, count: u64) {
        let second = now.0 / 1_000;
        let slot = usize::try_from(second % WINDOW_SECONDS).unwrap_or(0);
        if let Some(slot) = self.slots.get_mut(slot) {
            if slot.0 != second {
                *slot = (second, 0);
            }
            slot.1 += count;
        }
    }

    /// Of a topic younger than the window, over its age, and over one second at least.
    pub(super) fn per_second(&self, now: Millis) -> f64 {
        let second = now.0 / 1_000;
        let recent = |at: u64| at <= second && second - at < WINDOW_SECONDS;
        let count: u64 = self.slots.iter().filter(|(at, _)| recent(*at)).map(|(_, count)| count).sum();
        let window = Duration::from_millis((WINDOW_SECONDS - 1) * 1_000 + now.0 % 1_000);
        let span = window.min(now.since(self.since)).max(Duration::from_secs(1));
        let count = float(count);
        count / span.as_secs_f64()
    }
}

/// Totals since the start, in messages, and the rates.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) published: u64,
    pub(super) acked: u64,
    pub(super) redelivered: u64,
    pub(super) dropped: u64,
    pub(super) refused: u64,
    pub(super) duplicates: u64,
    pub(super) published_rate: Rate,
    pub(super) acked_rate: Rate,
    /// Messages refused at the bound lately.
    pub(super) refused_lately: Recent,
    /// Dead letters that are larger than their topic's bound.
    pub(super) too_large_lately: Recent,
}

impl Ledger {
    pub(super) fn new(now: Millis) -> Self {
        Self {
            published: 0,
            acked: 0,
            redelivered: 0,
            dropped: 0,
            refused: 0,
            duplicates: 0,
            published_rate: Rate::new(now),
            acked_rate: Rate::new(now),
            refused_lately: Recent::default(),
            too_large_lately: Recent::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Millis, Rate};

    #[test]
    fn rate_is_over_ten_seconds_and_forgets() {
        let mut rate = Rate::new(Millis(0));
        for tenth in 0..600 {
            rate.add(Millis(tenth * 100), 10);
        }
        let rate_at = |ms| rate.per_second(Millis(ms));
        assert!((rate_at(59_999) - 100.0).abs() < 1.0, "{}", rate_at(59_999));
        assert!((rate_at(64_999) - 50.0).abs() < 1.0, "{}", rate_at(64_999));
        assert!(rate_at(80_000).abs() < f64::EPSILON);
    }

    #[test]
    fn a_young_topic_is_measured_over_its_age() {
        let mut rate = Rate::new(Millis(5_500));
        rate.add(Millis(6_000), 100);
        assert!((rate.per_second(Millis(6_100)) - 100.0).abs() < 1e-9);
        assert!((rate.per_second(Millis(7_500)) - 50.0).abs() < 1e-9);
    }
}
