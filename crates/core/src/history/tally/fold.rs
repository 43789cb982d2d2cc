//! Folding slices of numbers: smallest, largest, sum.

/// A number of a metric column.
pub(super) trait TallyNumber: Copy + Default + PartialOrd {
    /// Smallest and largest, to begin with.
    const EXTREMES: (Self, Self);

    /// As 64-bit float.
    fn float(self) -> f64;
}

impl TallyNumber for i32 {
    const EXTREMES: (Self, Self) = (Self::MIN, Self::MAX);

    fn float(self) -> f64 {
        self.into()
    }
}

impl TallyNumber for i64 {
    const EXTREMES: (Self, Self) = (Self::MIN, Self::MAX);

    #[expect(
        clippy::cast_precision_loss,
        reason = "answers are 64-bit floats: integers beyond 2^53 lose digits"
    )]
    fn float(self) -> f64 {
        self as f64
    }
}

impl TallyNumber for f32 {
    const EXTREMES: (Self, Self) = (Self::NEG_INFINITY, Self::INFINITY);

    fn float(self) -> f64 {
        self.into()
    }
}

impl TallyNumber for f64 {
    const EXTREMES: (Self, Self) = (Self::NEG_INFINITY, Self::INFINITY);

    fn float(self) -> f64 {
        self
    }
}

/// Aggregates of a slice of numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Folded<T> {
    pub(super) min: T,
    pub(super) max: T,
    pub(super) sum: f64,
}

/// Numbers added in parallel: the compiler vectorises it.
const LANES: usize = 8;

/// Folds a slice that is not empty and has no NaN; with NaN or infinities the sum is not finite.
pub(super) fn fold<T: TallyNumber>(values: &[T]) -> Folded<T> {
    // A step as fine as the rows has one value: lanes would cost more than it does.
    if let [value] = values {
        return Folded { min: *value, max: *value, sum: value.float() };
    }
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

#[cfg(test)]
mod tests {
    use super::*;

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
