//! Conversion from a column's unit to that of a series.

use gpuvitals_core::batch::Value;
use gpuvitals_core::figures::{Number, whole};
use gpuvitals_core::number::float;

/// Whole numbers below it have no gaps, and scaled by a factor they are rounded once.
const WHOLE_MAX: f64 = 1e15;

/// From the column's unit to that of a series. A factor below 1 is a division by a whole number, which is
/// exact to the last digit; multiplying is not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    Times(i64),
    Over(f64),
    By(f64),
}

impl Scale {
    pub(crate) fn of(factor: f64) -> Self {
        if let Some(times) = whole(factor) {
            return Self::Times(times);
        }
        let inverse = (1.0 / factor).round();
        if (inverse * factor - 1.0).abs() < 1e-12 { Self::Over(inverse) } else { Self::By(factor) }
    }

    pub(crate) fn apply(self, value: Value) -> Number {
        match (value, self) {
            (Value::Int(v), Self::Times(times)) => {
                v.checked_mul(times).map_or(Number::F64(float(v) * float(times)), Number::Int)
            }
            (Value::Int(v), Self::Over(1e9)) => Number::Nanoseconds(v),
            (Value::Float32(v), Self::Times(1)) => Number::F32(v),
            // In 32 bits a ratio would have digits that its percentage has not.
            _ => Number::F64(self.float(value.as_decimal())),
        }
    }

    /// A decimal with few digits is scaled as the whole number that it is of a power of ten, so that the result has no digit more.
    fn float(self, value: f64) -> f64 {
        let (digits, power) = decimal(value);
        match self {
            Self::Times(times) => digits * float(times) / power,
            Self::Over(parts) => digits / (power * parts),
            Self::By(factor) => value * factor,
        }
    }
}

/// A decimal as a whole number over a power of ten, if it has at most six places; else itself over 1.
#[expect(clippy::float_cmp, reason = "it tests whether a decimal is this number")]
fn decimal(value: f64) -> (f64, f64) {
    let powers = [1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6];
    let digits = powers.map(|power| ((value * power).round(), power));
    let exact =
        digits.into_iter().find(|(digits, power)| digits.abs() < WHOLE_MAX && digits / power == value);
    exact.unwrap_or((value, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(number: Number) -> String {
        let mut out = Vec::new();
        number.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn scaling_adds_no_digits() {
        let table = [
            (Value::Float32(97.5), 0.01, "0.975"),
            (Value::Float32(33.3), 0.01, "0.333"),
            (Value::Float32(71.1), 0.01, "0.711"),
            (Value::Float(71.1), 0.01, "0.711"),
            (Value::Float32(0.1), 1e6, "100000"),
            (Value::Float32(12.345), 1e-3, "0.012345"),
            (Value::Float32(689.457), 1.0, "689.457"),
            (Value::Int(1_755), 1e6, "1755000000"),
            (Value::Int(77_413), 1_048_576.0, "81173413888"),
            (Value::Int(1_250), 1e-3, "1.25"),
            (Value::Int(1_200_000_000), 1e-9, "1.2"),
            (Value::Int(i64::MAX), 1e6, "9223372036854776000000000"),
            (Value::Float(12.5), 1e3, "12500"),
            (Value::Float32(32.0), 1e9, "32000000000"),
        ];
        for (value, factor, wanted) in table {
            assert_eq!(text(Scale::of(factor).apply(value)), wanted, "{value:?} × {factor}");
        }
    }
}
