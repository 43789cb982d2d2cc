//! Minutes in which a GPU says that it is busy and does far less than before.

use gpuvitals_core::number::float;

use super::RecentGpu;
use crate::findings::threshold::LOADED_MINUTES_MIN;

impl RecentGpu {
    /// How many of its minutes since its last one of work as before are such, and its mean power in them, W.
    pub(super) fn busy_for_less(&self) -> Option<(usize, f64)> {
        let level = self.level.filter(|level| level.minutes >= LOADED_MINUTES_MIN && level.power_w > 0.0)?;
        let since = self.minutes.iter().filter(|minute| minute.start_ns >= level.until_ns);
        let powers = since.filter_map(|minute| {
            let (busy, power_w) = minute.utilization.zip(minute.power)?;
            level.is_far_above(busy, power_w).then_some(power_w)
        });
        let powers: Vec<f64> = powers.collect();
        (!powers.is_empty()).then(|| (powers.len(), powers.iter().sum::<f64>() / float(powers.len())))
    }
}
