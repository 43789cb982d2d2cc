//! Folding slices of numbers: smallest, largest, sum; and numbers as integers of the same order.

/// A number of a metric column.
pub(crate) trait Number: Copy + Default + PartialOrd {
    /// Smallest and largest, to begin with.
    const EXTREMES: (Self, Self);

    /// As 64-bit float.
    fn float(self) -> f64;

    /// An integer that is ordered as the numbers are.
    fn rank(self) -> u64;
}

impl Number for i32 {
    const EXTREMES: (Self, Self) = (Self::MIN, Self::MAX);

    fn float(self) -> f64 {
        self.into()
    }

    fn rank(self) -> u64 {
        (self.cast_unsigned() ^ (1 << 31)).into()
    }
}

impl Number for i64 {
    const EXTREMES: (Self, Self) = (Self::MIN, Self::MAX);

    #[expect(
        clippy::cast_precision_loss,
        reason = "answers are 64-bit floats: integers beyond 2^53 lose digits"
    )]
    fn float(self) -> f64 {
        self as f64
    }

    fn rank(self) -> u64 {
        self.cast_unsigned() ^ (1 << 63)
    }
}

impl Number for f32 {
    const EXTREMES: (Self, Self) = (Self::NEG_INFINITY, Self::INFINITY);

    fn float(self) -> f64 {
        self.into()
    }

    fn rank(self) -> u64 {
        let bits = self.to_bits();
        (if bits >> 31 == 0 { bits | (1 << 31) } else { !bits }).into()
    }
}

impl Number for f64 {
    const EXTREMES: (Self, Self) = (Self::NEG_INFINITY, Self::INFINITY);

    fn float(self) -> f64 {
        self
    }

    fn rank(self) -> u64 {
        let bits = self.to_bits();
        if bits >> 63 == 0 { bits | (1 << 63) } else { !bits }
    }
}

/// Aggregates of a slice of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Folded<T> {
    pub(crate) min: T,
    pub(crate) max: T,
    pub(crate) sum: f64,
}

/// Numbers added in parallel: the compiler vectorises it.
const LANES: usize = 8;

/// Folds a slice that is not empty and has no NaN; with NaN or infinities the sum is not finite.
pub(crate) fn fold<T: Number>(values: &[T]) -> Folded<T> {
    let (smallest, largest) = T::EXTREMES;
    let (mut min, mut max, mut sum) = ([largest; LANES], [smallest; LANES], [0.0; LANES]);
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks.chain([rest]) {
        for (((min, max), sum), &value) in min.iter_mut().zip(&mut max).zip(&mut sum).zip(chunk) {
            *min = if value < *min { value } else { *min };
            *max = if value > *max { value } else { *max };
            *sum += value.float();
        }
    }
    Folded {
        min: min.into_iter().fold(largest, |a, b| if b < a { b } else { a }),
        max: max.into_iter().fold(smallest, |a, b| if b > a { b } else { a }),
        sum: sum.iter().sum(),
    }
}

/// Position, from 0, of the 99th percentile among `count` values in ascending order, by nearest rank: the
/// smallest value that at least 99 % of the values do not exceed.
pub(crate) fn p99_position(count: usize) -> usize {
    count.saturating_mul(99).div_ceil(100).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_by_nearest_rank() {
        let expected = [(1, 0), (2, 1), (99, 98), (100, 98), (101, 99), (200, 197), (1000, 989)];
        for (count, position) in expected {
            assert_eq!(p99_position(count), position, "of {count}");
        }
    }

    #[test]
    fn ranks_are_in_the_order_of_numbers() {
        let ordered = |ranks: Vec<u64>| assert!(ranks.is_sorted_by(|a, b| a < b), "{ranks:?}");
        ordered([i32::MIN, -1, 0, 1, i32::MAX].map(Number::rank).to_vec());
        ordered([i64::MIN, -1, 0, 1, i64::MAX].map(Number::rank).to_vec());
        ordered([f32::MIN, -1.5, -0.5, 0.0, 0.5, 1.5, f32::MAX].map(Number::rank).to_vec());
        ordered([f64::MIN, -1.5, -0.5, 0.0, 0.5, 1.5, f64::MAX].map(Number::rank).to_vec());
    }

    #[test]
    fn folding_takes_every_value_once() {
        for len in 1..40_i32 {
            let values: Vec<i32> = (0..len).map(|i| (i * 7) % 13 - 6).collect();
            let folded = fold(&values);
            assert_eq!(Some(folded.min), values.iter().copied().min());
            assert_eq!(Some(folded.max), values.iter().copied().max());
            assert!((folded.sum - f64::from(values.iter().sum::<i32>())).abs() < 1e-9);
        }
    }
}
