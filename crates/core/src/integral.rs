//! Totals over time: integrals of sampled values, rises of hardware counters.
//!
//! Times are nanoseconds of one clock, preferably the monotonic one; totals are in the value's unit times
//! seconds. Unobserved time adds nothing: a gap between two samples that is longer than the caller allows, or
//! a shorter one in which the device is known to have reported nothing ([`Blanks`]).

use crate::Batch;
use crate::batch::MetricColumn;
use crate::number::float;

const SECOND: f64 = 1e9;

/// Rows of a batch without any value: their GPU reported nothing at that time (it slept, was gone, failed,
/// hung). The sampler writes one such row when that begins.
#[derive(Debug)]
pub struct Blanks<'a>(Vec<MetricColumn<'a>>);

impl<'a> Blanks<'a> {
    /// The blanks of a batch.
    pub fn of(batch: &'a Batch) -> Self {
        Self(batch.metrics().map(|(_, column)| column).collect())
    }

    /// Whether a row is one.
    pub fn has(&self, row: usize) -> bool {
        self.0.iter().all(|column| column.value(row).is_none())
    }
}

/// The usual distance between rows, learnt from the rows: a pause at 100 Hz is usual at one a minute. It is the longest of the
/// last few: two sources of one GPU make pairs of rows with a pause between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    least_ns: i64,
    /// The last few distances; 0: there were fewer.
    recent_ns: [i64; 4],
}

impl Pace {
    /// Shortest distance considered a gap: the slow tier always gives a row a second.
    const FLOOR_NS: i64 = 500_000_000;
    /// A distance this many times the usual one is a gap.
    const PATIENCE: i64 = 5;
    /// Largest factor by which the usual distance grows at once.
    const GROWTH: i64 = 8;

    /// Starts with the least distance considered usual, whatever comes: an additional reading after an error
    /// does not make a higher rate usual.
    pub fn new(least_ns: i64) -> Self {
        Self { least_ns: least_ns.max(Self::FLOOR_NS), recent_ns: [0; 4] }
    }

    /// Starts with a distance that is known to be usual.
    pub fn known(usual_ns: i64) -> Self {
        let mut pace = Self::new(0);
        pace.note(usual_ns);
        pace
    }

    /// Learns from a distance: by a factor of eight at most if it is longer, so that one outage does not become usual.
    pub fn step(&mut self, distance_ns: i64) {
        if distance_ns > 0 {
            self.note(distance_ns.min(self.usual_ns().saturating_mul(Self::GROWTH)));
        }
    }

    /// Learns from a distance that is no gap, be it the first.
    pub(crate) fn learn(pace: &mut Option<Self>, distance_ns: i64) {
        match pace {
            Some(pace) => pace.note(distance_ns),
            None => *pace = Some(Self::known(distance_ns)),
        }
    }

    fn note(&mut self, distance_ns: i64) {
        self.recent_ns.rotate_right(1);
        self.recent_ns[0] = distance_ns;
    }

    /// The usual distance.
    pub fn usual_ns(self) -> i64 {
        self.recent_ns.into_iter().fold(self.least_ns, i64::max)
    }

    /// Longest distance that is not a gap: five times the usual one.
    pub fn limit_ns(self) -> i64 {
        self.usual_ns().saturating_mul(Self::PATIENCE)
    }
}

/// Position of a reading in time relative to the one before it.
pub(crate) enum Order {
    /// This many nanoseconds after it.
    After(i64),
    /// At the same instant, or before it by no more than the gap: it came late, and its time is already
    /// counted.
    Late,
    /// Far before it: the clock was set back.
    Reset,
}

pub(crate) fn order(last_ns: i64, time_ns: i64, gap_max_ns: i64) -> Order {
    match time_ns.saturating_sub(last_ns) {
        distance if distance > 0 => Order::After(distance),
        distance if distance.saturating_neg() <= gap_max_ns => Order::Late,
        _ => Order::Reset,
    }
}

/// To three digits after the point: as much as is worth telling. Nothing is 0, not -0.
pub fn rounded(value: f64) -> f64 {
    (1000.0 * value).round() / 1000.0 + 0.0
}

/// A distance in nanoseconds as seconds.
pub fn seconds(distance_ns: i64) -> f64 {
    float(distance_ns) / SECOND
}

/// Integral of a sampled value over time.
#[derive(Debug, Clone, Default)]
pub struct Integral {
    last: Option<(i64, f64)>,
    total: Option<f64>,
}

impl Integral {
    /// A sample: the value is assumed to change linearly since the one before (trapezoid rule).
    pub fn sample(&mut self, time_ns: i64, value: f64, gap_max_ns: i64) {
        self.add(time_ns, value, gap_max_ns, f64::midpoint);
    }

    /// A mean over the time since the sample before.
    pub fn mean(&mut self, time_ns: i64, value: f64, gap_max_ns: i64) {
        self.add(time_ns, value, gap_max_ns, |_, mean| mean);
    }

    /// A state, which lasts until the next sample.
    pub fn state(&mut self, time_ns: i64, value: f64, gap_max_ns: i64) {
        self.add(time_ns, value, gap_max_ns, |state, _| state);
    }

    /// Takes an integral that was made elsewhere, from the last sample here to another one.
    pub(crate) fn extend(&mut self, integral: f64, last: (i64, f64)) {
        *self.total.get_or_insert(0.0) += integral;
        self.last = Some(last);
    }

    fn add(&mut self, time_ns: i64, value: f64, gap_max_ns: i64, between: fn(f64, f64) -> f64) {
        if !value.is_finite() {
            return;
        }
        let total = self.total.get_or_insert(0.0);
        if let Some((last_ns, last)) = self.last {
            match order(last_ns, time_ns, gap_max_ns) {
                Order::After(distance) if distance <= gap_max_ns => {
                    *total += between(last, value) * seconds(distance);
                }
                Order::After(_) | Order::Reset => {}
                Order::Late => return,
            }
        }
        self.last = Some((time_ns, value));
    }

    /// Nothing is known from the last sample to the next one.
    pub fn lose(&mut self) {
        self.last = None;
    }

    /// The integral so far; none before the first sample.
    pub fn total(&self) -> Option<f64> {
        self.total
    }
}

/// The rise of a hardware counter since its first reading. A counter that falls was reset with its driver, or
/// is wrong; its count in between is unknown, so it adds nothing.
#[derive(Debug, Clone, Default)]
pub struct Rise {
    last: Option<(i64, f64)>,
    total: f64,
}

impl Rise {
    /// Takes a reading of the counter; one that is no finite number is left out.
    pub fn read(&mut self, time_ns: i64, value: f64, gap_max_ns: i64) {
        if !value.is_finite() {
            return;
        }
        if let Some((last_ns, last)) = self.last {
            if matches!(order(last_ns, time_ns, gap_max_ns), Order::Late) {
                return;
            }
            self.total += (value - last).max(0.0);
        }
        self.last = Some((time_ns, value));
    }

    /// The rise so far; none before the first reading.
    pub fn total(&self) -> Option<f64> {
        self.last.map(|_| self.total)
    }
}

/// A total that the hardware counts if it can, and that is integrated otherwise. It switches to the counter
/// at its first reading and never back; it never falls.
#[derive(Debug, Clone, Default)]
pub struct RunningTotal {
    rise: Rise,
    integral: Integral,
}

impl RunningTotal {
    /// A reading of the hardware's counter.
    pub fn read(&mut self, time_ns: i64, value: f64, gap_max_ns: i64) {
        self.rise.read(time_ns, value, gap_max_ns);
    }

    /// Its mean over the time since the sample before.
    pub fn mean(&mut self, time_ns: i64, value: f64, gap_max_ns: i64) {
        if self.rise.total().is_none() {
            self.integral.mean(time_ns, value, gap_max_ns);
        }
    }

    /// Its state, which lasts until the next sample.
    pub fn state(&mut self, time_ns: i64, value: f64, gap_max_ns: i64) {
        if self.rise.total().is_none() {
            self.integral.state(time_ns, value, gap_max_ns);
        }
    }

    /// Nothing is known from the last sample to the next one. A counter counts on.
    pub fn lose(&mut self) {
        self.integral.lose();
    }

    /// The total so far; none before the first reading or sample.
    pub fn total(&self) -> Option<f64> {
        match (self.rise.total(), self.integral.total()) {
            (Some(rise), Some(integral)) => Some(rise + integral),
            (rise, integral) => rise.or(integral),
        }
    }
}
