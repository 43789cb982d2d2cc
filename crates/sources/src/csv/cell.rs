//! What a cell says: a number in the column's unit, that there is none, or nonsense.

use gpuvitals_core::AbsenceReason;
use gpuvitals_core::batch::{Value, ValueError};
use gpuvitals_core::catalogue::{MetricId, Unit, second_by_dcgm};
use gpuvitals_core::foreign::{absence, blank_float, blank_integer};

use super::unit;

/// What a metric's cells must be to be taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    pub(super) id: MetricId,
    /// Column value = cell × factor.
    factor: f64,
    unit: Unit,
    range: (f64, f64),
    /// The name is DCGM's, whose blank values are numbers.
    dcgm: bool,
    /// The metric that the name means for a GPU that has [`Scale::id`] under a name of its own.
    pub(super) second: Option<MetricId>,
    /// The name is such a name of its own.
    pub(super) is_own: bool,
}

impl Scale {
    pub(super) fn new(id: MetricId, factor: f64, name: &str) -> Self {
        let facts = id.metric();
        let dcgm = name.get(..4).is_some_and(|head| head.eq_ignore_ascii_case("dcgm"));
        let second = second_by_dcgm(name);
        let is_shared = |name: &str| second_by_dcgm(name).is_some_and(|second| second != id);
        let is_own = second.is_none() && facts.dcgm.iter().any(|name| is_shared(name.name));
        Self { id, factor, unit: facts.unit, range: facts.range, dcgm, second, is_own }
    }
}

/// Why a cell gives no value.
#[derive(Debug)]
pub(super) enum Missing {
    /// The file says that there is none.
    Absent(AbsenceReason),
    /// It is no number or cannot be true; in words.
    Invalid(String),
}

/// Integers up to here need no look at the blank sentinels, the smallest of which is 2^31 - 16.
const PLAIN_MAX: i64 = 2_147_483_631;
const PLAIN_MAX_FLOAT: f64 = 2_147_483_632.0;

const POWERS_OF_TEN: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// The value of a metric's cell in the shape that nearly all have: a plain decimal within the catalogue's range.
/// `None` says nothing: [`metric`] looks again.
#[inline]
pub(super) fn plain_metric(cell: &[u8], scale: &Scale) -> Option<Value> {
    let value = scaled(short_decimal(cell)?, scale.factor);
    let (min, max) = scale.range;
    (min..=max).contains(&value.as_f64()).then_some(value)
}

/// [`plain_metric`] of a cell of one to eight bytes, the first of them lowest in the word; what follows the cell in the
/// word does not count.
#[inline]
pub(super) fn short_metric(word: u64, len: usize, scale: &Scale) -> Option<Value> {
    let value = scaled(eight_digits(word, len)?, scale.factor);
    let (min, max) = scale.range;
    (min..=max).contains(&value.as_f64()).then_some(value)
}

/// The value of a metric's cell, in the column unit and within the catalogue's range.
#[cold]
pub(super) fn metric(cell: &[u8], scale: &Scale) -> Result<Value, Missing> {
    let value = match short_decimal(cell) {
        Some(number) => scaled(number, scale.factor),
        None => long_number(cell, scale)?,
    };
    let number = value.as_f64();
    let (min, max) = scale.range;
    if (min..=max).contains(&number) {
        return Ok(value);
    }
    let column = scale.id.metric().column;
    let error = if number.is_finite() {
        ValueError::OutOfRange { column, value: number, min, max }
    } else {
        ValueError::NotFinite { column: column.to_owned() }
    };
    Err(Missing::Invalid(error.to_string()))
}

/// A number in a column without a unit, if the cell is one.
pub(super) fn plain_number(cell: &[u8]) -> Option<f64> {
    short_decimal(cell)
        .map(Value::as_f64)
        .or_else(|| std::str::from_utf8(cell).ok()?.trim().parse().ok().filter(|n: &f64| n.is_finite()))
}

/// `12`, `-3.25`: exact as long as digits and power of ten are both exact in a 64-bit float (Clinger).
#[inline]
fn short_decimal(cell: &[u8]) -> Option<Value> {
    let (negative, digits) = match cell {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let (mut mantissa, mut decimals, mut point) = (0_i64, 0_usize, false);
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 {
            mantissa = mantissa * 10 + i64::from(digit);
            decimals += usize::from(point);
        } else if byte == b'.' && !point {
            point = true;
        } else {
            return None;
        }
    }
    let signed = if negative { -mantissa } else { mantissa };
    if !point {
        return (mantissa <= PLAIN_MAX).then_some(Value::Int(signed));
    }
    if digits.len() == 1 || mantissa > 1 << 53 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "at most 2^53")]
    let value = signed as f64 / POWERS_OF_TEN.get(decimals)?;
    (value.abs() < PLAIN_MAX_FLOAT).then_some(Value::Float(value))
}

/// Up to eight digits with a point among them or not, all at once: eight bytes are checked and summed in one word.
#[inline]
fn eight_digits(word: u64, len: usize) -> Option<Value> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const ZEROS: u64 = ONES * 0x30;
    if !(1..=8).contains(&len) {
        return None;
    }
    // The last character goes to the highest byte; what is below the first is filled with zeros.
    let mut digits = word << (64 - 8 * len);
    let mut filler = 8 - len;
    let difference = digits ^ (ONES * u64::from(b'.'));
    let points = !(((difference & (ONES * 0x7f)) + ONES * 0x7f) | difference) & (ONES * 0x80);
    let mut decimals = 0;
    if points != 0 {
        let at = points.trailing_zeros() & !7;
        let below = (1_u64 << at) - 1;
        digits = (digits & !(below | (0xff << at))) | ((digits & below) << 8);
        decimals = 7 - usize::try_from(at / 8).ok()?;
        filler += 1;
        if filler > 7 {
            return None;
        }
    }
    digits |= ZEROS & ((1 << (8 * filler)) - 1);
    let high = ONES * 0xf0;
    if digits & high != ZEROS || (digits + ONES * 6) & high != ZEROS {
        return None;
    }
    let values = digits - ZEROS;
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8);
    let even = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let odd = ((pairs >> 16) & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    let mantissa = i64::from(u32::try_from(even.wrapping_add(odd) >> 32).ok()?);
    if points == 0 {
        return Some(Value::Int(mantissa));
    }
    #[expect(clippy::cast_precision_loss, reason = "below 10^8")]
    let number = mantissa as f64;
    Some(Value::Float(number / POWERS_OF_TEN.get(decimals)?))
}

/// Everything else a metric's cell may be.
fn long_number(cell: &[u8], scale: &Scale) -> Result<Value, Missing> {
    let text = std::str::from_utf8(cell).unwrap_or("\u{fffd}").trim();
    if let Some(reason) = absence(text) {
        return Err(Missing::Absent(reason));
    }
    if let Ok(whole) = text.parse::<i64>() {
        if let Some(reason) = blank_integer(whole, scale.dcgm) {
            return Err(Missing::Absent(reason));
        }
        return Ok(scaled(Value::Int(whole), scale.factor));
    }
    if let Ok(number) = text.parse::<f64>() {
        if let Some(reason) = blank_float(number) {
            return Err(Missing::Absent(reason));
        }
        return Ok(scaled(Value::Float(number), scale.factor));
    }
    if scale.unit == Unit::None
        && let Some(value) = code(text)
    {
        return Ok(value);
    }
    let no_number = || Missing::Invalid(format!("{:?} is no number", shortened(text)));
    let (number, written) = split_unit(text).ok_or_else(no_number)?;
    let factor = unit::factor(written, scale.unit).ok_or_else(|| {
        Missing::Invalid(format!(
            "{:?} has a unit that the column {} cannot have",
            shortened(text),
            column(scale)
        ))
    })?;
    Ok(scaled(number, factor))
}

fn column(scale: &Scale) -> &'static str {
    scale.id.metric().column
}

fn scaled(value: Value, factor: f64) -> Value {
    #[expect(clippy::float_cmp, reason = "exactly one means: leave the number as it came")]
    if factor == 1.0 { value } else { Value::Float(value.as_f64() * factor) }
}

/// States that tools print as words: `P8`, `Not Active`, `0x0000000000000004`.
fn code(text: &str) -> Option<Value> {
    let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is(&["enabled", "active", "true", "yes"]) {
        return Some(Value::Int(1));
    }
    if is(&["disabled", "not active", "false", "no"]) {
        return Some(Value::Int(0));
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return i64::from_str_radix(hex, 16).ok().map(Value::Int);
    }
    let state = text.strip_prefix('P')?;
    state.parse::<u8>().ok().map(|state| Value::Int(state.into()))
}

/// `70.5 W` to its number and its unit.
fn split_unit(text: &str) -> Option<(Value, &str)> {
    let number_len = text.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c)))?;
    let (number, unit) = text.split_at_checked(number_len)?;
    let number = match short_decimal(number.as_bytes()) {
        Some(value) => value,
        None => Value::Float(number.parse().ok()?),
    };
    Some((number, unit.trim()))
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn eight(text: &str) -> Option<Value> {
        let mut bytes = [b'7'; 8];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        eight_digits(u64::from_le_bytes(bytes), text.len())
    }

    #[test]
    fn eight_bytes_at_once() {
        let check = |text: &str, expected: Option<Value>| assert_eq!(eight(text), expected, "{text:?}");
        check("0", Some(Value::Int(0)));
        check("12345678", Some(Value::Int(12_345_678)));
        check("1.5", Some(Value::Float(1.5)));
        check(".5", Some(Value::Float(0.5)));
        check("5.", Some(Value::Float(5.0)));
        check("1234.567", Some(Value::Float(1234.567)));
        for text in ["", ".", "-1", "1.2.3", "1..", "12a", " 1", "1\0", "/", ":"] {
            check(text, None);
        }
    }

    proptest! {
        #[test]
        fn the_short_ways_agree_with_the_standard_library(text in "-?[0-9.]{0,17}") {
            let number: Option<f64> = text.parse().ok();
            if let Some(value) = short_decimal(text.as_bytes()) {
                prop_assert_eq!(Some(value.as_f64()), number);
            }
            if text.len() <= 8 && let Some(value) = eight(&text) {
                prop_assert_eq!(Some(value.as_f64()), number);
            }
        }

        #[test]
        fn eight_bytes_are_digits_or_refused(bytes in any::<[u8; 8]>(), len in 1_usize..=8) {
            let number = std::str::from_utf8(&bytes[..len]).ok().and_then(|text| text.parse::<f64>().ok());
            if let Some(value) = eight_digits(u64::from_le_bytes(bytes), len) {
                prop_assert_eq!(Some(value.as_f64()), number);
            }
        }
    }
}
