//! Rows of one GPU and holder, put together.

use super::IDLE_BELOW_PCT;
use crate::integral::seconds;

/// Rows of one GPU and holder, side by side: sums over them, and what is needed to join neighbours. A single row is one
/// too.
#[derive(Debug, Clone, PartialEq)]
pub struct Stay {
    /// Time of the first row, nanoseconds UTC since 1970.
    pub first_ns: i64,
    /// Of the last one.
    pub last_ns: i64,
    /// The usual distance of rows at its end, nanoseconds; 0: not known yet.
    pub pace_ns: i64,
    /// Seconds between rows that are no gap apart.
    pub seconds: f64,
    /// Seconds times utilisation.
    pub busy_s: f64,
    /// Seconds with a utilisation below [`IDLE_BELOW_PCT`].
    pub idle_s: f64,
    /// Seconds times the share that a limit held the clocks down.
    pub throttled_s: f64,
    /// Share of the time before the first row that a limit held the clocks down, if the firmware counts it.
    pub throttled_before: Option<f64>,
    /// The same as a state that lasts after the last row.
    pub throttled_after: Option<f64>,
    /// Utilisation after the last row, %.
    pub utilization_after: Option<f64>,
    /// Power.
    pub power: Option<PowerSpan>,
    /// Energy counter.
    pub counter: Option<CounterSpan>,
    /// Largest power limit, watts; 0: none is known.
    pub limit_w: f64,
}

/// Samples of power.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PowerSpan {
    /// Whether they are averages over the time before each.
    pub is_average: bool,
    /// Time and value of the first, watts.
    pub first: (i64, f64),
    /// Of the last.
    pub last: (i64, f64),
    /// Their integral, joules.
    pub joules: f64,
    /// Seconds that it covers.
    pub seconds: f64,
    /// What of it is of time in which the GPU did nothing, joules.
    pub idle_joules: f64,
    /// The largest, watts.
    pub max_w: f64,
}

/// Readings of an energy counter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CounterSpan {
    /// Time and value of the first, joules.
    pub first: (i64, f64),
    /// Of the last.
    pub last: (i64, f64),
    /// Whether it fell in between.
    pub fell: bool,
}

/// The time between two neighbours.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Between {
    pub(super) seconds: f64,
    pub(super) busy_s: f64,
    pub(super) idle_s: f64,
    pub(super) throttled_s: f64,
}

impl Between {
    /// Between the last row of one and the first of the next; nothing over a gap.
    pub(super) fn of(one: &Stay, next: &Stay, gap_max_ns: i64) -> Self {
        let distance_ns = next.first_ns.saturating_sub(one.last_ns);
        if distance_ns <= 0 || distance_ns > gap_max_ns {
            return Self::default();
        }
        let seconds = seconds(distance_ns);
        let share = one.utilization_after.map(|percent| (percent / 100.0).clamp(0.0, 1.0));
        let throttled = next.throttled_before.or(one.throttled_after);
        Self {
            seconds,
            busy_s: seconds * share.unwrap_or(0.0),
            idle_s: if one.is_idle_after() { seconds } else { 0.0 },
            throttled_s: seconds * throttled.unwrap_or(0.0),
        }
    }
}

impl Stay {
    /// Whether the GPU does nothing after the last row.
    pub(super) fn is_idle_after(&self) -> bool {
        self.utilization_after.is_some_and(|percent| percent < IDLE_BELOW_PCT)
    }

    /// Adds the next rows of the same GPU and holder.
    pub fn join(&mut self, next: &Self, gap_max_ns: i64) {
        let between = Between::of(self, next, gap_max_ns);
        self.seconds += between.seconds + next.seconds;
        self.busy_s += between.busy_s + next.busy_s;
        self.idle_s += between.idle_s + next.idle_s;
        self.throttled_s += between.throttled_s + next.throttled_s;
        self.join_power(next, gap_max_ns);
        self.counter = match (self.counter, next.counter) {
            (Some(one), Some(next)) => Some(CounterSpan {
                first: one.first,
                last: next.last,
                fell: one.fell || next.fell || next.first.1 < one.last.1,
            }),
            (one, next) => one.or(next),
        };
        self.limit_w = self.limit_w.max(next.limit_w);
        self.utilization_after = next.utilization_after.or(self.utilization_after);
        self.throttled_after = next.throttled_after.or(self.throttled_after);
        (self.last_ns, self.pace_ns) = (next.last_ns, next.pace_ns);
    }

    fn join_power(&mut self, next: &Self, gap_max_ns: i64) {
        let (one, other) = match (self.power, next.power) {
            (Some(one), Some(other)) => (one, other),
            (one, other) => {
                self.power = one.or(other);
                return;
            }
        };
        // Averages count only until there is a sample.
        if one.is_average != other.is_average {
            self.power = Some(if one.is_average { other } else { one });
            return;
        }
        let mut power = PowerSpan {
            last: other.last,
            joules: one.joules + other.joules,
            seconds: one.seconds + other.seconds,
            idle_joules: one.idle_joules + other.idle_joules,
            max_w: one.max_w.max(other.max_w),
            ..one
        };
        let distance_ns = other.first.0.saturating_sub(one.last.0);
        if distance_ns > 0 && distance_ns <= gap_max_ns {
            let watts = if one.is_average { other.first.1 } else { f64::midpoint(one.last.1, other.first.1) };
            let joules = watts * seconds(distance_ns);
            power.joules += joules;
            power.seconds += seconds(distance_ns);
            power.idle_joules += if self.is_idle_after() { joules } else { 0.0 };
        }
        self.power = Some(power);
    }
}
