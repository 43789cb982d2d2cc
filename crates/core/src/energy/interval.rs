//! The error of an energy: between which joules it lies, and the part of each cause in that.
//!
//! Four causes, each by itself, put together as the root of the sum of their squares:
//!
//! - **gain**: the sensor's own error, of its table ([`PowerSensor`]); the same for the whole recording, so no length makes it less.
//! - **delay**: a reading is up to a period old and describes the window before that. At the end of a recording so much is not
//!   yet known, and may be anything up to the highest power.
//! - **sampling**: between two windows nobody looks. What is not seen differs from what is seen as much as two readings in a
//!   row do from each other.
//! - **jumps**: the instant of a jump of power between two readings is not known.
//!
//! The last three are twice their standard deviation, or a bound. A load that repeats in step with a sensor that
//! does not look all the time may be further off: from the readings nobody can tell it from a steady one.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

use super::averaged::SamplesBeside;
use super::sensor::PowerSensor;
use crate::integral::{Order, order, rounded};

/// Standard deviations on either side: 95 % of what happens.
const DEVIATIONS: f64 = 2.0;
/// Where a part comes from that is no fact about the sensor.
const READINGS: &str = "the readings";

/// How power moved from one reading to the next.
#[derive(Debug, Clone, Default)]
pub(super) struct PowerSignal {
    last: Option<(i64, f64)>,
    /// Distances between readings over which power was integrated.
    distances: f64,
    /// The squares of the jumps over them, added up, W².
    squares_w2: f64,
    /// Power that was integrated elsewhere is in the energy: its jumps are not known.
    has_unknown: bool,
    /// How often power was not read for some time.
    gaps: u32,
    beside: SamplesBeside,
}

impl PowerSignal {
    /// A reading, watts.
    pub(super) fn take(&mut self, time_ns: i64, watts: f64, gap_max_ns: i64) {
        if let Some((last_ns, last_w)) = self.last {
            match order(last_ns, time_ns, gap_max_ns) {
                Order::After(distance_ns) if distance_ns <= gap_max_ns => {
                    self.distances += 1.0;
                    self.squares_w2 += (watts - last_w).powi(2);
                }
                Order::After(_) | Order::Reset => self.gaps += 1,
                Order::Late => return,
            }
        }
        self.last = Some((time_ns, watts));
    }

    /// Some power was integrated elsewhere.
    pub(super) fn skip(&mut self) {
        self.has_unknown = true;
        self.last = None;
    }

    /// Nothing is known until the next reading.
    pub(super) fn lose(&mut self) {
        self.gaps += u32::from(self.last.take().is_some());
    }

    /// Whether for some time power was not read.
    pub(super) fn has_gaps(&self) -> bool {
        self.gaps > 0
    }

    /// The sample and the average of one row, watts.
    pub(super) fn beside(&mut self, sample_w: f64, average_w: f64) {
        self.beside.take(sample_w, average_w);
    }

    /// Whether the samples are the average: a part that has nothing else gives it as both.
    pub(super) fn is_average(&self) -> bool {
        self.beside.are_averages()
    }
}

/// What is known of an energy beside its jumps.
#[derive(Debug, Clone, Copy)]
pub(super) struct EnergyFacts {
    pub(super) joules: f64,
    /// Seconds over which power was read.
    pub(super) seen_s: f64,
    pub(super) highest_w: f64,
    /// Whether the readings are the part's own average.
    pub(super) is_average: bool,
    /// Whether the energy is that of the time in which power was read, and there was other time.
    pub(super) has_gaps: bool,
}

/// The power of GPUs with the same sensors over some time, added up.
#[derive(Debug, Clone, Copy)]
pub struct PowerInTime {
    /// Energy of all these GPUs together, joules.
    pub joules: f64,
    /// Seconds over which power was read, of all GPUs together.
    pub seen_s: f64,
    /// Between two readings of a GPU, seconds.
    pub distance_s: f64,
    /// The squares of the steps between readings, W².
    pub squares_w2: f64,
    /// The highest power of each, watts.
    pub highest_w: f64,
    /// Whether the readings are the part's own average.
    pub is_average: bool,
    /// Whether for some of the time power was not read.
    pub has_gaps: bool,
}

/// Where an energy lies, and why not nearer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EnergyInterval {
    /// The least that it is, joules.
    pub low_j: f64,
    /// The most that it is, joules.
    pub high_j: f64,
    /// The distance of either from the energy, as a share of it.
    pub share: f64,
    /// Whether power was not read for some time, and no counter counted on: energy and interval are of the observed time alone.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub has_gaps: bool,
    /// What it is made of: the root of the sum of their squares.
    pub parts: Vec<EnergyErrorPart>,
    /// Time between two readings of the sensor, seconds.
    pub period_s: f64,
    /// The time that a reading averages, seconds.
    pub window_s: f64,
    /// Where these two come from.
    pub timing_source: &'static str,
    /// Share of the time that the readings have seen.
    pub seen_share: f64,
    /// The peaks of power that last less than this are not known, seconds: they fall between two windows, or are averaged away.
    pub peaks_unknown_below_s: f64,
}

/// What one cause has in the error of an energy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct EnergyErrorPart {
    /// What makes the energy uncertain.
    pub part: EnergyErrorCause,
    /// How far the energy may be off by it alone, joules.
    pub joules: f64,
    /// The same as a share of the energy.
    pub share: f64,
    /// Where it comes from.
    pub source: &'static str,
}

/// A cause for the error of an energy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EnergyErrorCause {
    /// The sensor says too much or too little.
    Gain,
    /// It says so late.
    Delay,
    /// It does not look all the time, or is not asked.
    Sampling,
    /// Power changed at some instant between two readings.
    Jumps,
}

impl EnergyErrorCause {
    /// Its name: `gain`, `delay`, `sampling` or `jumps`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gain => "gain",
            Self::Delay => "delay",
            Self::Sampling => "sampling",
            Self::Jumps => "jumps",
        }
    }
}

/// Why there is no interval; reads on from "the error is".
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IntervalUnknown {
    /// There is no entry for it in the table of sensors.
    #[error("not known: nobody has measured the power sensor of this model")]
    Sensor,
    /// Power was read less than twice, or not at all.
    #[error("not known: there are no two readings of power")]
    TooFew,
    /// The GPUs have several kinds of sensors, and only the power of all is known.
    #[error("not known: the GPUs have different power sensors")]
    Sensors,
    /// Only the sum of some power is known.
    #[error("not known: of some of the power only the sum is known")]
    OnlySum,
}

impl EnergyInterval {
    /// Of GPUs that have this sensor, all of them together.
    ///
    /// # Errors
    /// When power was read less than twice.
    pub fn of_gpus(sensor: &PowerSensor, power: PowerInTime) -> Result<Self, IntervalUnknown> {
        let PowerInTime { joules, seen_s, highest_w, is_average, has_gaps, .. } = power;
        let distances = seen_s / power.distance_s.max(f64::MIN_POSITIVE);
        let signal = PowerSignal { distances, squares_w2: power.squares_w2, ..PowerSignal::default() };
        Self::of(sensor, &signal, EnergyFacts { joules, seen_s, highest_w, is_average, has_gaps })
    }

    /// How far several energies may be off together, as if the errors of all went the same way: `± 5.5 %`. None: that of one is not
    /// known, or there is no energy.
    pub fn together<'a>(energies: impl IntoIterator<Item = (f64, Option<&'a Self>)>) -> Option<String> {
        let (mut joules, mut off_j, mut has_gaps) = (0.0, 0.0, false);
        for (own_j, interval) in energies {
            let interval = interval?;
            joules += own_j;
            off_j += interval.share * own_j;
            has_gaps |= interval.has_gaps;
        }
        (joules > 0.0).then(|| error_words(off_j / joules, has_gaps))
    }

    pub(super) fn of(
        sensor: &PowerSensor,
        signal: &PowerSignal,
        facts: EnergyFacts,
    ) -> Result<Self, IntervalUnknown> {
        if signal.has_unknown {
            return Err(IntervalUnknown::OnlySum);
        }
        if signal.distances < 1.0 || facts.joules <= 0.0 {
            return Err(IntervalUnknown::TooFew);
        }
        let window_s = if facts.is_average { sensor.average_s } else { sensor.window_s };
        let distance_s = facts.seen_s / signal.distances;
        // From the beginning of one window that is read to that of the next.
        let spacing_s = sensor.period_s.max(distance_s);
        let unseen_s = (spacing_s - window_s).max(0.0);
        let gain_j = (sensor.gain * facts.joules).max(sensor.floor_w * facts.seen_s);
        let delay_j = (sensor.period_s + window_s / 2.0) * facts.highest_w;
        // The difference of two independent values has twice the variance of one.
        let sampling_j = DEVIATIONS * (signal.squares_w2 / 2.0).sqrt() * unseen_s;
        // An instant that may be anywhere in a distance has a twelfth of its square as variance.
        let jumps_j = DEVIATIONS * (signal.squares_w2 / 12.0).sqrt() * distance_s;
        let part = |cause, joules: f64, source| EnergyErrorPart {
            part: cause,
            joules: rounded(joules),
            share: joules / facts.joules,
            source,
        };
        let parts = vec![
            part(EnergyErrorCause::Gain, gain_j, sensor.gain_source),
            part(EnergyErrorCause::Delay, delay_j, sensor.timing_source),
            part(EnergyErrorCause::Sampling, sampling_j, READINGS),
            part(EnergyErrorCause::Jumps, jumps_j, READINGS),
        ];
        let off_j =
            [gain_j, delay_j, sampling_j, jumps_j].iter().map(|joules| joules * joules).sum::<f64>().sqrt();
        Ok(Self {
            low_j: rounded((facts.joules - off_j).max(0.0)),
            high_j: rounded(facts.joules + off_j),
            share: off_j / facts.joules,
            has_gaps: facts.has_gaps,
            parts,
            period_s: sensor.period_s,
            window_s,
            timing_source: sensor.timing_source,
            seen_share: (window_s / spacing_s).min(1.0),
            peaks_unknown_below_s: rounded(spacing_s + window_s),
        })
    }
}

/// `± 5.5 %`, and `of the observed time` where there was other time
impl fmt::Display for EnergyInterval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&error_words(self.share, self.has_gaps))
    }
}

fn error_words(share: f64, has_gaps: bool) -> String {
    let of_when = if has_gaps { " of the observed time" } else { "" };
    format!("± {:.1} %{of_when}", share * 100.0)
}
