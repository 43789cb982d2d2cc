//! What held the clocks of a GPU down: over time, and as a whole.

use gpuvitals_core::integral::rounded;
use gpuvitals_core::throttle::{ByLimit, Residency, ThrottleColumns};

use crate::curve::Curve;
use crate::figures::HeldShares;

/// How far each group of limits held the clocks down.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Power, heat, the hardware, and what is not known, as in [`ByLimit`].
    curves: [Curve; 4],
    counted: Residency,
    /// Sums over the rows: of any limit, and of each group.
    any: f64,
    by_limit: ByLimit,
}

impl Held {
    pub(crate) fn add(&mut self, limits: &ThrottleColumns<'_>, row: usize, index: i64) {
        let Some(throttling) = limits.at(row, &mut self.counted) else { return };
        let parts = throttling.limits().times(throttling.any);
        self.any += throttling.any;
        self.by_limit = self.by_limit.and(parts);
        for (curve, share) in self.curves.iter_mut().zip(parts.0) {
            curve.add(index, share);
        }
    }

    pub(crate) fn lose(&mut self) {
        self.curves.iter_mut().for_each(Curve::lose);
    }

    pub(crate) fn fold(&mut self) {
        self.curves.iter_mut().for_each(Curve::fold);
    }

    /// A curve for each group, in the order of [`ByLimit`].
    pub(crate) fn curves(&self) -> &[Curve; 4] {
        &self.curves
    }

    /// The parts of the time under each group of limits, if the clocks were held down for this share of it.
    pub(crate) fn shares(&self, share: f64) -> HeldShares {
        let per_row = if self.any > 0.0 { share / self.any } else { 0.0 };
        let [power, heat, hardware, other] = self.by_limit.times(per_row).0.map(rounded);
        HeldShares { power, heat, hardware, other }
    }
}
