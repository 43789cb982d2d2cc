//! The unit of the energy counter. It is 2^-16 J on Instinct GPUs since MI100; on others it is undocumented,
//! and has been seen to count millijoules (RX 6900 XT), to stay at 0 (RDNA3 and later), and to be absent
//! (APUs). So elsewhere the counter is compared with the power, and accepted when one of the two units fits.

/// Joules a step, in the units that are known.
const UNITS: [f64; 2] = [1.0 / 65_536.0, 1.0e-3];
/// Energy after which the comparison is decided. At 1 W, where rounding matters most, it takes a few minutes.
const ENOUGH_J: f64 = 200.0;
/// How far counter and integrated power may be apart; the units are apart by 65 times.
const FACTOR_MAX: f64 = 2.0;
/// Two readings farther apart than this (the machine slept) are not integrated over.
const GAP_NS: i64 = 10_000_000_000;

/// Knowledge about the counter of one GPU.
#[derive(Debug)]
pub(super) enum Energy {
    /// Joules a step.
    Known(f64),
    /// Being compared with power.
    Compared(Comparison),
    /// Not to be believed, or not there.
    Unknown,
}

/// A counter and the power since it was first read.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    first: Option<i64>,
    last_ns: i64,
    integrated_j: f64,
}

impl Energy {
    /// Of a GPU that is one of the Instinct family or not.
    pub(super) fn of(is_instinct: bool) -> Self {
        if is_instinct { Self::Known(UNITS[0]) } else { Self::Compared(Comparison::default()) }
    }

    /// Joules since the driver was loaded, if the counter's unit is known; learns it on the way. Takes the
    /// raw counter, its time, and the power at that time.
    pub(super) fn joules(&mut self, counter: i64, taken_ns: i64, power_w: Option<f64>) -> Option<f64> {
        if let Self::Compared(comparison) = self
            && let Some(verdict) = comparison.add(counter, taken_ns, power_w)
        {
            *self = verdict;
        }
        match self {
            Self::Known(unit) if counter > 0 => Some(count(counter) * *unit),
            _ => None,
        }
    }
}

impl Comparison {
    fn add(&mut self, counter: i64, taken_ns: i64, power_w: Option<f64>) -> Option<Energy> {
        let since_ns = taken_ns.saturating_sub(self.last_ns);
        let Some(first) = self.first.filter(|&first| counter >= first && (0..=GAP_NS).contains(&since_ns))
        else {
            *self = Self { first: Some(counter), last_ns: taken_ns, integrated_j: 0.0 };
            return None;
        };
        self.last_ns = taken_ns;
        self.integrated_j += power_w? * count(since_ns) * 1e-9;
        if self.integrated_j < ENOUGH_J {
            return None;
        }
        let ratio = |unit: f64| count(counter - first) * unit / self.integrated_j;
        let fits = |unit: &f64| (1.0 / FACTOR_MAX..=FACTOR_MAX).contains(&ratio(*unit));
        Some(UNITS.into_iter().find(fits).map_or(Energy::Unknown, Energy::Known))
    }
}

#[expect(clippy::cast_precision_loss, reason = "counters and nanoseconds far below 2^52")]
fn count(n: i64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_a_counter_is_learnt_from_power() {
        let learn = |steps_per_s: i64, power_w: f64| {
            let mut energy = Energy::of(false);
            let told: Vec<Option<f64>> = (0..60_i64)
                .map(|s| energy.joules(1_000_000 + s * steps_per_s, 5_000 + s * 1_000_000_000, Some(power_w)))
                .collect();
            (told[3], told[59])
        };
        assert_eq!(learn(36_000, 36.0), (None, Some(1_000.0 + 59.0 * 36.0)), "millijoule at 36 W");
        let (_, late) = learn(65_536 * 300, 300.0);
        assert!((late.unwrap() - (1_000_000.0 / 65_536.0 + 59.0 * 300.0)).abs() < 1e-6);
        assert_eq!(learn(0, 36.0), (None, None), "a counter that stands still is none");
        assert_eq!(learn(1_000_000, 36.0), (None, None), "neither unit fits");
    }

    #[test]
    fn an_instinct_counts_from_the_first_reading_and_zero_is_not_supported() {
        assert_eq!(Energy::of(true).joules(65_536, 0, None), Some(1.0));
        assert_eq!(Energy::of(true).joules(0, 0, None), None);
    }

    #[test]
    fn a_pause_or_a_reset_begins_the_comparison_anew() {
        let mut comparison = Comparison::default();
        assert!(comparison.add(10, 5_000_000_000, Some(1_000.0)).is_none());
        assert!(comparison.add(11, 6_000_000_000, Some(1_000.0)).is_some());
        let mut comparison = Comparison::default();
        assert!(comparison.add(10, 5_000_000_000, Some(1_000.0)).is_none());
        assert!(comparison.add(11, 60_000_000_000, Some(1_000.0)).is_none(), "a gap");
        assert!(comparison.add(3, 61_000_000_000, Some(1_000.0)).is_none(), "a counter that went back");
        assert!(comparison.add(3, 61_100_000_000, Some(1_000.0)).is_none(), "not enough yet");
    }
}
