//! Running figures of a column.

use super::Extent;
use gpuvitals_core::integral::{Integral, Rise, rounded, seconds};
use gpuvitals_core::number::float;
use gpuvitals_core::throttle::{Residency, Steps};

/// A value that goes up and down.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    integral: Integral,
    seen: Integral,
    range: Option<(f64, f64)>,
    last: f64,
    count: u64,
}

impl Gauge {
    pub(super) fn add(&mut self, time_ns: i64, value: Option<f64>, gap_ns: i64) {
        let Some(value) = value else { return };
        self.integral.sample(time_ns, value, gap_ns);
        self.seen.sample(time_ns, 1.0, gap_ns);
        let (min, max) = self.range.unwrap_or((value, value));
        self.range = Some((min.min(value), max.max(value)));
        self.last = value;
        self.count += 1;
    }

    /// Nothing is known from the last value to the next one.
    pub(super) fn lose(&mut self) {
        self.integral.lose();
        self.seen.lose();
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Seconds over which it was sampled.
    pub(super) fn seen_s(&self) -> Option<f64> {
        self.seen.total()
    }

    /// Mean over time; a single sample is its own mean.
    pub(super) fn mean(&self) -> Option<f64> {
        let (total, seen) = (self.integral.total()?, self.seen.total()?);
        Some(if seen > 0.0 { total / seen } else { self.last })
    }

    pub(super) fn extent(&self) -> Option<Extent> {
        let (min, max) = self.range?;
        Some(Extent { mean: rounded(self.mean()?), min: rounded(min), max: rounded(max) })
    }
}

/// A counter, and the time between its first and last reading.
#[derive(Debug, Default)]
pub(super) struct Count {
    rise: Rise,
    span_ns: Option<(i64, i64)>,
}

impl Count {
    pub(super) fn read(&mut self, time_ns: i64, value: Option<f64>, gap_ns: i64) {
        let Some(value) = value else { return };
        self.rise.read(time_ns, value, gap_ns);
        let first = self.span_ns.map_or(time_ns, |(first, _)| first);
        self.span_ns = Some((first, time_ns));
    }

    pub(super) fn total(&self) -> Option<f64> {
        self.rise.total()
    }

    /// None before the second reading.
    pub(super) fn span_s(&self) -> Option<f64> {
        self.span_ns.map(|(first, last)| seconds(last - first)).filter(|&span| span > 0.0)
    }

    pub(super) fn per_s(&self) -> Option<f64> {
        Some(self.total()? / self.span_s()?)
    }
}

/// Time under a limit, if the firmware counts it.
#[derive(Debug, Default)]
pub(super) struct Held {
    residency: Residency,
    time: Integral,
    seen: Integral,
}

impl Held {
    pub(super) fn read(&mut self, time_ns: i64, steps: Option<Steps>, gap_ns: i64) {
        if let Some(shares) = steps.and_then(|steps| self.residency.read(steps)) {
            self.time.mean(time_ns, shares.any(), gap_ns);
            self.seen.mean(time_ns, 1.0, gap_ns);
        }
    }

    /// Nothing is known from the last reading to the next one.
    pub(super) fn lose(&mut self) {
        self.time.lose();
        self.seen.lose();
    }

    /// Seconds under a limit, and the seconds observed; none before the second reading.
    pub(super) fn total(&self) -> Option<(f64, f64)> {
        self.time.total().zip(self.seen.total()).filter(|&(_, seen_s)| seen_s > 0.0)
    }
}

/// Times of rows.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    span_ns: Option<(i64, i64)>,
    count: u64,
    gaps: u64,
    gaps_ns: i64,
    /// Whether it has reported nothing since the last row.
    is_lost: bool,
}

impl Pulse {
    pub(super) fn beat(&mut self, time_ns: i64, gap_ns: i64) {
        let (first, last) = self.span_ns.unwrap_or((time_ns, time_ns));
        let was_lost = std::mem::take(&mut self.is_lost);
        if was_lost || time_ns - last > gap_ns {
            self.gaps += 1;
            self.gaps_ns += time_ns - last;
        }
        self.span_ns = Some((first, time_ns.max(last)));
        self.count += 1;
    }

    pub(super) fn lose(&mut self) {
        self.is_lost = self.span_ns.is_some();
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn gaps(&self) -> u64 {
        self.gaps
    }

    pub(super) fn gaps_s(&self) -> f64 {
        seconds(self.gaps_ns)
    }

    pub(super) fn duration_s(&self) -> f64 {
        self.span_ns.map_or(0.0, |(first, last)| seconds(last - first))
    }

    pub(super) fn rate_hz(&self) -> Option<f64> {
        let duration_s = self.duration_s();
        (duration_s > 0.0).then(|| float(self.count - 1) / duration_s)
    }
}
