//! Limits bound what a query may cost.

/// Bounds of a query.
#[derive(Debug, Clone, Copy)]
pub struct PromLimits {
    /// Most values that are read; twice as many may be computed.
    pub values_max: usize,
    /// Most rows, at one a second and GPU, that are looked through for the newest values of steps; beyond, rollups are read.
    pub scanned_max: u64,
}

/// Most values that a query reads, unless a setting says otherwise.
pub const VALUES_MAX: usize = 10_000_000;

impl Default for PromLimits {
    fn default() -> Self {
        Self { values_max: VALUES_MAX, scanned_max: 50_000_000 }
    }
}
