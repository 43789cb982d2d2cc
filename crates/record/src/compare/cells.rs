//! Values of a run by GPU and block: a block is some steps in a row, or a slice of time.
//!
//! Means are over time. A value lasts from the one before it of the same column, at most for a gap: what a driver repeats, or reads
//! once a second, weighs as much as its time.

use gpuvitals_core::batch::{MetricColumn, Value};
use gpuvitals_core::throttle::{Residency, ThrottleColumns};
use gpuvitals_core::{Batch, MetricId};

/// Utilisation in % from which a GPU is under load.
const LOADED_FROM_PCT: f64 = 50.0;

const COLUMNS: [MetricId; 6] = [
    MetricId::of("power_w"),
    MetricId::of("power_average_w"),
    MetricId::of("temperature_c"),
    MetricId::of("utilization_pct"),
    MetricId::of("gpu_clock_mhz"),
    MetricId::of("mem_clock_mhz"),
];
/// Those that count under load alone.
const UNDER_LOAD: std::ops::Range<usize> = 4..6;
const UTILIZATION: usize = 3;

/// A time that is looked at by itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) from_ns: i64,
    pub(super) to_ns: i64,
}

/// A quantity of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Instantaneous where the part has it.
    Power,
    Temperature,
    Utilization,
    GpuClock,
    MemClock,
    /// Shares of the time under load at a limit of power, of heat, and under the hardware's own slowdown.
    AtPowerLimit,
    Heat,
    Hardware,
}

/// The cells of one GPU.
#[derive(Debug, Default)]
pub(super) struct GpuCells {
    columns: [Track; COLUMNS.len()],
    limits: [Track; 3],
    residency: Residency,
    utilization: Option<f64>,
}

/// The columns of a batch that are looked at.
pub(super) struct CellColumns<'a> {
    columns: [Option<MetricColumn<'a>>; COLUMNS.len()],
    throttling: ThrottleColumns<'a>,
}

impl<'a> CellColumns<'a> {
    pub(super) fn of(batch: &'a Batch) -> Self {
        Self { columns: COLUMNS.map(|id| batch.metric(id)), throttling: ThrottleColumns::of(batch.records()) }
    }
}

/// When a row was taken, the block in which it counts, and the longest time that a value lasts.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowTime {
    pub(super) time_ns: i64,
    pub(super) block: Option<usize>,
    pub(super) gap_ns: i64,
}

impl GpuCells {
    pub(super) fn add(&mut self, columns: &CellColumns<'_>, row: usize, time: RowTime) {
        let values = columns.columns.map(|column| column?.value(row).map(Value::as_f64));
        self.utilization = values.get(UTILIZATION).copied().flatten().or(self.utilization);
        let is_loaded = self.utilization.is_none_or(|busy| busy >= LOADED_FROM_PCT);
        let under_load = RowTime { block: time.block.filter(|_| is_loaded), ..time };
        for (at, (track, value)) in self.columns.iter_mut().zip(values).enumerate() {
            track.add(if UNDER_LOAD.contains(&at) { under_load } else { time }, value);
        }
        // Always read: its shares are of the time since the reading before.
        if let Some(throttling) = columns.throttling.at(row, &mut self.residency) {
            let shares = [throttling.power, throttling.heat, throttling.hardware];
            for (track, share) in self.limits.iter_mut().zip(shares) {
                track.add(under_load, share);
            }
        }
    }

    /// The mean of a quantity in a block; none if it has no value there.
    pub(super) fn mean(&self, quantity: Quantity, block: usize) -> Option<f64> {
        self.tracks(quantity).find_map(|track| track.blocks.get(block)?.mean())
    }

    /// The same over all blocks.
    pub(super) fn whole_mean(&self, quantity: Quantity) -> Option<f64> {
        self.tracks(quantity).find_map(|track| {
            let sum = |whole: Weighed, block: &Weighed| Weighed {
                sum: whole.sum + block.sum,
                weight: whole.weight + block.weight,
            };
            track.blocks.iter().fold(Weighed::default(), sum).mean()
        })
    }

    /// What has its values, the best first.
    fn tracks(&self, quantity: Quantity) -> impl Iterator<Item = &Track> {
        let [power, average, temperature, utilization, clock, memory] = &self.columns;
        let [at_power_limit, heat, hardware] = &self.limits;
        let (first, second) = match quantity {
            Quantity::Power => (power, Some(average)),
            Quantity::Temperature => (temperature, None),
            Quantity::Utilization => (utilization, None),
            Quantity::GpuClock => (clock, None),
            Quantity::MemClock => (memory, None),
            Quantity::AtPowerLimit => (at_power_limit, None),
            Quantity::Heat => (heat, None),
            Quantity::Hardware => (hardware, None),
        };
        [Some(first), second].into_iter().flatten()
    }
}

/// A column's values, summed up by block.
#[derive(Debug, Default)]
struct Track {
    last_ns: Option<i64>,
    blocks: Vec<Weighed>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Weighed {
    sum: f64,
    weight: f64,
}

impl Track {
    fn add(&mut self, time: RowTime, value: Option<f64>) {
        let Some(value) = value else { return };
        let before = self.last_ns.replace(time.time_ns).unwrap_or(time.time_ns);
        let lasted_ns = time.time_ns.saturating_sub(before).clamp(0, time.gap_ns);
        let Some(block) = time.block else { return };
        if self.blocks.len() <= block {
            self.blocks.resize(block + 1, Weighed::default());
        }
        if let Some(cell) = self.blocks.get_mut(block) {
            let weight = gpuvitals_core::integral::seconds(lasted_ns);
            cell.sum += weight * value;
            cell.weight += weight;
        }
    }
}

impl Weighed {
    fn mean(self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}
