//! The token bucket: a rate limit with a burst.

use std::time::Duration;

/// Allows `rate` messages a second, and `burst` at once after a pause. Time is passed in.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    rate: f64,
    burst: f64,
    /// Below 0: taken ahead of time.
    tokens: f64,
    at: Duration,
}

impl TokenBucket {
    /// A full bucket; `rate` is above 0. `now` counts from any fixed instant, in this and every later call.
    pub fn new(rate: f64, burst: u32, now: Duration) -> Self {
        Self { rate, burst: burst.into(), tokens: burst.into(), at: now }
    }

    /// Takes `count` tokens and returns how long to wait before sending the messages they were taken for.
    pub fn take(&mut self, count: u32, now: Duration) -> Duration {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        self.tokens = self.rate.mul_add(passed.as_secs_f64(), self.tokens).min(self.burst) - f64::from(count);
        let debt = (-self.tokens).max(0.0);
        // At a very low rate the wait would overflow: it is capped.
        Duration::try_from_secs_f64(debt / self.rate).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A caller that waits as requested never sends more than the rate and the burst allow, and never
        /// less than the rate allows while it asks again at once.
        #[test]
        fn what_passes_keeps_the_rate(
            rate in prop_oneof![0.01..10.0, 10.0..100_000.0],
            burst in 1_u32..500,
            steps in proptest::collection::vec((1_u32..500, prop_oneof![Just(0.0), 0.0..3.0]), 1..60),
        ) {
            let start = Duration::from_secs(7);
            let mut bucket = TokenBucket::new(rate, burst, start);
            let (mut now, mut sent, mut idle) = (start, 0.0, 0.0);
            for (count, pause) in steps {
                now += Duration::from_secs_f64(pause);
                idle += pause;
                now += bucket.take(count, now);
                sent += f64::from(count);
                let elapsed = now.saturating_sub(start).as_secs_f64();
                let slack = 1e-6 * sent.max(rate);
                prop_assert!(sent <= f64::from(burst) + rate * elapsed + slack, "{sent} after {elapsed} s");
                prop_assert!(sent >= rate * (elapsed - idle) - slack, "{sent} after {elapsed} s, {idle} s idle");
            }
        }
    }

    #[test]
    fn a_clock_that_stands_still_or_goes_back_gives_nothing() {
        let mut bucket = TokenBucket::new(2.0, 1, Duration::from_secs(10));
        assert_eq!(bucket.take(1, Duration::from_secs(10)), Duration::ZERO);
        assert_eq!(bucket.take(1, Duration::from_secs(9)), Duration::from_millis(500));
        assert_eq!(bucket.take(1, Duration::from_secs(10)), Duration::from_secs(1));
    }

    #[test]
    fn a_long_pause_is_not_made_up_for() {
        let mut bucket = TokenBucket::new(1.0, 1, Duration::ZERO);
        assert_eq!(bucket.take(1, Duration::from_hours(1)), Duration::ZERO);
        assert_eq!(bucket.take(1, Duration::from_hours(1)), Duration::from_secs(1));
    }
}
