//! Conversion from a column's unit to that of a series.

use gpuvitals_core::batch::Value;
use gpuvitals_core::figures::{Number, whole};

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

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "the type of the column"
    )]
    pub(crate) fn apply(self, value: Value) -> Number {
        match (value, self) {
            (Value::Int(v), Self::Times(times)) => {
                v.checked_mul(times).map_or(Number::F64(v as f64 * times as f64), Number::Int)
            }
            (Value::Int(v), Self::Over(1e9)) => Number::Nanoseconds(v),
            (Value::Float32(v), Self::Times(1)) => Number::F32(v),
            (Value::Float32(v), _) => Number::F32(self.float(v.into()) as f32),
            _ => Number::F64(self.float(value.as_f64())),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "factors are far below 2^52")]
    fn float(self, value: f64) -> f64 {
        match self {
            Self::Times(times) => value * times as f64,
            Self::Over(parts) => value / parts,
            Self::By(factor) => value * factor,
        }
    }
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
