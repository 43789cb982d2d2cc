//! How fast one connection may publish.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gpuvitals_core::bucket::TokenBucket;
use tokio::time::Instant;

/// A token bucket of messages, which saves up one second's worth. It may be overdrawn once, and is paid off by waiting.
#[derive(Debug)]
pub(super) struct Pace {
    began: Instant,
    bucket: Mutex<TokenBucket>,
}

impl Pace {
    pub(super) fn new(messages_per_second: NonZeroU32) -> Self {
        let rate = messages_per_second.get();
        let bucket = TokenBucket::new(rate.into(), rate, Duration::ZERO);
        Self { began: Instant::now(), bucket: Mutex::new(bucket) }
    }

    /// Takes so many messages; until when nothing more may be taken.
    pub(super) fn take(&self, messages: u32) -> Option<Instant> {
        let now = Instant::now();
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = bucket.take(messages, now - self.began);
        (!wait.is_zero()).then(|| now + wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_second_is_saved_up_and_the_rest_is_waited_for() {
        let pace = Pace::new(NonZeroU32::new(100).unwrap());
        assert_eq!(pace.take(100), None);
        let until = pace.take(50).unwrap();
        assert_eq!(until - Instant::now(), Duration::from_millis(500));
        tokio::time::sleep_until(until).await;
        assert_eq!(pace.take(1).map(|until| until - Instant::now()), Some(Duration::from_millis(10)));
    }
}
