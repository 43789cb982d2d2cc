//! How fine the rows of a file are.

use gpuvitals_core::Table;
use serde::{Deserialize, Serialize};

/// How fine rows are: as they came, or put together by steps of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum Grain {
    /// As they came.
    #[default]
    #[serde(rename = "raw")]
    Raw,
    /// By ten seconds.
    #[serde(rename = "10s")]
    TenSeconds,
    /// A row for each minute.
    #[serde(rename = "1m")]
    Minute,
    /// A row for each hour.
    #[serde(rename = "1h")]
    Hour,
    /// A row for each day, UTC.
    #[serde(rename = "1d")]
    Day,
}

impl Grain {
    /// All of them, the finest first.
    pub const ALL: [Self; 5] = [Self::Raw, Self::TenSeconds, Self::Minute, Self::Hour, Self::Day];

    /// Those whose rows are put together, the finest first.
    pub(crate) const ROLLUPS: [Self; 4] = [Self::TenSeconds, Self::Minute, Self::Hour, Self::Day];

    /// Its name, and that of its folder: `raw`, `10s`, `1m`, `1h` or `1d`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::TenSeconds => "10s",
            Self::Minute => "1m",
            Self::Hour => "1h",
            Self::Day => "1d",
        }
    }

    /// The one of that name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|grain| grain.name() == name)
    }

    /// Width of a step in nanoseconds; 0: every row stands for itself.
    pub fn step_ns(self) -> i64 {
        let seconds = match self {
            Self::Raw => 0,
            Self::TenSeconds => 10,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
        };
        seconds * 1_000_000_000
    }

    /// Whether rows hold the frequencies of values, from which percentiles follow. Of few values a step these would take
    /// more room than the values.
    pub(crate) fn has_sketches(self) -> bool {
        matches!(self, Self::Minute | Self::Hour | Self::Day)
    }
}

/// Whether the rows of a table's rollups have figures of metrics, in hundreds of columns.
pub(crate) fn has_figures(table: Table) -> bool {
    matches!(table, Table::GpuEvents | Table::SystemEvents)
}
