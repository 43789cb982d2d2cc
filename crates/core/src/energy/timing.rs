//! The timing of a power sensor, found from readings that are taken more often than it makes new ones.

use thiserror::Error;

use crate::integral::seconds;

/// Fewest changes of power that tell a period.
const CHANGES_MIN: u32 = 10;
/// Most periods between two changes: a reading may be equal to the one before.
const PERIODS_MAX: f64 = 5.0;
/// How far a distance may be from whole periods, as a share of one: readings come a little late.
const OFF_MAX: f64 = 0.3;
/// How often the period is found anew from the distances that fit the one before.
const ROUNDS: usize = 3;
/// Least swing of power, as a share of the highest, that has steps.
const SWING_MIN: f64 = 0.2;
/// Least step, and the most that two equal readings differ by before and after one, as shares of the swing.
const STEP_MIN: f64 = 0.5;
const EQUAL_BEFORE: f64 = 0.05;
const EQUAL_AFTER: f64 = 0.03;
/// What lies between these shares of a step is between its two levels.
const BETWEEN: std::ops::Range<f64> = 0.1..0.9;
/// Least period, as a multiple of the time between two readings: a faster sensor shows nothing of itself.
const ASKED_MIN: f64 = 1.5;
/// Least period whose steps show the window, seconds. The reading of a faster sensor comes near a new level within some periods and goes on
/// rising: 116 ms of a K40m by this rule, whose window is taken for 200 ms.
const WINDOW_PERIOD_MIN_S: f64 = 0.05;
/// Most readings in which a step is made.
const STEP_READINGS_MAX: usize = 60;
/// Most periods of one level that are looked at.
const LEVEL_PERIODS_MAX: f64 = 10.0;

/// How often a power sensor makes a reading, and over which time it averages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SensorTiming {
    /// Time between two readings, seconds.
    pub period_s: f64,
    /// From how many changes of power it was found.
    pub changes: u32,
    /// The longest time that a reading may average: that of the sharpest step that was seen, which the load may have made slower.
    /// None: power made no step, or the readings are too fast to show a window.
    pub window_max_s: Option<f64>,
}

/// Why the timing of a sensor is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TimingUnknown {
    /// A steady power is always the same reading.
    #[error("power has changed less than ten times")]
    Still,
    /// Each reading was another.
    #[error("the sensor is as fast as it was asked, or faster")]
    TooFast,
}

impl SensorTiming {
    /// From readings in the order of time: nanoseconds and watts.
    ///
    /// # Errors
    /// When they do not show it.
    pub fn of(readings: &[(i64, f64)]) -> Result<Self, TimingUnknown> {
        let changed = |pair: &[(i64, f64)]| match pair {
            [(_, before_w), now @ (_, watts)] if before_w.to_bits() != watts.to_bits() => Some(*now),
            _ => None,
        };
        let changes: Vec<(i64, f64)> = readings.windows(2).filter_map(changed).collect();
        let count = u32::try_from(changes.len()).unwrap_or(u32::MAX);
        if count < CHANGES_MIN {
            return Err(TimingUnknown::Still);
        }
        let period_s = period(&distances(&changes)).ok_or(TimingUnknown::Still)?;
        let asked_s = middle(distances(readings)).unwrap_or(0.0);
        if period_s < ASKED_MIN * asked_s {
            return Err(TimingUnknown::TooFast);
        }
        let timing = Self { period_s, changes: count, window_max_s: None };
        let between = if timing.shows_window() { sharpest_step(&held(&changes, period_s)) } else { None };
        let window_max_s = between.map(|count| (count + 1.0) * period_s / (BETWEEN.end - BETWEEN.start));
        Ok(Self { window_max_s, ..timing })
    }

    /// Whether a step of power can show the window of such a sensor: not where the period is far shorter than a window may be.
    pub fn shows_window(&self) -> bool {
        self.period_s > WINDOW_PERIOD_MIN_S
    }
}

/// Seconds between one and the next.
fn distances(readings: &[(i64, f64)]) -> Vec<f64> {
    let distance = |pair: &[(i64, f64)]| match pair {
        [(from_ns, _), (to_ns, _)] => Some(seconds(to_ns.saturating_sub(*from_ns))),
        _ => None,
    };
    readings.windows(2).filter_map(distance).filter(|distance_s| *distance_s > 0.0).collect()
}

fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The time that the distances are multiples of.
fn period(distances_s: &[f64]) -> Option<f64> {
    let mut period_s = middle(distances_s.to_vec())?;
    for _ in 0..ROUNDS {
        let (mut sum_s, mut periods) = (0.0, 0.0);
        for distance_s in distances_s {
            let times = (distance_s / period_s).round();
            if (1.0..=PERIODS_MAX).contains(&times) && (distance_s / period_s - times).abs() < OFF_MAX {
                sum_s += distance_s;
                periods += times;
            }
        }
        period_s = if periods > 0.0 { sum_s / periods } else { return None };
    }
    Some(period_s)
}

/// A reading for each period.
fn held(changes: &[(i64, f64)], period_s: f64) -> Vec<f64> {
    let mut held = Vec::new();
    for pair in changes.windows(2) {
        let [(from_ns, watts), (to_ns, _)] = pair else { continue };
        let mut periods = (seconds(to_ns.saturating_sub(*from_ns)) / period_s).min(LEVEL_PERIODS_MAX);
        while periods > 0.5 {
            held.push(*watts);
            periods -= 1.0;
        }
    }
    held
}

/// How many readings lie between the two levels of the sharpest step.
fn sharpest_step(readings: &[f64]) -> Option<f64> {
    let high = readings.iter().copied().fold(0.0, f64::max);
    let low = readings.iter().copied().fold(high, f64::min);
    let swing = high - low;
    if swing < SWING_MIN * high {
        return None;
    }
    let steps = (0..readings.len()).filter_map(|at| step(readings.get(at..)?, swing));
    steps.min_by(f64::total_cmp)
}

/// How many readings lie between the two levels of a step that begins with the third reading; none: no step does.
fn step(readings: &[f64], swing: f64) -> Option<f64> {
    let [before, level, rest @ ..] = readings else { return None };
    let is_level = (level - before).abs() < EQUAL_BEFORE * swing;
    let first = rest.first()?;
    if !is_level || (first - level).abs() < EQUAL_AFTER * swing {
        return None;
    }
    let is_equal = |one: f64, other: f64| (one - other).abs() < EQUAL_AFTER * swing;
    let is_end = |three: &[f64]| matches!(three, [a, b, c] if is_equal(*a, *b) && is_equal(*b, *c));
    let end = rest.windows(3).take(STEP_READINGS_MAX).position(is_end)? + 1;
    let height = rest.get(end)? - level;
    if height.abs() <= STEP_MIN * swing {
        return None;
    }
    let is_between = |watts: &&f64| BETWEEN.contains(&((*watts - level) / height));
    Some(rest.iter().take(end).filter(is_between).map(|_| 1.0).sum())
}
