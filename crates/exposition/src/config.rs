//! An exposition is told which series it has.

use std::time::Duration;

use gpuvitals_core::catalogue::Series;

use crate::compat::Compat;

/// Settings of the exposition.
#[derive(Debug, Clone, Copy)]
pub struct ExpositionConfig {
    /// The set of the catalogue's series.
    pub set: Series,
    /// DCGM's names beside our own.
    pub compat: Compat,
    /// Length of the windows, which are on the grid of the wall clock.
    pub window: Duration,
    /// Usual time between two rows of a GPU: five times that is a gap, in which nothing is added to totals.
    pub interval: Duration,
}
