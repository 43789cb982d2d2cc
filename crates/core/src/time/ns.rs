//! An instant is a number of nanoseconds.

pub(super) fn to_ns(timestamp: jiff::Timestamp) -> Option<i64> {
    i64::try_from(timestamp.as_nanosecond()).ok()
}
