//! Chance that is the same on every machine.
//!
//! SplitMix64 seeds xoshiro256** (Blackman and Vigna, both published into the public domain as algorithms). Every
//! GPU and every scheduler has a stream of its own, seeded from the fleet's seed and its own place, so that no
//! stream knows how many others there are. Only additions, multiplications, divisions and square roots are used:
//! these are exact in IEEE 754, `exp`, `ln` and `sin` of a system library are not.

/// The next SplitMix64 output for a state.
pub(super) fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// One hash of several numbers, for streams and for chance that is addressed instead of drawn.
pub(super) fn hash(parts: &[u64]) -> u64 {
    parts.iter().fold(0x6770_7576_6974_616c, |state, &part| mix(state ^ mix(part)))
}

/// A hash as a number in [0, 1).
#[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
pub(super) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

/// A stream of chance: xoshiro256**.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    state: [u64; 4],
}

impl Stream {
    /// The stream that belongs to these numbers.
    pub(super) fn of(parts: &[u64]) -> Self {
        let seed = hash(parts);
        Self { state: [mix(seed), mix(seed ^ 1), mix(seed ^ 2), mix(seed ^ 3)] }
    }

    /// 64 random bits.
    pub(super) fn next(&mut self) -> u64 {
        let [mut a, mut b, mut c, mut d] = self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = b << 17;
        c ^= a;
        d ^= b;
        b ^= c;
        a ^= d;
        c ^= shifted;
        d = d.rotate_left(45);
        self.state = [a, b, c, d];
        result
    }

    /// Uniform in [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        unit(self.next())
    }

    /// Uniform in [low, high).
    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Uniform integer below `bound`; 0 for a bound of 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.next()) * u128::try_from(bound).unwrap_or(0);
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// About normal, mean 0, deviation 1, never beyond 3.5: the sum of four 16-bit uniforms of one draw.
    #[expect(clippy::cast_precision_loss, reason = "18 bits fit")]
    pub(super) fn normal(&mut self) -> f64 {
        let bits = self.next();
        let sum = (bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48);
        (sum as f64 / 65_536.0 - 2.0) * 1.732_050_807_568_877_2
    }

    /// Exponential with that mean, cut at 6 means.
    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        (-natural_log(1.0 - self.unit())).min(6.0) * mean
    }
}

/// Natural logarithm of a number in (0, 1] by exact operations only, to about 1e-9.
fn natural_log(x: f64) -> f64 {
    let mut mantissa = x;
    let mut halvings = 0.0;
    while mantissa < 0.75 && halvings < 64.0 {
        mantissa *= 2.0;
        halvings += 1.0;
    }
    let y = (mantissa - 1.0) / (mantissa + 1.0);
    let y2 = y * y;
    let series = 1.0 + y2 * (1.0 / 3.0 + y2 * (0.2 + y2 * (1.0 / 7.0 + y2 * (1.0 / 9.0 + y2 / 11.0))));
    2.0 * y * series - halvings * core::f64::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_one() {
        for x in [1e-12, 0.01, 0.3, 0.74, 0.75, 0.9, 1.0_f64] {
            assert!((natural_log(x) - x.ln()).abs() < 1e-8 * (1.0 + x.ln().abs()), "{x}");
        }
    }

    #[test]
    fn streams_have_the_moments_they_promise() {
        let mut stream = Stream::of(&[7]);
        let n = 200_000;
        let (mut sum, mut squares, mut waits) = (0.0, 0.0, 0.0);
        for _ in 0..n {
            let x = stream.normal();
            sum += x;
            squares += x * x;
            waits += stream.exponential(3.0);
        }
        let n = f64::from(n);
        assert!((sum / n).abs() < 0.01, "{}", sum / n);
        assert!((squares / n - 1.0).abs() < 0.02, "{}", squares / n);
        assert!((waits / n - 3.0).abs() < 0.05, "{}", waits / n);
        assert_ne!(Stream::of(&[1, 2]).next(), Stream::of(&[2, 1]).next());
    }
}
