//! The CPUs one by one.

use gpuvitals_core::MetricId;
use gpuvitals_core::batch::Value;

use super::{CpuShares, busy_pct, parse_cores};
use crate::probe::{Instance, Row};

const CORE: MetricId = MetricId::of("cpu_core_pct");
/// CPUs that are read at most; those with higher numbers are left out.
const CORES_MAX: usize = 4_096;

/// Every CPU that has been seen, by its number.
#[derive(Debug, Default)]
pub(super) struct Cores {
    known: Vec<Core>,
    readings: u64,
}

#[derive(Debug, Default)]
struct Core {
    shares: CpuShares,
    /// The last reading that it was in.
    reading: u64,
    busy_pct: Option<f32>,
}

impl Cores {
    /// Takes the lines of `/proc/stat`, which omits CPUs that are offline. One that returns starts afresh:
    /// while it was offline it was neither busy nor idle.
    pub(super) fn read(&mut self, stat: &[u8]) {
        let before = self.readings;
        self.readings += 1;
        for (number, times) in parse_cores(stat) {
            // A number that is none of a CPU must not cost memory.
            let Some(at) = usize::try_from(number).ok().filter(|at| *at < CORES_MAX) else { continue };
            if self.known.len() <= at {
                self.known.resize_with(at + 1, Core::default);
            }
            let Some(core) = self.known.get_mut(at) else { continue };
            if core.reading != before {
                core.shares = CpuShares::default();
            }
            core.reading = self.readings;
            core.busy_pct = core.shares.after(times, 1).map(busy_pct);
        }
    }

    /// The share of each that the last reading gave one of.
    pub(super) fn give(&self, host: &mut Row) {
        for (number, core) in (0..).zip(&self.known).filter(|(_, core)| core.reading == self.readings) {
            if let Some(busy_pct) = core.busy_pct {
                host.detail(CORE, Instance::Number(number), Value::Float32(busy_pct));
            }
        }
    }
}
