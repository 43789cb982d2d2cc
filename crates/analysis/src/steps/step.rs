//! A step.

use gpuvitals_core::integral::seconds;

/// A step of a run, by the clock of the rows that it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunStep {
    /// When it began.
    pub from_ns: i64,
    /// When it ended.
    pub to_ns: i64,
}

impl RunStep {
    /// How long it took, seconds.
    pub fn duration_s(self) -> f64 {
        seconds(self.to_ns.saturating_sub(self.from_ns))
    }
}
