//! How fast one connection may publish.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What may be saved up: so much time's worth at once.
const BURST: Duration = Duration::from_secs(1);

/// A bucket that fills with time and is emptied by messages; it may be overdrawn once, and is paid off by waiting.
#[derive(Debug)]
pub(super) struct Pace {
    each: Duration,
    /// When what was taken is paid off.
    paid: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new(messages_per_second: NonZeroU32) -> Self {
        let each = Duration::from_secs(1) / messages_per_second.get();
        Self { each, paid: Mutex::new(Instant::now()) }
    }

    /// Takes so many messages; until when nothing more may be taken.
    pub(super) fn take(&self, messages: u32) -> Option<Instant> {
        let now = Instant::now();
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        *paid = (*paid).max(now) + self.each.saturating_mul(messages);
        paid.checked_sub(BURST).filter(|until| *until > now)
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
