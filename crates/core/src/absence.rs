//! Reasons for missing values. A value that was not read is absent with a reason; it is never 0, never a
//! sentinel.

use serde::{Deserialize, Serialize};

use crate::catalogue::MetricId;

/// Why a reading has no value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbsenceReason {
    /// The part, driver or format does not provide it.
    NotSupported,
    /// The right to read it is missing.
    Denied,
    /// The device sleeps and was left asleep.
    Suspended,
    /// The reading did not end within its deadline.
    TimedOut,
    /// The device is no longer there.
    Gone,
    /// An impossible value was read: not a number, or outside the catalogue's range.
    Invalid,
}

impl AbsenceReason {
    /// All reasons, in the order of their wire codes.
    pub const ALL: [Self; 6] =
        [Self::NotSupported, Self::Denied, Self::Suspended, Self::TimedOut, Self::Gone, Self::Invalid];

    /// Spelling in labels and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotSupported => "not_supported",
            Self::Denied => "denied",
            Self::Suspended => "suspended",
            Self::TimedOut => "timed_out",
            Self::Gone => "gone",
            Self::Invalid => "invalid",
        }
    }
}

/// A value of one metric missing for one GPU, `count` times in this batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// Key of the GPU, as [`crate::Identity::key`] gives it.
    pub gpu: std::sync::Arc<str>,
    /// Its metric, of the batch's table.
    pub metric: MetricId,
    /// Why the value is missing.
    pub reason: AbsenceReason,
    /// Number of rows of the batch.
    pub count: u32,
}
