//! An extent is the mean, the smallest and the largest value.

use serde::Serialize;

/// Mean, smallest and largest value of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Extent {
    /// Mean over time.
    pub mean: f64,
    /// Smallest of the values.
    pub min: f64,
    /// Largest of the values.
    pub max: f64,
}
