//! When a row about a job or a step is to be published again.

use gpuvitals_core::clock::Moment;
use gpuvitals_core::time::MINUTE_NS;

/// A row is published again after so long, so that a lost frame costs nothing.
const AGAIN_NS: i64 = 10 * MINUTE_NS;

/// When a row was published last, monotonic, and the time of that row; none: something is new.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RowPace(Option<(i64, i64)>);

impl RowPace {
    /// Whether the row of this hour is to be published now: then it counts as published.
    pub(super) fn is_due(&mut self, row_ns: i64, now: Moment) -> bool {
        let is_told = self.0.is_some_and(|(published_ns, told_ns)| {
            told_ns == row_ns && now.mono_ns - published_ns < AGAIN_NS
        });
        if !is_told {
            self.0 = Some((now.mono_ns, row_ns));
        }
        !is_told
    }
}
