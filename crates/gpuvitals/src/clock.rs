//! The one place that asks what time it is.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, nanoseconds UTC since 1970.
#[expect(clippy::disallowed_methods, reason = "this is the clock of the loops")]
pub(crate) fn now_ns() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX))
}

/// Now in RFC 3339.
pub(crate) fn now_text() -> String {
    gpuvitals_core::time::format(now_ns())
}
