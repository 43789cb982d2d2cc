//! The queue's clock.

use std::time::Duration;

use gpuvitals_core::clock;
use tokio::time::Instant;

use crate::frame::Millis;

/// Starts at an instant and runs with tokio's time from there: it never goes back, and stands still where
/// tokio's time is paused.
#[derive(Clone, Copy, Debug)]
pub struct QueueClock {
    start: Millis,
    origin: Instant,
}

impl QueueClock {
    /// A clock that shows the system's time now. Later steps of the system's time do not reach it.
    pub fn system() -> Self {
        let since_1970 = Duration::from_nanos(u64::try_from(clock::now_ns()).unwrap_or(0));
        Self::starting_at(Millis(0).after(since_1970))
    }

    /// A clock that shows `start` now.
    pub fn starting_at(start: Millis) -> Self {
        Self { start, origin: Instant::now() }
    }

    /// What it shows.
    pub fn now(&self) -> Millis {
        self.start.after(self.origin.elapsed())
    }
}
