//! The instants at which a query is evaluated.

use gpuvitals_core::time::SECOND_NS;

/// Instants with equal distances, nanoseconds UTC since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// The first instant, nanoseconds UTC since 1970.
    pub start_ns: i64,
    /// Their distance, above 0; of a single one it says nothing.
    pub step_ns: i64,
    /// How many, at least one.
    pub count: usize,
    /// The end of the range that was asked for, at or after the last instant; none of a single instant.
    pub range_end_ns: Option<i64>,
}

impl Grid {
    /// A single instant.
    pub fn at(time_ns: i64) -> Self {
        Self { start_ns: time_ns, step_ns: SECOND_NS, count: 1, range_end_ns: None }
    }

    /// From `start_ns` by `step_ns` up to `end_ns` at most; none if there would be none.
    pub fn between(start_ns: i64, end_ns: i64, step_ns: i64) -> Option<Self> {
        let span_ns = end_ns.checked_sub(start_ns).filter(|span_ns| *span_ns >= 0 && step_ns > 0)?;
        let count = usize::try_from(span_ns / step_ns).ok()?.checked_add(1)?;
        Some(Self { start_ns, step_ns, count, range_end_ns: Some(end_ns) })
    }

    /// The last instant.
    pub fn end_ns(&self) -> i64 {
        self.time(self.count.saturating_sub(1))
    }

    /// The instant of a step, nanoseconds UTC since 1970; the first step is 0.
    pub fn time(&self, step: usize) -> i64 {
        let step = i64::try_from(step).unwrap_or(i64::MAX);
        self.start_ns.saturating_add(step.saturating_mul(self.step_ns))
    }

    /// All of them.
    pub fn times(self) -> impl Iterator<Item = i64> {
        (0..self.count).map(move |step| self.time(step))
    }
}

/// Where the values for a grid's instants are looked up: at the instants less an offset, or all at one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lookup {
    pub(crate) at_ns: Option<i64>,
    pub(crate) offset_ns: i64,
}

impl Lookup {
    /// Where the value for an instant is looked up.
    pub(crate) fn time(&self, time_ns: i64) -> i64 {
        self.at_ns.unwrap_or(time_ns).saturating_sub(self.offset_ns)
    }

    /// The instants that are looked at.
    pub(crate) fn grid(&self, grid: Grid) -> Grid {
        match self.at_ns {
            Some(at_ns) => Grid::at(at_ns.saturating_sub(self.offset_ns)),
            None => Grid { start_ns: grid.start_ns.saturating_sub(self.offset_ns), ..grid },
        }
    }
}
