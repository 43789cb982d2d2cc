//! Power and counter over some time.

/// Share of a span in which power must have been sampled for the span to be compared.
const SEEN: f64 = 0.95;

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
    /// The part of `joules` while the GPU did nothing.
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
    /// Whether it fell in between, or jumped.
    pub fell: bool,
    /// What it counted, and the power from its last reading before a fall or jump to its first behind it, joules.
    pub rise_j: f64,
    /// What it counted and the power, where both are known.
    pub seen: CountedSpan,
    /// Power before the first reading, and after the last.
    pub around: [SeenPower; 2],
}

impl CounterSpan {
    /// The span of one reading of the counter, in joules, which covers no time.
    pub fn reading(time_ns: i64, joules: f64) -> Self {
        let (read, seen, around) = ((time_ns, joules), CountedSpan::default(), Default::default());
        Self { first: read, last: read, fell: false, rise_j: 0.0, seen, around }
    }
}

/// Power that was sampled.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SeenPower {
    /// Its integral over those seconds.
    pub joules: f64,
    /// Seconds that it covers.
    pub seconds: f64,
}

impl SeenPower {
    pub(super) fn and(self, other: Self) -> Self {
        Self { joules: self.joules + other.joules, seconds: self.seconds + other.seconds }
    }

    pub(super) fn without(self, part: Self) -> Self {
        let (joules, seconds) = (self.joules - part.joules, self.seconds - part.seconds);
        // What is left of rounding is nothing.
        if seconds < 1e-9 { Self::default() } else { Self { joules, seconds } }
    }

    pub(super) fn of(power: Option<PowerSpan>) -> Self {
        power.map_or_else(Self::default, |power| Self { joules: power.joules, seconds: power.seconds })
    }
}

/// What counter and power say of the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CountedSpan {
    /// By the counter, joules.
    pub counted_j: f64,
    /// By integrated power, joules.
    pub integrated_j: f64,
    /// Seconds of it in which power was sampled.
    pub seen_s: f64,
}

/// Whether power was sampled often enough in so many seconds for a counter to be compared with it.
pub(crate) fn is_seen(seen_s: f64, elapsed_s: f64) -> bool {
    seen_s > 0.0 && seen_s >= SEEN * elapsed_s
}

impl PowerSpan {
    /// A part of the span that has so much.
    pub(super) fn part(self, SeenPower { joules, seconds }: SeenPower) -> Self {
        Self { joules, seconds, ..self }
    }
}

impl CountedSpan {
    /// Both spans together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            counted_j: self.counted_j + other.counted_j,
            integrated_j: self.integrated_j + other.integrated_j,
            seen_s: self.seen_s + other.seen_s,
        }
    }
}
