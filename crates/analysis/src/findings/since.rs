//! A finding began at an instant, or before it.

use gpuvitals_core::time::{DAY_NS, SECOND_NS};

/// How far the look for the beginning of a finding goes back.
pub const LOOK_BACK_NS: i64 = DAY_NS;

/// A minute is read when it has been over for so long: rows are under way for some seconds.
pub(crate) const SETTLE_NS: i64 = 10 * SECOND_NS;

/// When something began, nanoseconds UTC since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Began {
    /// The first instant that shows it.
    pub at_ns: i64,
    /// Whether it may have begun earlier: the look back ended there.
    pub is_bound: bool,
}

impl Began {
    /// At this instant and not earlier.
    pub fn exactly(at_ns: i64) -> Self {
        Self { at_ns, is_bound: false }
    }
}
