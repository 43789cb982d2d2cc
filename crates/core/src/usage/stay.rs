//! Rows of one GPU and holder, put together.

use super::spans::{CountedSpan, CounterSpan, PowerSpan, SeenPower, is_seen};
use crate::energy::{STEP_S, TOLERANCE};
use crate::integral::seconds;
use crate::throttle::ByLimit;

/// Utilisation in % below which a GPU does nothing.
pub const IDLE_BELOW_PCT: f64 = 1.0;
/// What a counter of a part without a known limit counts at more than so many times the highest power of these rows is a jump. Rows
/// before them may have seen more.
const JUMP: f64 = 100.0;

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
    /// The last such share or state that was told: it lasts until the next, at most the gap, also where the firmware's counters
    /// stand still, and at the beginning of a file, whose first counters have no time before them.
    pub throttled_after: Option<f64>,
    /// Time of the row that told it.
    pub throttled_told_ns: i64,
    /// The parts of that throttled time by limit; none where only the whole is kept.
    pub throttled_by: ByLimit,
    /// The last utilisation that was reported, %. It holds until the next report, but no longer than a gap.
    pub utilization_after: Option<f64>,
    /// Time of the row that told it.
    pub utilization_told_ns: i64,
    /// Samples of power, if there are any.
    pub power: Option<PowerSpan>,
    /// Readings of the energy counter, if there are any.
    pub counter: Option<CounterSpan>,
    /// Largest power limit, watts; 0: none is known.
    pub limit_w: f64,
}

/// Some time of a GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct UseTime {
    pub(super) seconds: f64,
    /// Seconds times utilisation, and those of no work; none if the utilisation is not known.
    pub(super) busy_idle_s: Option<(f64, f64)>,
    /// Seconds in which the utilisation is known, between rows.
    pub(super) known_s: Option<f64>,
    /// Seconds times the share that a limit held the clocks down; none if that is not known.
    pub(super) throttled_s: Option<f64>,
    /// The same by limit, between rows.
    pub(super) throttled_by_s: ByLimit,
}

impl UseTime {
    /// Between the last row of one and the first of the next; nothing over a gap.
    pub(super) fn between(one: &Stay, next: &Stay, gap: UseGap) -> Self {
        let distance_ns = next.first_ns.saturating_sub(one.last_ns);
        if distance_ns <= 0 || distance_ns > gap.rows_ns {
            return Self::default();
        }
        let seconds = seconds(distance_ns);
        let lasts = one.throttled_lasts(one.last_ns, seconds, gap);
        let throttled_s = next.throttled_before.map(|share| share * seconds).or(lasts);
        let by = if next.throttled_before.is_some() { next.throttled_by } else { one.throttled_by };
        let throttled_by_s = by.times(throttled_s.unwrap_or(0.0));
        let busy_idle_s = one.busy_idle_after(one.last_ns, seconds, gap);
        let known_s = one.known_after(one.last_ns, seconds, gap);
        Self { seconds, busy_idle_s, known_s, throttled_s, throttled_by_s }
    }

    /// Within a stay that follows another one, whose state lasts.
    pub(super) fn within(stay: &Stay, before: Option<&Stay>, gap: UseGap) -> Self {
        let has = |open_s: f64| open_s < stay.seconds;
        let known = has(stay.utilization_open_s).then_some((stay.busy_s, stay.idle_s));
        let open = before
            .and_then(|before| before.busy_idle_after(stay.first_ns, stay.utilization_open_s, gap))
            .filter(|_| stay.utilization_open_s > 0.0);
        let throttled = has(stay.throttled_open_s).then_some(stay.throttled_s);
        let of_open = before
            .and_then(|before| before.throttled_lasts(stay.first_ns, stay.throttled_open_s, gap))
            .filter(|_| stay.throttled_open_s > 0.0);
        Self {
            seconds: stay.seconds,
            busy_idle_s: sum(known, open, |one, other| (one.0 + other.0, one.1 + other.1)),
            throttled_s: sum(throttled, of_open, |one, other| one + other),
            ..Self::default()
        }
    }
}

/// So many of the seconds behind an instant in which a state that was told earlier still lasts; none if it has ended.
fn lasting(told_ns: i64, from_ns: i64, wanted_s: f64, gap: UseGap) -> Option<f64> {
    let left_ns = told_ns.saturating_add(gap.rows_ns).saturating_sub(from_ns);
    (left_ns > 0).then(|| wanted_s.min(seconds(left_ns)))
}

/// The sum of what is known.
pub(super) fn sum<T>(one: Option<T>, other: Option<T>, add: impl Fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(add(one, other)),
        (one, other) => one.or(other),
    }
}

impl Stay {
    /// The share of the seconds behind an instant in which the GPU is known to do nothing, by what was told last; none if that
    /// says nothing of any.
    pub(super) fn idle_share(&self, from_ns: i64, seconds: f64, gap: UseGap) -> Option<f64> {
        let (_, idle_s) = self.busy_idle_after(from_ns, seconds, gap)?;
        Some(if seconds > 0.0 { idle_s / seconds } else { 0.0 })
    }

    /// So many of the seconds behind an instant in which the utilisation is known; none of them.
    fn known_after(&self, from_ns: i64, seconds: f64, gap: UseGap) -> Option<f64> {
        self.utilization_after?;
        lasting(self.utilization_told_ns, from_ns, seconds, gap)
    }

    /// Seconds times utilisation and of no work, of seconds behind an instant; none if the utilisation is not known.
    fn busy_idle_after(&self, from_ns: i64, seconds: f64, gap: UseGap) -> Option<(f64, f64)> {
        let percent = self.utilization_after?;
        let seconds = self.known_after(from_ns, seconds, gap)?;
        // Not -0 for a utilisation of -0.
        let share = (percent / 100.0).clamp(0.0, 1.0) + 0.0;
        Some((seconds * share, if percent < IDLE_BELOW_PCT { seconds } else { 0.0 }))
    }

    /// Seconds behind an instant times the share that a limit held the clocks down; none if that is not known.
    fn throttled_lasts(&self, from_ns: i64, seconds: f64, gap: UseGap) -> Option<f64> {
        let share = self.throttled_after?;
        Some(share * lasting(self.throttled_told_ns, from_ns, seconds, gap)?)
    }

    /// Adds the next rows of the same GPU and holder.
    pub(super) fn join(&mut self, next: &Self, gap: UseGap) {
        for time in [UseTime::between(self, next, gap), UseTime::within(next, Some(self), gap)] {
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
        self.limit_w = self.limit_w.max(next.limit_w);
        self.join_readings(next, gap);
        self.follow(next);
        (self.last_ns, self.pace_ns) = (next.last_ns, next.pace_ns);
    }

    /// Takes over what the next rows tell; what they do not tell again lasts.
    pub(super) fn follow(&mut self, next: &Self) {
        if next.utilization_after.is_some() {
            (self.utilization_after, self.utilization_told_ns) =
                (next.utilization_after, next.utilization_told_ns);
        }
        if next.throttled_after.is_some() {
            (self.throttled_after, self.throttled_told_ns) = (next.throttled_after, next.throttled_told_ns);
            self.throttled_by = next.throttled_by;
        }
    }

    fn join_readings(&mut self, next: &Self, gap: UseGap) {
        let before = self.power;
        let all = self.join_power(next, gap);
        let of_next = if all.is_some() { SeenPower::of(next.power) } else { SeenPower::default() };
        let between = all.unwrap_or_default();
        self.counter = match (self.counter, next.counter) {
            (Some(one), Some(next)) => {
                let [head, tail] = next.around;
                let is_told = all.is_some();
                let (head, tail) = if is_told { (head, tail) } else { Default::default() };
                let seen = one.around[1].and(between).and(head);
                let counted_j = next.first.1 - one.last.1;
                let elapsed_s = seconds(next.first.0.saturating_sub(one.last.0));
                // What it counted up to a reset or a jump is not known.
                let is_lost = counted_j < 0.0 || self.is_jump(counted_j, elapsed_s);
                let rise_j = if is_lost { seen.joules } else { counted_j };
                let whole = CountedSpan { counted_j, integrated_j: seen.joules, seen_s: seen.seconds };
                let is_compared = !is_lost && is_seen(seen.seconds, elapsed_s);
                let seen_of_next = if is_told { next.seen } else { CountedSpan::default() };
                let seen = one.seen.and(seen_of_next);
                Some(CounterSpan {
                    first: one.first,
                    last: next.last,
                    fell: one.fell || next.fell || is_lost,
                    rise_j: one.rise_j + rise_j + next.rise_j,
                    seen: if is_compared { seen.and(whole) } else { seen },
                    around: [one.around[0], tail],
                })
            }
            (Some(one), None) => {
                let [head, tail] = one.around;
                Some(CounterSpan { around: [head, tail.and(between).and(of_next)], ..one })
            }
            (None, Some(next)) => {
                let [head, tail] = next.around;
                Some(CounterSpan { around: [SeenPower::of(before).and(between).and(head), tail], ..next })
            }
            (None, None) => None,
        };
    }

    /// Whether a counter rose by more than the GPU can use in this time.
    fn is_jump(&self, counted_j: f64, elapsed_s: f64) -> bool {
        let highest_w = self.power.map_or(0.0, |power| power.max_w);
        let most_w = if self.limit_w > 0.0 {
            self.limit_w.max(highest_w) * (1.0 + TOLERANCE)
        } else {
            highest_w * JUMP
        };
        most_w > 0.0 && counted_j > most_w * (elapsed_s + STEP_S)
    }

    /// Adds the power of the next rows, and returns that between; none if these have none that counts.
    fn join_power(&mut self, next: &Self, gap: UseGap) -> Option<SeenPower> {
        let (one, other) = match (self.power, next.power) {
            (Some(one), Some(other)) => (one, other),
            (one, other) => {
                self.power = one.or(other);
                return Some(SeenPower::default());
            }
        };
        // Averages count only where there is no sample.
        if other.is_average && !one.is_average && other.last.0.saturating_sub(one.last.0) <= gap.power_ns {
            return None;
        }
        // The utilisation here lasts until the next row; it is taken over after this.
        let lasts = |joules: f64, from_ns: i64, over_s: f64| match self.utilization_after {
            None => (0.0, joules),
            Some(_) => (self.idle_share(from_ns, over_s, gap).map_or(0.0, |share| share * joules), 0.0),
        };
        let (idle_j, open_j) = lasts(other.open_joules, next.first_ns, next.utilization_open_s);
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
        let mut between = SeenPower::default();
        let distance_ns = other.first.0.saturating_sub(one.last.0);
        if distance_ns > 0 && distance_ns <= gap.power_ns {
            let watts =
                if other.is_average { other.first.1 } else { f64::midpoint(one.last.1, other.first.1) };
            between = SeenPower { joules: watts * seconds(distance_ns), seconds: seconds(distance_ns) };
            let apart_s = seconds(next.first_ns.saturating_sub(self.last_ns));
            let (idle_j, open_j) = lasts(between.joules, self.last_ns, apart_s);
            power.joules += between.joules;
            power.seconds += between.seconds;
            power.idle_joules += idle_j;
            power.open_joules += open_j;
        }
        self.power = Some(power);
        Some(between)
    }
}

/// The longest distances before a stay that are no gaps, nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UseGap {
    /// Between two rows of a GPU.
    pub(super) rows_ns: i64,
    /// Between values of power, which may be read less often.
    pub(super) power_ns: i64,
}
