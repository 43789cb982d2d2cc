//! How far two sets of runs are apart, and how sure that is: a bootstrap over the runs, and over blocks within each.
//!
//! Runs are what was repeated, so the noise between them is the one that counts: a thousand steps of one run say how steady that run
//! was, not what the next one will do. The middle of a set is the median of the means of all pairs of its runs (Hodges and Lehmann):
//! one wild run moves it little, and of few even runs it is nearly as good as the mean.
//!
//! Few runs show their noise badly: two may agree by chance. So [`RUN_NOISE_USUAL`] counts as much as [`RUN_NOISE_WEIGHT`] degrees of
//! freedom beside what the runs show; with one run each it is all that there is. Runs that show far more are believed as they are:
//! minutes of a server under a changing load differ by 15 %, and nothing may make that look smaller. So the answer has a step where they
//! begin to be believed alone. Without it, with the usual noise counted always, there would be more false ones: of runs that differ by 3 %,
//! five on each side, 11 % of the intervals of 95 % would miss the truth, and 5 % do so now.
//!
//! Everything is computed from logarithms: a change is a ratio. Equal runs give equal answers: the draws begin from a fixed seed.

use gpuvitals_analysis::robust::median;
use gpuvitals_core::number::float;

/// Noise from run to run that is assumed until the runs show theirs: the standard deviation of a run, as a share of its value.
pub(super) const RUN_NOISE_USUAL: f64 = 0.006;
/// Degrees of freedom that it counts.
const RUN_NOISE_WEIGHT: f64 = 4.0;
/// Variance of the runs, in those of the usual noise, from which they are believed alone.
const RUN_NOISE_BELIEVED: f64 = 2.0;
/// Draws of the bootstrap.
const DRAWS: usize = 1_000;

/// How much of its draws an interval holds.
#[derive(Debug, Clone, Copy)]
enum Holds {
    /// 95 %: the interval that is shown.
    Percent95,
    /// 99 %: what a verdict needs, because a comparison has several of them.
    Percent99,
    /// 99.5 %: what it needs of runs under a load that comes and goes, whose noise is not the normal one.
    Permille995,
}

/// Two sets of runs beside each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Apart {
    /// The middle of the first.
    pub(super) base: f64,
    /// The middle of the second.
    pub(super) new: f64,
    /// Change from the first to the second, as a share of the first.
    pub(super) change: f64,
    /// Lower end of its interval of 95 %.
    pub(super) low: f64,
    /// Upper end of that interval.
    pub(super) high: f64,
    /// Smallest rise that these runs tell from noise: with 99 %, or 99.5 % if they are far noisier than usual.
    pub(super) least: f64,
    /// Whether the change is told from noise so.
    pub(super) is_certain: bool,
}

/// The middle of a set of runs, and how well it is known.
struct Middle {
    value: f64,
    /// Of the logarithm of the middle.
    variance: f64,
    runs: usize,
}

/// Compares the runs of two sets, each with the values of its blocks. None if a set has no run, or a value is not above 0: there is
/// no ratio.
pub(super) fn apart(base: &[&[f64]], new: &[&[f64]]) -> Option<Apart> {
    let mut dice = Dice(0);
    let (base, new) = (Middle::of(base, &mut dice)?, Middle::of(new, &mut dice)?);
    let sides = [&base, &new];
    let noise = RunNoise::of(sides);
    // The bootstrap of several runs has drawn blocks as well; that of one has drawn nothing else.
    let within = |side: &Middle| if side.runs == 1 { side.variance } else { 0.0 };
    let variance: f64 = sides.iter().map(|side| noise.variance / float(side.runs) + within(side)).sum();
    let [reach, certain] =
        [Holds::Percent95, noise.verdict].map(|holds| student(noise.freedom, holds) * variance.sqrt());
    let distance = (new.value / base.value).ln();
    Some(Apart {
        base: base.value,
        new: new.value,
        change: distance.exp_m1(),
        low: (distance - reach).exp_m1(),
        high: (distance + reach).exp_m1(),
        least: certain.exp_m1(),
        is_certain: distance.abs() > certain,
    })
}

/// The noise from run to run, and how well it is known.
struct RunNoise {
    /// Of the logarithm of a run's value.
    variance: f64,
    freedom: f64,
    /// What a verdict needs.
    verdict: Holds,
}

impl RunNoise {
    /// What both sides show together, beside the usual.
    fn of(sides: [&Middle; 2]) -> Self {
        let usual = RUN_NOISE_USUAL.powi(2);
        let (mut freedom, mut sum) = (0.0, 0.0);
        for side in sides.iter().filter(|side| side.runs > 1) {
            let of_side = float(side.runs - 1);
            freedom += of_side;
            sum += of_side * side.variance * float(side.runs);
        }
        if sum > RUN_NOISE_BELIEVED * usual * freedom {
            return Self { variance: sum / freedom, freedom, verdict: Holds::Permille995 };
        }
        let weight = RUN_NOISE_WEIGHT + freedom;
        let variance = (RUN_NOISE_WEIGHT * usual + sum) / weight;
        Self { variance, freedom: weight, verdict: Holds::Percent99 }
    }
}

impl Middle {
    fn of(runs: &[&[f64]], dice: &mut Dice) -> Option<Self> {
        let has_ratio = |blocks: &&[f64]| {
            !blocks.is_empty() && blocks.iter().all(|value| value.is_finite() && *value > 0.0)
        };
        if !runs.iter().all(has_ratio) {
            return None;
        }
        let value = middle(&runs.iter().map(|blocks| mean(blocks.iter())).collect::<Vec<_>>())?;
        let mut logarithms = Vec::with_capacity(DRAWS);
        for _ in 0..DRAWS {
            let mut drawn = Vec::with_capacity(runs.len());
            for _ in runs {
                let blocks = dice.pick(runs)?;
                drawn.push(mean((0..blocks.len()).filter_map(|_| dice.pick(blocks))));
            }
            logarithms.push(middle(&drawn)?.ln());
        }
        let center = mean(logarithms.iter());
        let variance = logarithms.iter().map(|value| (value - center).powi(2)).sum::<f64>() / float(DRAWS);
        // A draw of n runs varies by one nth less than n runs do.
        let correction = if runs.len() > 1 { float(runs.len()) / float(runs.len() - 1) } else { 1.0 };
        Some(Self { value, variance: variance * correction, runs: runs.len() })
    }
}

/// The median of the means of all pairs, each value with itself among them.
fn middle(values: &[f64]) -> Option<f64> {
    let mut means = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (at, one) in values.iter().enumerate() {
        means.extend(values.iter().skip(at).map(|other| f64::midpoint(*one, *other)));
    }
    median(&mut means)
}

fn mean<'a>(values: impl Iterator<Item = &'a f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0_usize), |(sum, count), value| (sum + value, count + 1));
    sum / float(count)
}

/// How far to each side Student's distribution holds so much: in full for one and two degrees of freedom, from three on by Fisher's
/// expansion, within 6 %.
fn student(freedom: f64, holds: Holds) -> f64 {
    let (z, one, two): (f64, f64, f64) = match holds {
        Holds::Percent95 => (1.960, 12.706, 4.303),
        Holds::Percent99 => (2.576, 63.657, 9.925),
        Holds::Permille995 => (2.807, 127.321, 14.089),
    };
    if freedom < 1.5 {
        return one;
    }
    if freedom < 2.5 {
        return two;
    }
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

/// Random numbers by splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of them.
    fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let at = self.next().checked_rem(of.len() as u64)?;
        of.get(usize::try_from(at).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(runs: &[Vec<f64>]) -> Vec<&[f64]> {
        runs.iter().map(Vec::as_slice).collect()
    }

    #[test]
    fn one_wild_run_of_five_moves_the_middle_little() {
        let even = middle(&[1.00, 1.01, 0.99, 1.00, 1.00]).unwrap();
        let wild = middle(&[1.00, 1.01, 0.99, 1.00, 9.00]).unwrap();
        assert!((even - 1.0).abs() < 1e-9);
        assert!((wild - 1.0).abs() < 0.02, "{wild}");
    }

    #[test]
    fn the_quantile_is_that_of_the_tables() {
        for (freedom, of_95, of_99, of_995) in [
            (1.0, 12.706, 63.657, 127.321),
            (2.0, 4.303, 9.925, 14.089),
            (3.0, 3.182, 5.841, 7.453),
            (4.0, 2.776, 4.604, 5.598),
            (12.0, 2.179, 3.055, 3.428),
            (1e9, 1.960, 2.576, 2.807),
        ] {
            for (holds, wanted) in
                [(Holds::Percent95, of_95), (Holds::Percent99, of_99), (Holds::Permille995, of_995)]
            {
                let found = student(freedom, holds);
                assert!((found / wanted - 1.0).abs() < 0.06, "{freedom} {holds:?}: {found}, not {wanted}");
            }
        }
    }

    #[test]
    fn more_runs_tell_smaller_differences_and_noisy_ones_larger() {
        let runs = |noise: f64, count: u32| -> Vec<Vec<f64>> {
            let sign = |at: u32| if at.is_multiple_of(2) { 1.0 } else { -1.0 };
            (0..count).map(|at| vec![1.0 + noise * sign(at); 4]).collect()
        };
        let least = |noise, count| {
            let (base, new) = (runs(noise, count), runs(noise, count));
            apart(&of(&base), &of(&new)).unwrap().least
        };
        assert!(least(0.005, 10) < least(0.005, 4) && least(0.005, 4) < least(0.005, 1));
        assert!(least(0.03, 6) > 3.0 * least(0.005, 6));
    }

    #[test]
    fn one_run_each_can_tell_what_is_beyond_the_usual_noise() {
        let runs = [vec![0.500, 0.501, 0.499, 0.500]];
        let found = apart(&of(&runs), &of(&runs)).unwrap();
        assert!(found.change.abs() < 1e-12);
        assert!((0.035..0.045).contains(&found.least) && !found.is_certain, "{found:?}");
        let shaken = [vec![0.3, 0.7, 0.4, 0.6]];
        assert!(apart(&of(&shaken), &of(&shaken)).unwrap().least > 0.2, "blocks that differ widen it");
    }

    #[test]
    fn equal_runs_give_equal_answers_and_zeros_none() {
        let (base, new) = ([vec![1.0, 1.1], vec![1.05, 0.98]], [vec![1.2, 1.1], vec![1.15, 1.18]]);
        assert_eq!(apart(&of(&base), &of(&new)), apart(&of(&base), &of(&new)));
        assert_eq!(apart(&of(&base), &of(&[vec![0.0]])), None);
        assert_eq!(apart(&of(&base), &[]), None);
        assert_eq!(apart(&of(&base), &of(&[vec![]])), None);
    }
}
