//! How far the energy of a time may be off: that of all GPUs together, by the one rule for the error of an energy.

use std::ops::Range;

use gpuvitals_core::Identity;
use gpuvitals_core::energy::{EnergyInterval, IntervalUnknown, PowerInTime, PowerSensor};
use gpuvitals_core::integral::seconds;

use super::{METRICS, POWERS, SECOND, StepSignals, nanoseconds};

/// Track of the steps of a power from row to row, squared and spread over the time between the rows.
const SQUARES: usize = METRICS.len();
/// Track of the time in which a power is known: one for each GPU.
const SEEN: usize = SQUARES + POWERS;
/// Tracks of the error of the powers.
pub(super) const ERROR_TRACKS: usize = 2 * POWERS;

/// What is known of the power of a GPU.
#[derive(Debug, Default)]
pub(super) struct GpuPower {
    sensor: Option<&'static PowerSensor>,
    /// The highest of each power, watts; none: it was not read.
    highest_w: [Option<f64>; POWERS],
    /// Whether a sample was equal to the average beside it, and whether one was not.
    was_average: bool,
    was_other: bool,
}

impl GpuPower {
    pub(super) fn of(gpu: &Identity) -> Self {
        Self { sensor: PowerSensor::of(gpu), ..Self::default() }
    }

    /// The sample and the average of one row, watts.
    pub(super) fn beside(&mut self, sample_w: f64, average_w: f64) {
        let is_same = sample_w.to_bits() == average_w.to_bits();
        self.was_average |= is_same;
        self.was_other |= !is_same;
    }
}

impl StepSignals {
    /// Notes how a power moved to this value; before it counts as the last one.
    pub(super) fn note_power(&mut self, power: usize, gpu: usize, (time_ns, watts): (i64, f64)) {
        let last = self.tracks.get(power).and_then(|track| track.gpus.get(gpu).copied().flatten());
        let square = last.filter(|last| last.time_ns < time_ns).map_or(0.0, |last| {
            (watts - last.value).powi(2) / nanoseconds(time_ns - last.time_ns)
        });
        self.put(SQUARES + power, gpu, (time_ns, square));
        self.put(SEEN + power, gpu, (time_ns, 1.0));
        if let Some(highest_w) = self.powers.get_mut(gpu).and_then(|known| known.highest_w.get_mut(power)) {
            *highest_w = Some(highest_w.map_or(watts, |highest_w| highest_w.max(watts)));
        }
    }

    /// Where the energy of these times lies that [`energy_j`](Self::energy_j) gives, all of them together. Errors of GPUs and of times
    /// count as if they all went the same way.
    ///
    /// # Errors
    /// Why that is not known: a sensor is in no table or not like the others, or power was not read often enough.
    pub fn energy_interval(&self, times: &[Range<i64>]) -> Result<EnergyInterval, IntervalUnknown> {
        let power = self.power().ok_or(IntervalUnknown::TooFew)?;
        let distance_ns = self.tracks.get(power).and_then(|track| track.row_ns());
        let distance_ns = distance_ns.ok_or(IntervalUnknown::TooFew)?;
        let read: Vec<(&GpuPower, f64)> = self
            .powers
            .iter()
            .filter_map(|gpu| Some((gpu, (*gpu.highest_w.get(power)?)?)))
            .collect();
        let sensors: Option<Vec<&PowerSensor>> = read.iter().map(|(gpu, _)| gpu.sensor).collect();
        let sensors = sensors.ok_or(IntervalUnknown::Sensor)?;
        let [sensor, others @ ..] = sensors.as_slice() else { return Err(IntervalUnknown::TooFew) };
        if others.iter().any(|other| other != sensor) {
            return Err(IntervalUnknown::Sensors);
        }
        let sum = |track: usize| -> f64 { times.iter().filter_map(|time| self.sum(power, track, time)).sum() };
        let (gpus, count) = (number(read.len()), number(times.len()));
        let lasted_s: f64 = times.iter().map(|time| seconds(time.end.saturating_sub(time.start))).sum();
        let seen_s = sum(SEEN + power) / SECOND;
        EnergyInterval::of_gpus(
            sensor,
            PowerInTime {
                joules: sum(power) / SECOND,
                seen_s,
                distance_s: seconds(distance_ns),
                // The root of that is the sum of the roots at least.
                squares_w2: gpus * sum(SQUARES + power),
                // Each time has ends of its own.
                highest_w: count * read.iter().map(|(_, highest_w)| highest_w).sum::<f64>(),
                is_average: power > 0 || read.iter().all(|(gpu, _)| gpu.was_average && !gpu.was_other),
                has_gaps: gpus * lasted_s - seen_s > count * seconds(self.gap_ns),
            },
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of GPUs and of phases")]
fn number(count: usize) -> f64 {
    count as f64
}
