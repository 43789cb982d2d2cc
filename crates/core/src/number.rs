//! Whole numbers in calculations with floats.

/// A whole number that a calculation may round: a count, a size, a span of time.
pub trait WholeNumber {
    /// The number as a float: exact up to 2^53, the nearest float beyond.
    fn float(self) -> f64;
}

macro_rules! whole {
    ($($number:ty),+) => {
        $(impl WholeNumber for $number {
            #[inline]
            #[expect(clippy::cast_precision_loss, reason = "documented")]
            fn float(self) -> f64 {
                self as f64
            }
        })+
    };
}

whole!(i64, u64, usize, i128);

/// A whole number as a float: exact up to 2^53, the nearest float beyond.
#[inline]
pub fn float(number: impl WholeNumber) -> f64 {
    number.float()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_number_is_exact_up_to_53_bits_and_the_nearest_float_beyond() {
        assert_eq!(float(-7_i64).to_bits(), (-7.0_f64).to_bits());
        assert_eq!(float((1_u64 << 53) - 1).to_bits(), 9_007_199_254_740_991.0_f64.to_bits());
        assert_eq!(float((1_usize << 53) + 1).to_bits(), 9_007_199_254_740_992.0_f64.to_bits());
        assert_eq!(float(-(1_i128 << 70)).to_bits(), (-(70.0_f64.exp2())).to_bits());
    }
}
