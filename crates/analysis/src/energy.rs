//! Energy: what the hardware counted where that can be believed, integrated power where it cannot.
//!
//! A counter is believed when it moves, never falls, and agrees with integrated power wherever both saw the same time.
//! Both are off by the same few per cent, since they come from the same sensors, so more than [`TOLERANCE`] apart means
//! a wrong unit or a counter of something else. A counter is read more rarely than power: what lies before its first
//! and after its last reading is integrated.

use std::fmt;

use crate::integral::Integral;

/// How far counter and integrated power may lie apart, as a share of the larger.
pub const TOLERANCE: f64 = 0.10;
/// Besides, so many seconds of the highest power: a counter moves in steps, and late.
const STEP_S: f64 = 0.25;
/// Share of a span that power must have been sampled in for the span to be compared.
const SEEN: f64 = 0.95;

/// Takes power and counter readings of one GPU, in the order of time.
#[derive(Debug, Clone, Default)]
pub struct Energy {
    power: Integral,
    seen: Integral,
    power_max: f64,
    last: Option<Reading>,
    readings: u64,
    falls: u64,
    /// Counted between readings, and integrated power over the same spans.
    counted_j: f64,
    beside_j: f64,
    /// The same, for spans in which power was sampled throughout.
    compared: (f64, f64),
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    time_ns: i64,
    counter_j: f64,
    integrated_j: f64,
    seen_s: f64,
}

/// Where the number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EnergySource {
    /// The hardware's counter.
    Counter,
    /// Integrated power.
    Integrated,
}

/// Why it comes from there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EnergyReason {
    /// Counter and integrated power agree, so far apart as this share.
    Agrees(f64),
    /// There is a counter, but no power to check it against.
    Unchecked,
    /// There is no counter.
    NoCounter,
    /// The counter was read once only: the recording is too short for it.
    TooShort,
    /// The counter did not move.
    Still,
    /// The counter fell so many times: it was reset, or errs.
    Fell(u64),
    /// Over the same time they say different things.
    Disagrees {
        /// What the counter says, in joules.
        counter_j: f64,
        /// What integrated power says, in joules.
        integrated_j: f64,
    },
}

impl fmt::Display for EnergyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agrees(apart) => {
                write!(f, "the counter agrees with integrated power within {:.1} %", apart * 100.0)
            }
            Self::Unchecked => f.write_str("there is no power reading to check the counter against"),
            Self::NoCounter => f.write_str("the GPU has no energy counter"),
            Self::TooShort => f.write_str("too short for the counter, which was read once"),
            Self::Still => f.write_str("the counter stands still"),
            Self::Fell(times) => write!(f, "the counter fell {times} times"),
            Self::Disagrees { counter_j, integrated_j } => {
                write!(f, "the counter says {counter_j:.1} J where integrated power says {integrated_j:.1} J")
            }
        }
    }
}

/// Energy of a span.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EnergyTotal {
    /// Joules.
    pub joules: f64,
    /// From where.
    pub source: EnergySource,
    /// Why from there.
    pub reason: EnergyReason,
    /// Seconds over which power was sampled.
    pub seen_s: f64,
}

impl Energy {
    /// A sample of power in watts. Between samples further apart than the gap nothing is made up.
    pub fn sample(&mut self, time_ns: i64, watts: f64, gap_max_ns: i64) {
        self.power.sample(time_ns, watts, gap_max_ns);
        self.seen.sample(time_ns, 1.0, gap_max_ns);
        self.power_max = self.power_max.max(watts);
    }

    /// A reading of the counter in joules; that of the same instant comes after [`Energy::sample`].
    pub fn read(&mut self, time_ns: i64, counter_j: f64) {
        self.readings += 1;
        let now = Reading {
            time_ns,
            counter_j,
            integrated_j: self.power.total().unwrap_or(0.0),
            seen_s: self.seen.total().unwrap_or(0.0),
        };
        let Some(before) = self.last.replace(now) else { return };
        if counter_j < before.counter_j {
            self.falls += 1;
            return;
        }
        let (counted, beside) = (counter_j - before.counter_j, now.integrated_j - before.integrated_j);
        self.counted_j += counted;
        self.beside_j += beside;
        #[expect(clippy::cast_precision_loss, reason = "spans are far below 2^52 nanoseconds")]
        let span_s = (time_ns - before.time_ns) as f64 / 1e9;
        if now.seen_s - before.seen_s >= SEEN * span_s {
            self.compared.0 += counted;
            self.compared.1 += beside;
        }
    }

    /// The energy so far; none without power and counter.
    pub fn total(&self) -> Option<EnergyTotal> {
        let integrated = self.power.total();
        let reason = self.reason(integrated)?;
        let (source, joules) = match reason {
            EnergyReason::Agrees(_) | EnergyReason::Unchecked => {
                let around = integrated.unwrap_or(0.0) - self.beside_j;
                (EnergySource::Counter, self.counted_j + around.max(0.0))
            }
            _ => (EnergySource::Integrated, integrated?),
        };
        Some(EnergyTotal { joules, source, reason, seen_s: self.seen.total().unwrap_or(0.0) })
    }

    fn reason(&self, integrated: Option<f64>) -> Option<EnergyReason> {
        let (counter_j, integrated_j) = self.compared;
        let larger = counter_j.max(integrated_j);
        let apart = (counter_j - integrated_j).abs();
        Some(match self.readings {
            0 => integrated.map(|_| EnergyReason::NoCounter)?,
            1 => EnergyReason::TooShort,
            _ if self.falls > 0 => EnergyReason::Fell(self.falls),
            _ if self.counted_j <= 0.0 => EnergyReason::Still,
            _ if integrated.is_none() => EnergyReason::Unchecked,
            _ if larger <= 0.0 => EnergyReason::Unchecked,
            _ if apart > TOLERANCE * larger + STEP_S * self.power_max => {
                EnergyReason::Disagrees { counter_j, integrated_j }
            }
            _ => EnergyReason::Agrees(apart / larger),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: i64 = 2_500_000_000;

    /// Samples power 100 times a second for so many seconds, and reads the counter once a second from 0.3 s on.
    fn fed(seconds: u32, power: impl Fn(f64) -> f64, counter: impl Fn(f64) -> Option<f64>) -> EnergyTotal {
        let mut energy = Energy::default();
        for n in 0..=seconds * 100 {
            let (time_ns, t) = (i64::from(n) * 10_000_000, f64::from(n) / 100.0);
            energy.sample(time_ns, power(t), GAP);
            if n % 100 == 30
                && let Some(counter) = counter(t)
            {
                energy.read(time_ns, counter);
            }
        }
        energy.total().unwrap()
    }

    /// 300 W and 100 W by turns, ten seconds each; and its energy.
    fn square(t: f64) -> f64 {
        if (t / 10.0).rem_euclid(2.0) < 1.0 { 300.0 } else { 100.0 }
    }

    fn square_j(t: f64) -> f64 {
        let (periods, rest) = ((t / 20.0).floor(), t.rem_euclid(20.0));
        periods * 4_000.0 + 300.0 * rest.min(10.0) + 100.0 * (rest - 10.0).max(0.0)
    }

    #[test]
    fn a_counter_that_agrees_is_believed_and_its_ends_are_integrated() {
        let total = fed(60, square, |t| Some(5_000.0 + 1.02 * square_j(t)));
        assert_eq!(total.source, EnergySource::Counter);
        assert!(matches!(total.reason, EnergyReason::Agrees(apart) if (apart - 0.02).abs() < 0.005));
        // 59 s by the counter, 0.3 s before and 0.7 s after it by power.
        let wanted = 1.02 * (square_j(59.3) - square_j(0.3)) + 0.3 * 300.0 + 0.7 * 100.0;
        assert!((total.joules - wanted).abs() < 2.0, "{total:?} is not {wanted}");
    }

    #[test]
    fn a_linear_ramp_is_integrated_exactly() {
        let total = fed(10, |t| 50.0 + 20.0 * t, |_| None);
        assert_eq!((total.source, total.reason), (EnergySource::Integrated, EnergyReason::NoCounter));
        assert!((total.joules - 1_500.0).abs() < 1e-6 && (total.seen_s - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_counter_that_errs_is_not_believed() {
        let wanted = square_j(60.0);
        let check = |counter: &dyn Fn(f64) -> Option<f64>, is: &dyn Fn(EnergyReason) -> bool| {
            let total = fed(60, square, counter);
            assert_eq!(total.source, EnergySource::Integrated, "{total:?}");
            assert!(is(total.reason), "{total:?}");
            assert!((total.joules - wanted).abs() < 5.0, "{total:?}");
        };
        check(&|_| Some(777.0), &|why| why == EnergyReason::Still);
        check(&|t| Some(10.0 * square_j(t)), &|why| matches!(why, EnergyReason::Disagrees { .. }));
        check(&|t| Some(square_j(t) / 1_000.0), &|why| matches!(why, EnergyReason::Disagrees { .. }));
        check(&|t| Some(square_j(t).rem_euclid(6_500.0)), &|why| why == EnergyReason::Fell(1));
        check(&|t| (t < 1.0).then_some(4.0), &|why| why == EnergyReason::TooShort);
    }

    #[test]
    fn what_power_did_not_see_the_counter_did() {
        let mut energy = Energy::default();
        for n in 0_i64..=3_000 {
            let time_ns = n * 10_000_000;
            // From 10 s to 20 s no power is read.
            if !(1_000..2_000).contains(&n) {
                energy.sample(time_ns, 200.0, GAP);
            }
            if n % 100 == 0 {
                energy.read(time_ns, f64::from(u32::try_from(n).unwrap()) * 2.0);
            }
        }
        let total = energy.total().unwrap();
        assert_eq!(total.source, EnergySource::Counter);
        assert!((total.joules - 6_000.0).abs() < 3.0, "{total:?}");
        assert!((total.seen_s - 20.0).abs() < 0.1);
    }

    #[test]
    fn a_counter_alone_is_used_and_said_to_be_unchecked() {
        let mut energy = Energy::default();
        assert_eq!(energy.total(), None);
        energy.read(0, 10.0);
        assert_eq!(energy.total(), None);
        energy.read(1_000_000_000, 110.0);
        let total = energy.total().unwrap();
        assert_eq!((total.source, total.reason), (EnergySource::Counter, EnergyReason::Unchecked));
        assert!((total.joules - 100.0).abs() < 1e-9);
    }
}
