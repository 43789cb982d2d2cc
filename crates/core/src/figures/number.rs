//! Numbers as text: short, exact, without an exponent.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::batch;
use crate::number::float;

/// A number of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// A whole number.
    Int(i64),
    /// A value measured as a 32-bit float.
    F32(f32),
    /// Any other value.
    F64(f64),
    /// Seconds, exactly, from nanoseconds.
    Nanoseconds(i64),
}

impl Number {
    /// Appends the shortest spelling that reads back as the same number, without an exponent. Returns false, and appends
    /// nothing, if the number is not finite.
    pub fn write(self, out: &mut Vec<u8>) -> bool {
        // Writing to a vector cannot fail.
        match self {
            Self::Int(v) => drop(write!(out, "{v}")),
            Self::Nanoseconds(v) => write_nanoseconds(out, v),
            // The sum with 0 has no sign where the number is 0.
            Self::F32(v) if v.is_finite() => drop(write!(out, "{}", v + 0.0)),
            Self::F64(v) if v.is_finite() => drop(write!(out, "{}", v + 0.0)),
            Self::F32(_) | Self::F64(_) => return false,
        }
        true
    }

    /// Its spelling; empty if it is not finite.
    pub fn text(self) -> String {
        let mut text = Vec::new();
        self.write(&mut text);
        String::from_utf8(text).unwrap_or_default()
    }

    /// Whether it is finite, and so has a spelling.
    pub fn is_finite(self) -> bool {
        match self {
            Self::F32(v) => v.is_finite(),
            Self::F64(v) => v.is_finite(),
            Self::Int(_) | Self::Nanoseconds(_) => true,
        }
    }

    /// The number that the spelling reads as: a 32-bit float is its shortest decimal, not its binary value.
    /// Counts beyond 2^53 are rounded, as in every Prometheus client.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(v) => float(v),
            Self::F32(v) => batch::Value::Float32(v).as_decimal(),
            Self::F64(v) => v,
            Self::Nanoseconds(v) => float(v) / 1e9,
        }
    }
}

impl From<u64> for Number {
    fn from(count: u64) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<&AtomicU64> for Number {
    fn from(counter: &AtomicU64) -> Self {
        counter.load(Ordering::Relaxed).into()
    }
}

impl From<usize> for Number {
    fn from(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<u8> for Number {
    fn from(code: u8) -> Self {
        Self::Int(code.into())
    }
}

impl From<bool> for Number {
    fn from(is: bool) -> Self {
        Self::Int(is.into())
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::F64(value)
    }
}

impl From<Duration> for Number {
    fn from(time: Duration) -> Self {
        Self::Nanoseconds(i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
    }
}

/// The integer equal to a float, if there is one below 9e15.
#[expect(clippy::cast_possible_truncation, reason = "within 2^53")]
pub fn whole(value: f64) -> Option<i64> {
    (value.abs() < 9e15 && value.fract() == 0.0).then_some(value as i64)
}

/// Seconds with as many decimals as are needed.
fn write_nanoseconds(out: &mut Vec<u8>, value: i64) {
    let sign = if value < 0 { "-" } else { "" };
    let (seconds, rest) = (value.unsigned_abs() / 1_000_000_000, value.unsigned_abs() % 1_000_000_000);
    drop(write!(out, "{sign}{seconds}"));
    if rest > 0 {
        drop(write!(out, ".{rest:09}"));
        while out.pop_if(|digit| *digit == b'0').is_some() {}
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
    fn numbers_are_short_and_have_no_exponent() {
        let table = [
            (Number::Int(i64::MIN), "-9223372036854775808"),
            (Number::Int(0), "0"),
            (Number::F32(689.457), "689.457"),
            (Number::F32(97.0), "97"),
            (Number::F64(0.1 + 0.2), "0.30000000000000004"),
            (Number::F64(1e-7), "0.0000001"),
            (Number::F64(322_435_711_239.0), "322435711239"),
            (Number::F64(-0.5), "-0.5"),
            (Number::F64(-0.0), "0"),
            (Number::F64(f64::NAN), ""),
            (Number::F32(f32::INFINITY), ""),
            (Number::Nanoseconds(1_752_871_354_250_000_001), "1752871354.250000001"),
            (Number::Nanoseconds(3_000_000_000), "3"),
            (Number::Nanoseconds(-1_500_000_000), "-1.5"),
        ];
        for (number, wanted) in table {
            assert_eq!(text(number), wanted, "{number:?}");
        }
    }
}
