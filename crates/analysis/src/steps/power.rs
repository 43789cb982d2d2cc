//! The powers of GPUs: whose sensors they are from, and how high they were, for the error of an energy.

use std::time::Duration;

use gpuvitals_core::Identity;
use gpuvitals_core::energy::{IntervalUnknown, PowerSensor, SamplesBeside};

/// Powers that a GPU may give: a sample and an average.
pub(super) const POWERS: usize = 2;

/// What is known of the power of a GPU.
#[derive(Debug, Default)]
pub(super) struct GpuPower {
    sensor: Option<&'static PowerSensor>,
    /// The highest of each power, watts; none: it was not read.
    highest_w: [Option<f64>; POWERS],
    beside: SamplesBeside,
}

/// What is known of one power of several GPUs.
#[derive(Debug, Clone, Copy)]
pub(super) struct PowerOfGpus {
    /// The sensor that all of them have.
    pub(super) sensor: &'static PowerSensor,
    /// How many give it.
    pub(super) gpus: usize,
    /// The highest of each, added up, watts.
    pub(super) highest_w: f64,
    /// Whether it is the part's own average.
    pub(super) is_average: bool,
}

impl GpuPower {
    pub(super) fn of(gpu: &Identity) -> Self {
        Self { sensor: PowerSensor::of(gpu), ..Self::default() }
    }

    /// The sample and the average of one row, watts.
    pub(super) fn beside(&mut self, sample_w: f64, average_w: f64) {
        self.beside.take(sample_w, average_w);
    }

    /// A value of one of its powers, watts.
    pub(super) fn take(&mut self, power: usize, watts: f64) {
        if let Some(highest_w) = self.highest_w.get_mut(power) {
            *highest_w = Some(highest_w.map_or(watts, |highest_w| highest_w.max(watts)));
        }
    }
}

impl PowerOfGpus {
    /// Of those that give this power.
    ///
    /// # Errors
    /// When the sensor of one is not known, or not like that of another, or none gives it.
    pub(super) fn of(all: &[GpuPower], power: usize) -> Result<Self, IntervalUnknown> {
        let highest = |gpu: &GpuPower| gpu.highest_w.get(power).copied().flatten();
        let read: Vec<&GpuPower> = all.iter().filter(|gpu| highest(gpu).is_some()).collect();
        let first = read.first().ok_or(IntervalUnknown::TooFew)?;
        let sensor = first.sensor.ok_or(IntervalUnknown::Sensor)?;
        for gpu in &read {
            if gpu.sensor.ok_or(IntervalUnknown::Sensor)? != sensor {
                return Err(IntervalUnknown::Sensors);
            }
        }
        Ok(Self {
            sensor,
            gpus: read.len(),
            highest_w: read.iter().filter_map(|gpu| highest(gpu)).sum(),
            is_average: power > 0 || read.iter().all(|gpu| gpu.beside.are_averages()),
        })
    }

    /// Time between two readings, and the time that one averages, nanoseconds.
    pub(super) fn timing_ns(self) -> (i64, i64) {
        let (period_s, window_s) =
            if self.is_average { self.sensor.average_timing_s() } else { self.sensor.timing_s() };
        let whole_ns = |s: f64| i64::try_from(Duration::from_secs_f64(s).as_nanos()).unwrap_or(0);
        (whole_ns(period_s), whole_ns(window_s))
    }
}
