//! Rows of one GPU and holder, put together.

use crate::integral::seconds;

/// Utilisation in % below which a GPU does nothing.
pub const IDLE_BELOW_PCT: f64 = 1.0;

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
    /// Seconds from the first row on without a known utilisation: that of the rows before lasts.
    pub utilization_open_s: f64,
    /// Seconds times the share that a limit held the clocks down.
    pub throttled_s: f64,
    /// Seconds from the first row on in which that is not known: that of the rows before lasts.
    pub throttled_open_s: f64,
    /// Share of the time before the first row that a limit held the clocks down, if the firmware counts it.
    pub throttled_before: Option<f64>,
    /// The last such share or state that was told: it lasts until the next, also where the firmware's counters stand still, and
    /// at the beginning of a file, whose first counters have no time before them.
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
    /// Whether the last are averages over the time before each.
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
    /// The part of `joules` before the utilisation is known for the first time.
    pub open_joules: f64,
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

/// Some time of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Time {
    pub(super) seconds: f64,
    /// Seconds times utilisation, and those of no work; none if the utilisation is not known.
    pub(super) busy_idle_s: Option<(f64, f64)>,
    /// Seconds times the share that a limit held the clocks down; none if that is not known.
    pub(super) throttled_s: Option<f64>,
}

impl Time {
    /// Between the last row of one and the first of the next; nothing over a gap.
    pub(super) fn between(one: &Stay, next: &Stay, gap: Gap) -> Self {
        let distance_ns = next.first_ns.saturating_sub(one.last_ns);
        if distance_ns <= 0 || distance_ns > gap.rows_ns {
            return Self::default();
        }
        let seconds = seconds(distance_ns);
        let throttled = next.throttled_before.or(one.throttled_after);
        Self {
            seconds,
            busy_idle_s: one.busy_idle_after(seconds),
            throttled_s: throttled.map(|share| seconds * share),
        }
    }

    /// Within a stay that follows another one, whose state lasts.
    pub(super) fn within(stay: &Stay, before: Option<&Stay>) -> Self {
        let has = |open_s: f64| open_s < stay.seconds;
        let known = has(stay.utilization_open_s).then_some((stay.busy_s, stay.idle_s));
        let open = before.and_then(|before| before.busy_idle_after(stay.utilization_open_s));
        let open = open.filter(|_| stay.utilization_open_s > 0.0);
        let throttled = has(stay.throttled_open_s).then_some(stay.throttled_s);
        let of_open = before.and_then(|before| Some(before.throttled_after? * stay.throttled_open_s));
        let of_open = of_open.filter(|_| stay.throttled_open_s > 0.0);
        Self {
            seconds: stay.seconds,
            busy_idle_s: sum(known, open, |one, other| (one.0 + other.0, one.1 + other.1)),
            throttled_s: sum(throttled, of_open, |one, other| one + other),
        }
    }
}

/// The sum of what is known.
pub(super) fn sum<T>(one: Option<T>, other: Option<T>, add: impl Fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(add(one, other)),
        (one, other) => one.or(other),
    }
}

impl Stay {
    /// Whether the GPU does nothing after the last row.
    pub(super) fn is_idle_after(&self) -> bool {
        self.utilization_after.is_some_and(|percent| percent < IDLE_BELOW_PCT)
    }

    /// Seconds times utilisation and of no work, of seconds behind the last row; none if the utilisation is not known.
    fn busy_idle_after(&self, seconds: f64) -> Option<(f64, f64)> {
        let share = (self.utilization_after? / 100.0).clamp(0.0, 1.0);
        Some((seconds * share, if self.is_idle_after() { seconds } else { 0.0 }))
    }

    /// Adds the next rows of the same GPU and holder.
    pub(super) fn join(&mut self, next: &Self, gap: Gap) {
        for time in [Time::between(self, next, gap), Time::within(next, Some(self))] {
            self.seconds += time.seconds;
            let (busy_s, idle_s) = time.busy_idle_s.unwrap_or_default();
            self.busy_s += busy_s;
            self.idle_s += idle_s;
            self.throttled_s += time.throttled_s.unwrap_or(0.0);
        }
        // What is open in the next is so here, if nothing here says more.
        let between_s = self.seconds - next.seconds;
        if self.utilization_after.is_none() {
            self.utilization_open_s = between_s + next.utilization_open_s;
        }
        if self.throttled_after.is_none() {
            let is_told = next.throttled_before.is_some();
            self.throttled_open_s =
                if is_told { self.throttled_open_s } else { between_s } + next.throttled_open_s;
        }
        self.join_power(next, gap);
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

    fn join_power(&mut self, next: &Self, gap: Gap) {
        let (one, other) = match (self.power, next.power) {
            (Some(one), Some(other)) => (one, other),
            (one, other) => {
                self.power = one.or(other);
                return;
            }
        };
        // Averages count only until there is a sample.
        if other.is_average && !one.is_average {
            return;
        }
        // The utilisation here lasts until the next row; it is taken over after this.
        let lasts = |joules: f64| match self.utilization_after {
            None => (0.0, joules),
            Some(_) if self.is_idle_after() => (joules, 0.0),
            Some(_) => (0.0, 0.0),
        };
        let (idle_j, open_j) = lasts(other.open_joules);
        let mut power = PowerSpan {
            is_average: other.is_average,
            last: other.last,
            joules: one.joules + other.joules,
            seconds: one.seconds + other.seconds,
            idle_joules: one.idle_joules + other.idle_joules + idle_j,
            open_joules: one.open_joules + open_j,
            max_w: one.max_w.max(other.max_w),
            ..one
        };
        let distance_ns = other.first.0.saturating_sub(one.last.0);
        if distance_ns > 0 && distance_ns <= gap.power_ns {
            let watts =
                if other.is_average { other.first.1 } else { f64::midpoint(one.last.1, other.first.1) };
            let joules = watts * seconds(distance_ns);
            let (idle_j, open_j) = lasts(joules);
            power.joules += joules;
            power.seconds += seconds(distance_ns);
            power.idle_joules += idle_j;
            power.open_joules += open_j;
        }
        self.power = Some(power);
    }
}

/// The longest distances before a stay that are no gaps, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gap {
    /// Between rows.
    pub(super) rows_ns: i64,
    /// Between values of power, which may be read less often.
    pub(super) power_ns: i64,
}
