//! The store's clock: the one place that asks what time it is.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Now, nanoseconds UTC since 1970.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// A moment to measure delays from.
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub(crate) fn monotonic() -> Instant {
    Instant::now()
}
